package clicks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// errExpired: the log no longer holds what would have to be inserted again.
var errExpired = errors.New("the log no longer holds these clicks")

// repair brings everything that a pass found wrong in order, partition by partition, as the partition's only writer.
//
// Raw rows are replaced by whole ranges of the sink's intents: what such a range comes to depends on nothing but the log.
func (r *reconciliation) repair(ctx context.Context, found *comparison) error {
	concerned := map[int32]struct{}{}
	for p := range found.bad {
		concerned[p] = struct{}{}
	}
	for p := range found.wrong {
		concerned[p] = struct{}{}
	}
	cfg := runner.ClickSinkConfig{Log: r.log, Store: r.store, Logger: r.store.logger}
	for _, p := range slices.Sorted(maps.Keys(concerned)) {
		err := runner.HoldClicks(ctx, cfg, p, func(ctx context.Context, hold *runner.ClickHold) error {
			return r.repairPartition(ctx, hold, p, found)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciliation) repairPartition(ctx context.Context, hold *runner.ClickHold, partition int32, found *comparison) error {
	if err := r.replace(ctx, hold, partition, found.bad[partition]); err != nil {
		return err
	}
	wrong := found.wrong[partition]
	if wrong == nil {
		return nil
	}
	for i, day := range slices.Sorted(maps.Keys(wrong.days)) {
		r.progress("counting aggregates again", int64(i), int64(len(wrong.days)))
		part := scope{partition, wrong.links, map[int64]struct{}{day: {}}}
		if err := hold.Do(ctx, func(ctx context.Context) error { return r.store.rebuild(ctx, part) }); err != nil {
			return err
		}
	}
	return nil
}

// replace walks the intents and replaces the ranges that hold something bad.
func (r *reconciliation) replace(ctx context.Context, hold *runner.ClickHold, partition int32, bad []logRange) error {
	if len(bad) == 0 {
		return nil
	}
	starts, err := r.log.Starts(ctx, eventlog.Clicks)
	if err != nil {
		return fmt.Errorf("asking for the start of the clicks: %w", err)
	}
	wanted := func(i *pb.SinkIntent) bool {
		switch {
		case !touches(bad, i):
			return false
		case i.GetFrom() < starts[partition]:
			r.store.logger.Error("clicks cannot be repaired", "partition", partition, "from", i.GetFrom(), "to", i.GetTo(), "error", errExpired)
			return false
		}
		return true
	}
	var done int64
	return runner.WalkRanges(ctx, r.log, partition, wanted, func(joined *pb.SinkIntent, before *projections.Clicks) error {
		done++
		r.progress("replacing ranges", done, 0)
		return r.replaceRange(ctx, hold, joined, before)
	})
}

func touches(bad []logRange, intent *pb.SinkIntent) bool {
	return slices.ContainsFunc(bad, func(b logRange) bool { return b.from < intent.GetTo() && intent.GetFrom() < b.to })
}

func (r *reconciliation) replaceRange(ctx context.Context, hold *runner.ClickHold, intent *pb.SinkIntent, before *projections.Clicks) error {
	batch, err := runner.RereadClicks(ctx, r.log, intent, before)
	if err != nil {
		return err
	}
	return hold.Do(ctx, func(ctx context.Context) error { return r.store.Replace(ctx, batch) })
}
