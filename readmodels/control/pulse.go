package control

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Pulse follows the heartbeats of the control stream's writer, and from them knows how old the control state of this process
// can be at most.
//
// No clock of another machine is believed. At an instant of its own clock the process asks the brokers where the pulses and
// the control log end. A pulse at that offset or behind it was appended after the instant, whatever time its writer put into
// it: so the log and the writer were alive. Once the control state is where the control log ended, and at the position that
// the pulse names, it holds everything that was acknowledged before the instant, and its age is at most the time since. It can
// be told too high, by the pause between two pulses, never too low.
type Pulse struct {
	source runner.Source
	store  *Store
	logger *slog.Logger
	now    func() time.Time
	fresh  atomic.Pointer[time.Time]
}

// Pauses of Pulse.
const (
	pulseAsk   = 2 * time.Second
	pulsePause = 200 * time.Millisecond
	pulsePoll  = 5 * time.Millisecond
)

// NewPulse makes a Pulse for a store that is fed; Run keeps it current. now is this process's clock.
func NewPulse(source runner.Source, store *Store, logger *slog.Logger, now func() time.Time) *Pulse {
	return &Pulse{source: source, store: store, logger: logger, now: now}
}

// Age returns how old the control state can be at most; the longest duration before the first pulse. It takes no lock.
//
// It is the larger of what the monotonic and the wall clock say: the first stands still while a machine sleeps, the second may
// be set back.
func (p *Pulse) Age() time.Duration {
	fresh := p.fresh.Load()
	if fresh == nil {
		return math.MaxInt64
	}
	now := p.now()
	return max(now.Sub(*fresh), now.Round(0).Sub(fresh.Round(0)), 0)
}

// Run follows the pulses until ctx is done.
func (p *Pulse) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.follow(ctx); err != nil && ctx.Err() == nil {
			p.logger.Debug("pulses cannot be followed", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pulsePause):
		}
	}
}

// mark is an instant of this process's clock, and where the topics ended after it.
type mark struct {
	at             time.Time
	pulse, control int64
}

// follow goes from pulse to pulse until something fails.
func (p *Pulse) follow(ctx context.Context) error {
	m, err := p.mark(ctx)
	if err != nil {
		return err
	}
	tail, err := p.source.NewTail(eventlog.Pulse, map[int32]int64{0: m.pulse})
	if err != nil {
		return fmt.Errorf("opening tail of pulses: %w", err)
	}
	defer tail.Close()
	for {
		pulse, offset, err := next(ctx, tail)
		if err != nil {
			return err
		}
		if offset < m.pulse {
			continue
		}
		if err := p.catchUp(ctx, pulse.GetControlSeq(), m.control); err != nil {
			return err
		}
		at := m.at
		p.fresh.Store(&at)
		if m, err = p.mark(ctx); err != nil {
			return err
		}
	}
}

// mark asks where the topics end.
func (p *Pulse) mark(ctx context.Context) (m mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, pulseAsk)
	defer cancel()
	m.at = p.now()
	for topic, end := range map[string]*int64{eventlog.Pulse: &m.pulse, eventlog.EventsControl: &m.control} {
		ends, err := p.source.Ends(ctx, topic)
		if err != nil {
			return m, fmt.Errorf("asking for the end of %s: %w", topic, err)
		}
		*end = ends[0]
	}
	return m, nil
}

// catchUp waits until the control state is at a position, and where the control log ended.
func (p *Pulse) catchUp(ctx context.Context, seq uint64, end int64) error {
	if err := p.store.WaitSeq(ctx, seq); err != nil {
		return fmt.Errorf("waiting for control position %d: %w", seq, err)
	}
	for {
		if at := p.store.Positions(); len(at) > 0 && at[0] >= end {
			return nil
		}
		if err := p.store.Err(); err != nil {
			return err
		}
		select {
		case <-time.After(pulsePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns the newest pulse that has come, with its offset.
func next(ctx context.Context, tail runner.Tail) (*pb.Pulse, int64, error) {
	for {
		batches, err := tail.Poll(ctx, 0)
		if err != nil {
			return nil, 0, fmt.Errorf("reading pulses: %w", err)
		}
		for i := len(batches) - 1; i >= 0; i-- {
			records := batches[i].Records
			for j := len(records) - 1; j >= 0; j-- {
				pulse := &pb.Pulse{}
				if pulse.UnmarshalVT(records[j].Value) == nil && pulse.GetSchemaVersion() > 0 && pulse.GetSchemaVersion() <= events.SchemaVersion {
					return pulse, records[j].Offset, nil
				}
			}
		}
	}
}
