package handler

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events"
)

// Pauses between tries while the log cannot be reached.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Modes of a partition's worker, as Status shows them.
const (
	ModeStandby = "standby"
	ModeWriting = "writing"
	ModeStopped = "stopped"
)

// worker follows one partition and writes it whenever it is assigned.
type worker struct {
	*partition
	assignment
	open   func(topic string) (appender, error)
	logger *slog.Logger
	// lives is told when a writer's life begins and ends; nil if nobody cares.
	lives func(begins bool)
	mode  atomic.Pointer[string]
	fault atomic.Pointer[error]
}

// storeError is a failure of the confirmed state itself: memory and disk may differ, and a new try would fail again, so the
// partition stops.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// final reports whether an error stops a partition for good.
func final(err error) bool {
	var alarm *events.Alarm
	var broken storeError
	return errors.As(err, &alarm) || errors.As(err, &broken)
}

// run works until ctx is done. An alarm stops the partition, and run returns it.
func (w *worker) run(ctx context.Context) error {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := w.once(ctx)
		if err == nil || ctx.Err() != nil {
			pause = firstPause
			continue
		}
		w.fault.Store(&err)
		if final(err) {
			w.setMode(ModeStopped)
			w.logger.Error("partition stopped", "stream", w.stream, "partition", w.number, "error", err)
			return err
		}
		w.logger.Warn("partition begins again", "stream", w.stream, "partition", w.number, "error", err)
		if errors.Is(err, errUnconfirmed) || time.Since(began) > lastPause {
			pause = firstPause
		}
		wait(ctx, pause)
		pause = min(2*pause, lastPause)
	}
	return nil
}

func (w *worker) once(ctx context.Context) error {
	turn, ours, over := w.turn(ctx)
	defer over()
	var err error
	if ours {
		w.setMode(ModeWriting)
		w.tell(true)
		err = w.live(turn, w.open)
		w.tell(false)
	} else {
		w.setMode(ModeStandby)
		err = w.follow(turn, toEnd)
	}
	if turn.Err() != nil && !final(err) {
		return nil
	}
	return err
}

func (w *worker) tell(begins bool) {
	if w.lives != nil {
		w.lives(begins)
	}
}

func (w *worker) setMode(mode string) { w.mode.Store(&mode) }

// keepFollowing folds a partition until ctx is done (nil) or an alarm stops it.
func keepFollowing(ctx context.Context, p *partition, logger *slog.Logger) error {
	w := &worker{partition: p, logger: logger}
	return w.run(ctx)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
