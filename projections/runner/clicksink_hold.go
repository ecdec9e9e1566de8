package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	// holdFor is how long a hold lasts if its writer dies.
	holdFor = 3 * time.Minute
	// holdMargin is what is left of a hold when it is prolonged: more than one statement may take.
	holdMargin = 2 * time.Minute
	// maxHoldPoll is how often a sink looks whether a hold has ended before its time.
	maxHoldPoll = 200 * time.Millisecond
	holdTries   = 20
)

// ClickHold is the right to change what the store holds of one partition, while its sink waits. It ends by itself; Prolong
// before each step.
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

// win tries until its intent is the one that the topic takes next.
func (h *ClickHold) win(ctx context.Context) (err error) {
	for range holdTries {
		if err = h.p.load(ctx); err != nil {
			return err
		}
		if err = h.p.awaitRelease(ctx); err != nil {
			return err
		}
		if h.p.appender, err = h.p.cfg.Log.NewAppender(eventlog.Sink); err != nil {
			return fmt.Errorf("opening appender of %s: %w", eventlog.Sink, err)
		}
		if err = h.hold(ctx, time.Now().Add(holdFor)); err == nil {
			return nil
		}
		h.p.appender.Close()
	}
	return err
}

// Prolong makes sure that the hold lasts for longer than one statement may take. An error says that it is lost.
func (h *ClickHold) Prolong(ctx context.Context) error {
	if time.Until(h.until) > holdMargin {
		return nil
	}
	if time.Until(h.until) <= 0 {
		return fmt.Errorf("%w: the hold has lapsed", errNotOurs)
	}
	return h.hold(ctx, time.Now().Add(holdFor))
}

func (h *ClickHold) release(ctx context.Context) error {
	return h.hold(ctx, time.Now())
}

func (h *ClickHold) hold(ctx context.Context, until time.Time) error {
	next := h.p.intents.Next()
	err := h.p.append(ctx, &pb.SinkIntent{SchemaVersion: projections.ClickSchemaVersion, Partition: uint32(h.p.number),
		From: next, To: next, TimeUs: until.UnixMicro()})
	if err == nil {
		h.until = until
	}
	return err
}
