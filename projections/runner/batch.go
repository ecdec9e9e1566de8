package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// batch is what one poll gave, sorted by partition.
type batch struct {
	parts   []*part
	records int64
	ends    bool // it ends a commit, whatever else
}

// part is a partition's share of a batch, and what was found in it.
type part struct {
	partition int32
	records   []eventlog.Record
	behind    int64      // about how many come after them
	accepted  []Accepted // not of a Lender
	count     uint64     // accepted
	voids     uint64
	lastStamp int64 // stamped time of the newest accepted envelope
	// firstStamp is the stamped time of the oldest one, 0: none.
	firstStamp int64
	alarm      error // what came before it counts
	poison     error // nothing of the commit counts
}

// read polls the next batch, at most up to the limit (nil: none). It returns an empty batch when the limit is reached.
func (r *Runner) read(ctx context.Context, limit []int64) (*batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return r.endOr(err)
		}
		if r.reached(limit) {
			return &batch{ends: r.pending.open}, nil
		}
		polled := r.left
		r.left = nil
		if b := r.group(polled, limit); b.records > 0 {
			return b, nil
		}
		polled, err := r.poll(ctx)
		if err != nil {
			return r.endOr(err)
		}
		if len(polled) == 0 {
			return &batch{ends: true}, nil
		}
		r.left = append(r.left, polled...)
	}
}

// endOr ends the commit under way, if there is one; the next read meets the same error.
func (r *Runner) endOr(err error) (*batch, error) {
	if r.pending.open {
		return &batch{ends: true}, nil
	}
	return nil, err
}

func (r *Runner) reached(limit []int64) bool {
	if limit == nil {
		return false
	}
	for i, c := range r.checkers {
		if i < len(limit) && c.Next() < limit[i] {
			return false
		}
	}
	return true
}

// poll waits for records. While a commit is under way it does not wait for long, and may return nothing.
func (r *Runner) poll(ctx context.Context) ([]eventlog.Batch, error) {
	var idle <-chan time.Time
	if r.pending.open {
		timer := time.NewTimer(spanIdle)
		defer timer.Stop()
		idle = timer.C
	}
	var p polled
	select {
	case p = <-r.feed.polled:
	case <-idle:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var out *eventlog.OutOfRangeError
	switch {
	case p.err == nil:
		return p.batches, nil
	case errors.As(p.err, &out):
		return nil, r.stop(&events.Alarm{Topic: r.cfg.Topic, Partition: out.Partition, Offset: out.Want, Bucket: events.NoBucket, Reason: p.err.Error()})
	}
	return nil, r.stop(fmt.Errorf("reading the log: %w", p.err))
}

// group sorts what was polled by partition, and lays aside what lies beyond the limit.
func (r *Runner) group(polled []eventlog.Batch, limit []int64) *batch {
	b := &batch{}
	for _, in := range polled {
		records := in.Records
		if limit != nil && int(in.Partition) < len(limit) {
			n := within(records, limit[in.Partition])
			if n < len(records) {
				r.left = append(r.left, eventlog.Batch{Topic: in.Topic, Partition: in.Partition, Records: records[n:], Behind: in.Behind})
			}
			records = records[:n:n]
		}
		if len(records) > 0 {
			b.add(in.Partition, records, in.Behind)
		}
	}
	return b
}

func within(records []eventlog.Record, end int64) int {
	for i := range records {
		if records[i].Offset >= end {
			return i
		}
	}
	return len(records)
}

func (b *batch) add(partition int32, records []eventlog.Record, behind int64) {
	b.records += int64(len(records))
	for _, p := range b.parts {
		if p.partition == partition {
			p.records, p.behind = append(p.records, records...), behind
			return
		}
	}
	b.parts = append(b.parts, &part{partition: partition, records: records, behind: behind})
}
