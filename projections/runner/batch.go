package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// batch is what one poll gave, decoded and checked.
type batch struct {
	parts   []*part
	records int64
	ends    bool    // a commit: of this batch and of those before it that did not end one
	moved   []moved // if it ends a commit: what the commit moves
	err     error   // what came after the records that count; it ends a commit
}

// part is a partition's share of a batch. What is accepted is lent to a Lender, and kept for all others.
type part struct {
	partition int32
	records   []eventlog.Record
	behind    int64 // about how many come after them
	accepted  []Accepted
	lent      []lent
	count     uint64 // accepted
	voids     uint64
	lastStamp int64 // stamped time of the newest accepted envelope
	err       error
}

// lent is an envelope that was checked, to be decoded again when it is folded: decoding is cheaper than memory.
type lent struct {
	offset int64
	hash   events.Hash
	value  []byte
}

// moved is where a commit leaves a partition: its place, and the heads that changed since the last commit.
type moved struct {
	partition int32
	place     place
	heads     []savedHead
}

// span is what was read since the last batch that ends a commit.
type span struct {
	began time.Time
	dirty map[int32]bool // partitions
}

const (
	// spanBytes is how large the changes of one commit grow; it takes twice the memory.
	spanBytes = 64 << 20
	// spanBehind is how far behind the log, in batches, a commit waits for the next batch.
	spanBehind = 4
	// spanIdle is how long it waits, and spanTime how long in all.
	spanIdle = time.Second
	spanTime = 15 * time.Second
)

// read polls and checks the next batch, at most up to the limit (nil: none). It returns an empty batch when the limit is
// reached.
func (r *Runner) read(ctx context.Context, limit []int64) (*batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return r.endOr(err)
		}
		if r.reached(limit) {
			return &batch{}, nil
		}
		polled := r.left
		r.left = nil
		if b := r.group(polled, limit); b.records > 0 {
			b.check(r.checkers, r.lender != nil)
			r.close(b, limit)
			return b, nil
		}
		polled, err := r.poll(ctx)
		if err != nil {
			return r.endOr(err)
		}
		if len(polled) == 0 {
			return r.end(&batch{}), nil
		}
		r.left = append(r.left, polled...)
	}
}

// endOr ends the commit under way, if there is one; the next read meets the same error.
func (r *Runner) endOr(err error) (*batch, error) {
	if len(r.span.dirty) > 0 {
		return r.end(&batch{}), nil
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
	try, cancel := ctx, func() {}
	if len(r.span.dirty) > 0 {
		try, cancel = context.WithTimeout(ctx, spanIdle)
	}
	defer cancel()
	polled, err := r.tail.Poll(try, r.cfg.MaxRecords)
	var out *eventlog.OutOfRangeError
	switch {
	case err == nil:
		return polled, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case try.Err() != nil && errors.Is(err, try.Err()):
		return nil, nil
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

// check decodes and checks every partition's records, the partitions side by side.
func (b *batch) check(checkers []*events.Checker, lend bool) {
	var all sync.WaitGroup
	for _, p := range b.parts[1:] {
		all.Go(func() { p.check(checkers, lend) })
	}
	b.parts[0].check(checkers, lend)
	all.Wait()
	for _, p := range b.parts {
		if b.err == nil {
			b.err = p.err
		}
	}
}

func (p *part) check(checkers []*events.Checker, lend bool) {
	if int(p.partition) >= len(checkers) {
		p.err = fmt.Errorf("the log has a partition %d that it did not have", p.partition)
		return
	}
	c := checkers[p.partition]
	if lend {
		p.lent = make([]lent, 0, len(p.records))
		p.err = p.checkLent(c)
	} else {
		p.accepted = make([]Accepted, 0, len(p.records))
		p.err = p.checkKept(c)
	}
}

func (p *part) checkKept(c *events.Checker) error {
	for i := range p.records {
		record := &p.records[i]
		e, accepted, err := c.Check(record.Offset, record.Key, record.Value)
		if err != nil {
			return err
		}
		if p.note(e, accepted) {
			p.accepted = append(p.accepted, Accepted{e, p.partition, record.Offset})
		}
	}
	return nil
}

func (p *part) checkLent(c *events.Checker) error {
	for i := range p.records {
		record := &p.records[i]
		e, accepted, err := c.CheckLent(record.Offset, record.Key, record.Value)
		if err != nil {
			return err
		}
		if p.note(e, accepted) {
			p.lent = append(p.lent, lent{record.Offset, e.Hash, record.Value})
		}
	}
	return nil
}

func (p *part) note(e *events.Envelope, accepted bool) bool {
	if !accepted {
		p.voids++
		return false
	}
	p.count++
	p.lastStamp = e.GetStamp().GetTimeUs()
	return true
}

// close decides whether a batch ends a commit. All end one, but those of a Lender that is far behind the log: for it, the
// larger a commit, the less the store has to do for each record.
func (r *Runner) close(b *batch, limit []int64) {
	var behind int64
	for _, p := range b.parts {
		behind += p.behind
		r.span.add(p)
	}
	far := behind > int64(spanBehind*r.cfg.MaxRecords) && r.collected.Load() < spanBytes && time.Since(r.span.began) < spanTime
	if r.lender == nil || !far || b.err != nil || r.reached(limit) {
		r.end(b)
	}
}

func (s *span) add(p *part) {
	if len(s.dirty) == 0 {
		s.began, s.dirty = time.Now(), map[int32]bool{}
	}
	s.dirty[p.partition] = true
	p.records = nil
}

// end makes a batch the last of its commit.
func (r *Runner) end(b *batch) *batch {
	b.ends = true
	for partition := range r.span.dirty {
		if int(partition) >= len(r.checkers) {
			continue
		}
		c := r.checkers[partition]
		heads, err := headsOf(c)
		b.moved, b.err = append(b.moved, moved{partition, place{c.Next(), c.MaxLowWatermark()}, heads}), errors.Join(b.err, err)
	}
	r.span = span{}
	return b
}
