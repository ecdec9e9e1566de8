package redirects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
)

// learn keeps the filter in shape until ctx is done: at the start, and whenever somebody wants it, it reads the stripes that
// need it from the store, beside the work.
func (s *Store) learn(ctx context.Context) {
	for wait := time.Duration(0); ; {
		if wait == 0 && !s.sleepUntilWanted(ctx) || wait > 0 && !sleep(ctx, wait) {
			return
		}
		if wait = s.untilQuiet(); wait > 0 {
			continue
		}
		if err := s.learnAll(ctx); err != nil && ctx.Err() == nil {
			s.logger.Error("the filter over the links' keys cannot be made", "error", err)
			wait = learnAgain
		}
	}
}

// learnAgain is the pause after a store that could not be read.
const learnAgain = 30 * time.Second

func (s *Store) sleepUntilWanted(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.memory.known.wanted:
		return true
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// untilQuiet is how long it is, at least, until a flood is over: what is read within one is forgotten again.
func (s *Store) untilQuiet() time.Duration {
	if s.FarBehind() {
		return quietBefore
	}
	if flood := s.memory.known.flood.Load(); flood != 0 {
		return max(0, time.Duration(flood-s.memory.now())+quietBefore)
	}
	return 0
}

func (s *Store) learnAll(ctx context.Context) error {
	var room []uint64
	for i := range s.memory.known.stripes {
		if !s.memory.known.stripes[i].needs() {
			continue
		}
		var err error
		if room, err = s.learnStripe(ctx, i, room[:0]); err != nil {
			return err
		}
	}
	return nil
}

// learnStripe reads the keys of a stripe. The order matters: what is committed before the iterator is made is seen by it, and
// what is committed later is added late, after begin.
func (s *Store) learnStripe(ctx context.Context, number int, room []uint64) ([]uint64, error) {
	s.switching.RLock()
	defer s.switching.RUnlock()
	stripe := &s.memory.known.stripes[number]
	stripe.begin()
	read, err := readHashes(ctx, s.live.DB(), number, room)
	if err != nil {
		stripe.giveUp()
		return read, err
	}
	stripe.end(read)
	return read, nil
}

// readHashes appends the hashes of the route keys of a stripe.
func readHashes(ctx context.Context, db *pebble.DB, number int, to []uint64) ([]uint64, error) {
	first := uint32(number * stripeBuckets)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: appendKey(nil, first), UpperBound: appendKey(nil, first+stripeBuckets)})
	if err != nil {
		return to, fmt.Errorf("reading the links' keys: %w", err)
	}
	for it.First(); it.Valid() && ctx.Err() == nil; it.Next() {
		to = append(to, xxhash.Sum64(it.Key()[keyHead:]))
	}
	if err := errors.Join(it.Error(), it.Close(), ctx.Err()); err != nil {
		return to, fmt.Errorf("reading the links' keys: %w", err)
	}
	return to, nil
}
