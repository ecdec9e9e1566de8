package clicks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Freshness says how new an answer is.
type Freshness struct {
	// AsOf: every click that the log held at this time is counted.
	AsOf time.Time
	// Age is now minus AsOf.
	Age time.Duration
}

// Ends asks for the end offset of every partition of the clicks topic.
type Ends func(ctx context.Context) ([]int64, error)

// Watermark remembers where the clicks topic ended at which time, so that the sink's position can be told as a time. Without
// it, an hour without clicks and then one would look like an hour of lag until that one is counted.
type Watermark struct {
	ends    Ends
	logger  *slog.Logger
	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at   time.Time
	ends []int64
}

const (
	sampleEvery = time.Second
	// maxSamples is the lag up to which the time is exact, in samples; beyond, the sink's own reports are used.
	maxSamples = 600
)

// NewWatermark makes a Watermark. It knows nothing before Run or the first question.
func NewWatermark(ends Ends, logger *slog.Logger) *Watermark {
	return &Watermark{ends: ends, logger: logger}
}

// Run looks at the log once a second until ctx is done.
func (w *Watermark) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if _, err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.logger.Debug("asking for the end of the clicks failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *Watermark) look(ctx context.Context) (sample, error) {
	s := sample{at: time.Now()} // before the answer: what it says was true then or later
	var err error
	if s.ends, err = w.ends(ctx); err != nil {
		return s, err
	}
	w.observe(s)
	return s, nil
}

func (w *Watermark) observe(s sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.samples); n > 0 && !s.at.After(w.samples[n-1].at) {
		return
	}
	if len(w.samples) == maxSamples {
		w.samples = append(w.samples[:0], w.samples[1:]...)
	}
	w.samples = append(w.samples, s)
}

// reached returns the newest time whose ends the positions have reached.
func (w *Watermark) reached(positions map[int32]progress) (at time.Time, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.samples) - 1; i >= 0; i-- {
		if w.samples[i].reached(positions) {
			return w.samples[i].at, true
		}
	}
	return time.Time{}, false
}

func (s sample) reached(positions map[int32]progress) bool {
	for p, end := range s.ends {
		if positions[int32(p)].next < end {
			return false
		}
	}
	return true
}

// oldest is the latest time that is surely covered by the sink's own reports: the last record it took from a partition
// that it has not reached the end of.
func (s sample) oldest(positions map[int32]progress) time.Time {
	at := s.at
	for p, end := range s.ends {
		if pos := positions[int32(p)]; pos.next < end && pos.asOf.Before(at) {
			at = pos.asOf
		}
	}
	return at
}

var errNoSink = errors.New("there are clicks, and no sink has taken any")

// Freshness says what an answer holds that is asked for after this call. When the log cannot be asked, AsOf is of the last
// time it could. ErrUnavailable when ClickHouse cannot be asked, or no sink has ever run.
func (s *Store) Freshness(ctx context.Context, w *Watermark) (Freshness, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	now, logErr := w.look(ctx) // before the positions: they can only have grown since
	positions, err := s.progressOf(ctx)
	if err != nil {
		return Freshness{}, err
	}
	at, known := w.reached(positions)
	if !known && logErr != nil {
		return Freshness{}, unavailable("asking for the end of the clicks", logErr)
	}
	if !known {
		at = now.oldest(positions)
	}
	if at.IsZero() {
		return Freshness{}, unavailable("asking how far the sink is", errNoSink)
	}
	return Freshness{AsOf: at, Age: max(0, time.Since(at))}, nil
}
