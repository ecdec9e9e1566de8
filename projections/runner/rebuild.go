package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
)

// Rebuild is a store built again from the log beside the live one.
type Rebuild struct {
	// Live is the runner of the live store, which is of these Generations.
	Live        *Runner
	Generations *Generations
	// Projection is another instance of the live runner's. It is folded with and told of no commit.
	Projection Projection
	// BucketOf says which bucket a pair of the store belongs to.
	BucketOf BucketOf
	// Progress, if set, hears how many records were folded of how many.
	Progress func(done, total int64)
	// Switch makes readers use the new store. When it returns, nobody reads from the old one any more.
	Switch func(to *Pebble)
	// Damaged says that the live store is known to be damaged: nothing is compared, it is kept beside the new one, and if its
	// runner stopped for that, it goes on. It must not run meanwhile.
	Damaged bool
}

// Report says what a rebuild found. That any bucket differs means that the live store was wrong: a rebuilt one is nothing
// but the fold of the log.
type Report struct {
	Records   int64 // folded
	Buckets   int   // that hold anything
	Differing []uint32
	Positions []int64 // at which the two were compared
}

// errNotMet: there is nothing to compare with.
var errNotMet = errors.New("the live projection has not met the log yet")

// Run builds, compares at the same positions, and switches. The live runner stands still twice for a moment: while both
// stores are at the positions to compare, and while they are switched. After an error the live store is what it was.
func (b *Rebuild) Run(ctx context.Context) (report *Report, err error) {
	if b.Live.Positions() == nil {
		return nil, errNotMet
	}
	number, store, err := b.Generations.create()
	if err != nil {
		return nil, err
	}
	switched := false
	defer func() {
		if !switched {
			err = errors.Join(err, store.Close(), b.Generations.removeOthers())
		}
	}()
	builder, err := New(b.config(store))
	if err != nil {
		return nil, err
	}
	defer builder.Close()
	report = &Report{}
	if err = b.catchUp(ctx, builder, report); err != nil {
		return nil, err
	}
	if !b.Damaged {
		if err = b.compare(ctx, builder, store, report); err != nil {
			return nil, err
		}
	}
	if err = store.db.Flush(); err != nil {
		return nil, fmt.Errorf("flushing the rebuilt store: %w", err)
	}
	switched, err = b.swap(ctx, builder, store, number)
	return report, err
}

func (b *Rebuild) config(store *Pebble) Config {
	cfg := b.Live.cfg
	cfg.Store, cfg.Projection = store, foldOnly{b.Projection}
	if lender, ok := b.Projection.(Lender); ok {
		cfg.Projection = lendOnly{lender}
	}
	return cfg
}

// foldOnly is a projection that tells nobody, and so keeps nothing.
type foldOnly struct{ Projection }

func (foldOnly) Committed([]Accepted) {}

// lendOnly is the same of a Lender.
type lendOnly struct{ Lender }

func (lendOnly) Written(*Write) {}

// catchUp folds until the rest is short.
func (b *Rebuild) catchUp(ctx context.Context, builder *Runner, report *Report) error {
	if err := b.checkEnds(ctx); err != nil {
		return err
	}
	for range 3 {
		target := b.Live.Positions()
		base := report.Records
		total := base + sum(target) - sum(builder.Positions())
		err := builder.RunTo(ctx, target, func(records int64) {
			report.Records = base + records
			if b.Progress != nil {
				b.Progress(report.Records, total)
			}
		})
		if err != nil {
			return fmt.Errorf("building beside: %w", err)
		}
	}
	return nil
}

// checkEnds keeps the build from waiting for records that the live store has folded and the log has lost.
func (b *Rebuild) checkEnds(ctx context.Context) error {
	positions := b.Live.Positions()
	ends, err := b.Live.cfg.Source.Ends(ctx, b.Live.cfg.Topic)
	if err != nil {
		return fmt.Errorf("asking for the end of the log: %w", err)
	}
	for i, next := range positions {
		if i >= len(ends) || next > ends[i] {
			return &events.Alarm{Topic: b.Live.cfg.Topic, Partition: int32(i), Offset: next, Bucket: events.NoBucket,
				Reason: "the live store's position lies beyond the log's end: the log has lost its tail"}
		}
	}
	return nil
}

func sum(of []int64) (total int64) {
	for _, n := range of {
		total += n
	}
	return total
}

// meet brings both stores to the same positions. The live runner is paused when it returns without an error.
func (b *Rebuild) meet(ctx context.Context, builder *Runner) error {
	b.Live.Pause()
	if err := builder.RunTo(ctx, b.Live.Positions(), nil); err != nil {
		b.Live.Resume()
		return fmt.Errorf("building beside: %w", err)
	}
	if !slices.Equal(builder.Positions(), b.Live.Positions()) {
		b.Live.Resume()
		return fmt.Errorf("the rebuilt store stands at %v, the live one at %v", builder.Positions(), b.Live.Positions())
	}
	return nil
}

func (b *Rebuild) compare(ctx context.Context, builder *Runner, store *Pebble, report *Report) error {
	if err := b.meet(ctx, builder); err != nil {
		return err
	}
	live := b.Live.current().(*Pebble).db.NewSnapshot()
	rebuilt := store.db.NewSnapshot()
	report.Positions = b.Live.Positions()
	b.Live.Resume()
	was, errLive := b.hash(live)
	is, errRebuilt := b.hash(rebuilt)
	if errRebuilt != nil {
		return fmt.Errorf("reading the rebuilt store: %w", errRebuilt)
	}
	if errLive != nil {
		// A live store that cannot be read is no reason to keep it.
		b.Live.cfg.Logger.Error("live store cannot be read", "projection", b.Live.cfg.Projection.Name(), "error", errLive)
	}
	report.Buckets, report.Differing = len(is), differing(was, is)
	return nil
}

func (b *Rebuild) hash(s *pebble.Snapshot) (hashes map[uint32][32]byte, err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	return HashPerBucket(s, b.BucketOf)
}

// swap makes the rebuilt store the live one, on disk and for the live runner and its readers.
func (b *Rebuild) swap(ctx context.Context, builder *Runner, store *Pebble, number int) (done bool, err error) {
	for b.Live.Err() != nil && b.Live.running.Load() { // it has stopped and not returned yet
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if err := b.meet(ctx, builder); err != nil {
		return false, err
	}
	defer b.Live.Resume()
	before := b.Generations.live
	if err := b.Generations.promote(number); err != nil {
		return false, err
	}
	old := b.Live.exchange(store, builder)
	b.Switch(store)
	err = old.(*Pebble).Close()
	if b.Damaged {
		if err != nil { // no wonder
			b.Live.cfg.Logger.Warn("a damaged store did not close cleanly", "projection", b.Live.cfg.Projection.Name(), "error", err)
		}
		err = b.Generations.setAside(before)
	}
	if err = errors.Join(err, b.Generations.removeOthers()); err != nil {
		return true, fmt.Errorf("removing the old store: %w", err)
	}
	return true, nil
}

// exchange gives a paused runner another store at the same positions, with the journals of its builder. A runner that the old
// store's damage stopped stands there anew, and can be run again.
func (r *Runner) exchange(store Store, builder *Runner) (old Store) {
	r.journals = builder.journals
	r.mu.Lock()
	defer r.mu.Unlock()
	old, r.live = r.live, store
	if r.err != nil && disk.IsDamage(r.err) && !r.running.Load() {
		r.checkers, r.lanes = builder.checkers, newLanes(r.cfg.Projection, r.partitions) // the old ones have seen what was given up
		r.left, r.pending = nil, pending{}
		clear(r.behind)
		r.Close()
		r.err, r.stopped = nil, make(chan struct{})
	}
	return old
}
