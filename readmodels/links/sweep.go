package links

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	sweepEvery = 10 * time.Second
	// sweepRows bounds how long one step holds up the projection: about two milliseconds.
	sweepRows = 2000
)

// SweepRequests drops outcomes of request keys that no longer count at the newest stamped time, a few rows at a time, until ctx
// is done. Only cleaning: whoever reads an outcome judges its age.
func (s *Store) SweepRequests(ctx context.Context) error {
	next := []byte{requestPrefix}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepEvery):
		}
		var err error
		if next, err = s.sweep(next, sweepRows); err != nil {
			return err
		}
	}
}

// sweep looks at this many rows from a key on and returns the key to go on from, the first one after the last row.
func (s *Store) sweep(from []byte, rows int) (next []byte, err error) {
	s.Pause() // a row must not be written anew between the look at it and its end
	defer s.Resume()
	newest := s.Status().LastStamp
	it, err := s.pebble.DB().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{requestPrefix + 1}})
	if err != nil {
		return from, fmt.Errorf("sweeping requests: %w", err)
	}
	b := s.pebble.DB().NewBatch()
	next = []byte{requestPrefix}
	for it.First(); it.Valid() && err == nil; it.Next() {
		if rows--; rows < 0 {
			next = append([]byte(nil), it.Key()...)
			break
		}
		if expired(it.Value(), newest) {
			err = b.Delete(it.Key(), nil)
		}
	}
	if err = errors.Join(err, it.Close()); err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return from, fmt.Errorf("sweeping requests: %w", err)
	}
	return next, nil
}

// expired judges a row as the decider judges its key. A row that cannot be read stays, for whoever asks for it to find.
func expired(value []byte, newestUS int64) bool {
	var r pb.StoredRequest
	return len(value) > 8 && r.UnmarshalVT(value[8:]) == nil && !commands.KeyCounts(r.GetTimeUs(), newestUS)
}
