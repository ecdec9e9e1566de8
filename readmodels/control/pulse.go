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
// No clock of another machine is believed. At an instant of its own clock the process asks the broker for the topic's end. A
// pulse at that offset or behind it was appended after the instant, whatever time its writer put into it; once the control
// state is at the position that the pulse names, it holds everything that was acknowledged before the pulse was sent. So at
// the instant the state was as good as fresh, and its age is at most the time since: it can be told too high, by the pause
// between two pulses, never too low.
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

// follow goes from pulse to pulse until something fails.
func (p *Pulse) follow(ctx context.Context) error {
	asked, end, err := p.ask(ctx)
	if err != nil {
		return err
	}
	tail, err := p.source.NewTail(eventlog.Pulse, map[int32]int64{0: end})
	if err != nil {
		return fmt.Errorf("opening tail of pulses: %w", err)
	}
	defer tail.Close()
	for {
		pulse, offset, err := next(ctx, tail)
		if err != nil {
			return err
		}
		if offset < end {
			continue
		}
		if err := p.store.WaitSeq(ctx, pulse.GetControlSeq()); err != nil {
			return fmt.Errorf("waiting for control position %d: %w", pulse.GetControlSeq(), err)
		}
		p.fresh.Store(&asked)
		if asked, end, err = p.ask(ctx); err != nil {
			return err
		}
	}
}

// ask returns where the topic ends, and an instant before that was asked.
func (p *Pulse) ask(ctx context.Context) (asked time.Time, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pulseAsk)
	defer cancel()
	asked = p.now()
	ends, err := p.source.Ends(ctx, eventlog.Pulse)
	if err != nil {
		return asked, 0, fmt.Errorf("asking for the end of the pulses: %w", err)
	}
	return asked, ends[0], nil
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
