package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// batch is what one poll gave, decoded and checked.
type batch struct {
	parts   []*part
	records int64
}

// part is a partition's share of a batch. The heads and the place are those after its last record.
type part struct {
	partition int32
	records   []eventlog.Record
	accepted  []Accepted
	voids     uint64
	read      bool // any record was
	place     place
	heads     []savedHead
	err       error // what came after the records that count
}

// read polls and checks the next batch, at most up to the limit (nil: none). It returns an empty batch when the limit is
// reached.
func (r *Runner) read(ctx context.Context, limit []int64) (*batch, error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if r.reached(limit) {
			return &batch{}, nil
		}
		polled := r.left
		r.left = nil
		if b := r.group(polled, limit); b.records > 0 {
			b.check(r.checkers)
			return b, nil
		}
		polled, err := r.poll(ctx)
		if err != nil {
			return nil, err
		}
		r.left = append(r.left, polled...)
	}
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

func (r *Runner) poll(ctx context.Context) ([]eventlog.Batch, error) {
	polled, err := r.tail.Poll(ctx, r.cfg.MaxRecords)
	var out *eventlog.OutOfRangeError
	switch {
	case err == nil:
		return polled, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &out):
		return nil, r.stop(&events.Alarm{Topic: r.cfg.Topic, Partition: out.Partition, Offset: out.Want, Bucket: events.NoBucket, Reason: err.Error()})
	}
	return nil, r.stop(fmt.Errorf("reading the log: %w", err))
}

// group sorts what was polled by partition, and lays aside what lies beyond the limit.
func (r *Runner) group(polled []eventlog.Batch, limit []int64) *batch {
	b := &batch{}
	for _, in := range polled {
		records := in.Records
		if limit != nil && int(in.Partition) < len(limit) {
			n := within(records, limit[in.Partition])
			if n < len(records) {
				r.left = append(r.left, eventlog.Batch{Topic: in.Topic, Partition: in.Partition, Records: records[n:]})
			}
			records = records[:n:n]
		}
		if len(records) > 0 {
			b.add(in.Partition, records)
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

func (b *batch) add(partition int32, records []eventlog.Record) {
	b.records += int64(len(records))
	for _, p := range b.parts {
		if p.partition == partition {
			p.records = append(p.records, records...)
			return
		}
	}
	b.parts = append(b.parts, &part{partition: partition, records: records})
}

// check decodes and checks every partition's records, the partitions side by side.
func (b *batch) check(checkers []*events.Checker) {
	if len(b.parts) == 1 {
		b.parts[0].check(checkers)
		return
	}
	var all sync.WaitGroup
	for _, p := range b.parts {
		all.Go(func() { p.check(checkers) })
	}
	all.Wait()
}

func (p *part) check(checkers []*events.Checker) {
	if int(p.partition) >= len(checkers) {
		p.err = fmt.Errorf("the log has a partition %d that it did not have", p.partition)
		return
	}
	c := checkers[p.partition]
	from := c.Next()
	p.accepted = make([]Accepted, 0, len(p.records))
	for i := range p.records {
		record := &p.records[i]
		e, accepted, err := c.Check(record.Offset, record.Key, record.Value)
		if err != nil {
			p.err = err
			break
		}
		if !accepted {
			p.voids++
			continue
		}
		p.accepted = append(p.accepted, Accepted{e, p.partition, record.Offset})
	}
	p.records = nil
	p.read, p.place = c.Next() > from, place{c.Next(), c.MaxLowWatermark()}
	heads, err := headsOf(c)
	p.heads, p.err = heads, errors.Join(p.err, err)
}
