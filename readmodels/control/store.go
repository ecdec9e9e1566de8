package control

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
)

// Store is the control read model and the runner that feeds it.
type Store struct {
	*runner.Runner
	fold *fold
	kept *runner.Pebble // nil: in memory
}

// Open makes an empty store in memory. It is fed while Run runs.
func Open(source runner.Source, logger *slog.Logger) (*Store, error) {
	return open(source, logger, runner.NewMemory(), &fold{})
}

func open(source runner.Source, logger *slog.Logger, to runner.Store, f *fold) (*Store, error) {
	run, err := runner.New(runner.Config{Topic: eventlog.EventsControl, Stream: events.StreamControl, Source: source,
		Store: to, Projection: f, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &Store{Runner: run, fold: f}, nil
}

// Current returns the state as folded so far, nil before the first envelope, which is a state too. It takes no lock.
func (s *Store) Current() *commands.Control { return s.fold.current.Load() }

// Watch makes f hear of every accepted envelope, in order, once Current shows it. One f at a time; it must not block.
func (s *Store) Watch(f func(accepted []runner.Accepted)) { s.fold.watch.Store(&f) }

// Seq returns the control position of Current.
func (s *Store) Seq() uint64 { return s.Head(events.ControlBucket) }

// WaitSeq returns when Current is at this control position or a later one; see runner.WaitFor.
func (s *Store) WaitSeq(ctx context.Context, seq uint64) error {
	return s.WaitFor(ctx, events.Position{Stream: events.StreamControl, Bucket: events.ControlBucket, Seq: seq})
}

// fold keeps the state that the batch under way leads to apart from the one that is shown.
type fold struct {
	next    *commands.Control
	current atomic.Pointer[commands.Control]
	watch   atomic.Pointer[func([]runner.Accepted)]
	keep    bool // the envelopes, in the store
}

// Name implements runner.Projection.
func (*fold) Name() string { return "control/1" }

// Apply implements runner.Projection.
func (f *fold) Apply(w *runner.Write, a runner.Accepted) error {
	if f.keep {
		keepEnvelope(w, a)
	}
	f.next = commands.EvolveControl(f.next, a.Envelope.Envelope)
	return nil
}

// Committed implements runner.Projection.
func (f *fold) Committed(accepted []runner.Accepted) {
	f.current.Store(f.next)
	if watch := f.watch.Load(); watch != nil {
		(*watch)(accepted)
	}
}
