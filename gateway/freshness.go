package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// LogEnds says where a topic ends now, per partition.
type LogEnds interface {
	Ends(ctx context.Context, topic string) ([]int64, error)
}

// Follower is a projection runner as its freshness is judged: the next offset to fold per partition, and why it stopped for
// good, if it did.
type Follower interface {
	Positions() []int64
	Err() error
}

const (
	freshnessEvery = 250 * time.Millisecond
	freshnessPoll  = 5 * time.Millisecond
	// maxStale is how far behind the log the API may be and still send commands: a command that it cannot see answered
	// is not worth sending.
	maxStale = 5 * time.Second
)

// Freshness knows up to which instant the followers of a topic hold everything that the log acknowledged. It is the API's
// answer to "how old is this?" and "can I see answers?".
type Freshness struct {
	// Every is how often the log is asked; default 250 ms. It is set before Run.
	Every time.Duration

	log       LogEnds
	topic     string
	followers []Follower
	logger    *slog.Logger
	asOf      atomic.Int64 // microseconds since 1970; 0: not known yet
	asked     atomic.Int64 // likewise: of the last question that was answered
}

// NewFreshness makes a Freshness of all the followers together; Run keeps it current.
func NewFreshness(log LogEnds, topic string, logger *slog.Logger, followers ...Follower) *Freshness {
	return &Freshness{Every: freshnessEvery, log: log, topic: topic, followers: followers, logger: logger}
}

// Run measures until ctx is done.
func (f *Freshness) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.measure(ctx); err != nil && ctx.Err() == nil {
			f.logger.Debug("freshness not measured", "topic", f.topic, "error", err)
		}
		sleepFor(ctx, f.Every)
	}
}

// measure asks for the log's end, and when all followers are there, moves the instant to that of the question.
func (f *Freshness) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxStale)
	defer cancel()
	asked := time.Now()
	ends, err := f.log.Ends(ctx, f.topic)
	if err != nil {
		return fmt.Errorf("asking for the end of the log: %w", err)
	}
	f.asked.Store(asked.UnixMicro())
	for !f.reached(ends) {
		if err := f.stopped(); err != nil {
			return err
		}
		if !sleepFor(ctx, freshnessPoll) {
			return ctx.Err()
		}
	}
	f.asOf.Store(asked.UnixMicro())
	return nil
}

func (f *Freshness) reached(ends []int64) bool {
	for _, follower := range f.followers {
		positions := follower.Positions()
		if len(positions) != len(ends) {
			return false
		}
		for i, end := range ends {
			if positions[i] < end {
				return false
			}
		}
	}
	return true
}

func (f *Freshness) stopped() error {
	for _, follower := range f.followers {
		if err := follower.Err(); err != nil {
			return err
		}
	}
	return nil
}

// AsOf returns the instant, in UTC; everything acknowledged before it can be read. The zero time: not known yet.
func (f *Freshness) AsOf() time.Time { return freshnessInstant(f.asOf.Load()) }

// Asked returns when the log was last asked and answered. The zero time: never yet.
func (f *Freshness) Asked() time.Time { return freshnessInstant(f.asked.Load()) }

func freshnessInstant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Ready returns why answers to new commands cannot be expected: a follower stopped, or is behind. Nil: all is well.
func (f *Freshness) Ready() error {
	if err := f.stopped(); err != nil {
		return err
	}
	asOf := f.AsOf()
	if asOf.IsZero() {
		return fmt.Errorf("this server is still reading %s for the first time", f.topic)
	}
	if behind := time.Since(asOf); behind > maxStale {
		return fmt.Errorf("this server has not seen the end of %s for %s", f.topic, behind.Round(time.Second))
	}
	return nil
}

// sleepFor reports whether the time passed before ctx was done.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
