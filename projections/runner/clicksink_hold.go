package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

const (
	// holdFor is how long a hold lasts if its writer dies.
	holdFor = 5 * time.Minute
	// holdMargin is how much of a hold may be gone when a step begins.
	holdMargin = time.Minute
	// maxHoldPoll is how often a sink looks whether a hold has ended before its time.
	maxHoldPoll = 200 * time.Millisecond
	holdTries   = 20
)

// ClickHold is the right to change what the store holds of one partition, while its sink waits. It ends by itself.
type ClickHold struct {
	p     *clickPartition
	until time.Time
}

// HoldClicks makes the caller the writer of a partition, as a sink would be, settles the range that may be open, and calls
// do. The sink notices when it wants to begin its next range, and waits until do has returned or the hold has lapsed.
func HoldClicks(ctx context.Context, cfg ClickSinkConfig, partition int32, do func(ctx context.Context, hold *ClickHold) error) error {
	p := newClickPartition(cfg, partition)
	defer p.forget()
	hold := &ClickHold{p: p}
	if err := hold.win(ctx); err != nil {
		return fmt.Errorf("holding partition %d of the clicks: %w", partition, err)
	}
	if err := p.settleOpen(ctx); err != nil {
		return fmt.Errorf("holding partition %d of the clicks: %w", partition, err)
	}
	err := do(ctx, hold)
	return errors.Join(err, hold.release(ctx))
}

// win tries until its hold is the record that the topic takes next.
func (h *ClickHold) win(ctx context.Context) (err error) {
	for range holdTries {
		if err = h.p.load(ctx); err != nil {
			return err
		}
		if err = h.p.awaitRelease(ctx); err != nil {
			return err
		}
		if err = h.try(ctx, time.Now().Add(holdFor)); err == nil {
			return nil
		}
	}
	return err
}

// Do runs one step that changes the store, prolonging the hold before if need be. The step's context ends before the hold
// does. An error of ours says that the hold is lost, and that nothing was run.
func (h *ClickHold) Do(ctx context.Context, step func(ctx context.Context) error) error {
	if left := time.Until(h.until); left < holdFor-holdMargin {
		if left <= 0 {
			return fmt.Errorf("%w: the hold has lapsed", errNotOurs)
		}
		if err := h.change(ctx, time.Now().Add(holdFor)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithDeadline(ctx, h.until.Add(-insertTimeout))
	defer cancel()
	return step(ctx)
}

func (h *ClickHold) release(ctx context.Context) error { return h.change(ctx, time.Now()) }

// change gives the hold another end. A sink that did not know of the hold may have written an intent meanwhile; it is void,
// and the hold is still ours.
func (h *ClickHold) change(ctx context.Context, until time.Time) (err error) {
	next := h.p.intents.Next()
	for range holdTries {
		if err = h.try(ctx, until); err == nil {
			return nil
		}
		if err := h.p.load(ctx); err != nil {
			return err
		}
		switch held := h.p.intents.HeldUntil().UnixMicro(); {
		case h.p.intents.Next() == next && held == until.UnixMicro():
			h.until = until // only the answer was lost
			return nil
		case h.p.intents.Next() != next || held != h.until.UnixMicro():
			return fmt.Errorf("%w: the hold was lost", errNotOurs)
		}
	}
	return err
}

// try appends a hold that counts only if it lies where we believe the topic to end.
func (h *ClickHold) try(ctx context.Context, until time.Time) (err error) {
	if h.p.appender != nil {
		h.p.appender.Close()
	}
	if h.p.appender, err = h.p.cfg.Log.NewAppender(eventlog.Sink); err != nil {
		return fmt.Errorf("opening appender of %s: %w", eventlog.Sink, err)
	}
	if err = h.p.append(ctx, h.p.intents.Hold(h.p.end, until)); err == nil {
		h.until = until
	}
	return err
}
