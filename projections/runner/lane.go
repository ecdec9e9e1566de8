package runner

import (
	"fmt"
	"sync"

	"github.com/hoplog/hoplog/events"
)

// lane folds into a Write of its own. A Lender has one for each partition, and they work side by side; all others have one.
type lane struct {
	write      *Write
	projection Projection
}

// newLanes makes the lanes of a topic with this many partitions.
func newLanes(p Projection, partitions int) []*lane {
	lender, ok := p.(Lender)
	if !ok {
		return []*lane{{newWrite(), p}}
	}
	lanes := make([]*lane, partitions)
	for i := range lanes {
		lanes[i] = &lane{newWrite(), lender.Fork()}
	}
	return lanes
}

// of returns the lane that folds a partition.
func (r *Runner) of(partition int32) *lane {
	if r.lender == nil {
		return r.lanes[0]
	}
	return r.lanes[partition]
}

// fold checks a batch and applies what is accepted. What stops a partition for good, an alarm, is noted in its part; poison
// is returned.
func (r *Runner) fold(b *batch) error {
	if err := r.Err(); err != nil {
		return err
	}
	b.each(func(p *part) {
		if int(p.partition) >= len(r.checkers) {
			p.alarm = fmt.Errorf("the log has a partition %d that it did not have", p.partition)
			return
		}
		if r.lender == nil {
			p.keep(r.checkers[p.partition])
		} else {
			r.foldLent(p)
		}
	})
	for _, p := range b.parts {
		if r.lender == nil {
			r.foldKept(p)
		}
		if p.poison != nil {
			return p.poison
		}
		r.pending.count(p)
	}
	return nil
}

// each calls f for every part, the parts side by side.
func (b *batch) each(f func(p *part)) {
	var all sync.WaitGroup
	for _, p := range b.parts[1:] {
		all.Go(func() { f(p) })
	}
	f(b.parts[0])
	all.Wait()
}

// keep checks a part and keeps the accepted envelopes.
func (p *part) keep(c *events.Checker) {
	p.accepted = make([]Accepted, 0, len(p.records))
	for i := range p.records {
		record := &p.records[i]
		e, accepted, err := c.Check(record.Offset, record.Key, record.Value)
		if err != nil {
			p.alarm = err
			return
		}
		if p.note(e, accepted) {
			p.accepted = append(p.accepted, Accepted{e, record.Value, p.partition, record.Offset})
		}
	}
}

func (r *Runner) foldKept(p *part) {
	for _, a := range p.accepted {
		if p.poison = r.foldOne(a); p.poison != nil {
			return
		}
	}
}

// foldLent folds each accepted envelope of a part before it looks at the next.
func (r *Runner) foldLent(p *part) {
	c := r.checkers[p.partition]
	for i := range p.records {
		record := &p.records[i]
		e, accepted, err := c.CheckLent(record.Offset, record.Key, record.Value)
		if err != nil {
			p.alarm = err
			return
		}
		if !p.note(e, accepted) {
			r.of(p.partition).foldVoid(p.partition, record.Offset)
			continue
		}
		if p.poison = r.foldOne(Accepted{e, record.Value, p.partition, record.Offset}); p.poison != nil {
			return
		}
	}
}

func (p *part) note(e *events.Envelope, accepted bool) bool {
	if !accepted {
		p.voids++
		return false
	}
	p.count++
	p.lastStamp = e.GetStamp().GetTimeUs()
	if p.firstStamp == 0 || p.lastStamp < p.firstStamp {
		p.firstStamp = p.lastStamp
	}
	return true
}

func (r *Runner) foldOne(a Accepted) error {
	if a.GetBucket() >= events.Buckets {
		return nil // of a command whose record key was wrong: it concerns no link
	}
	if err := r.of(a.Partition).tryFold(a); err != nil {
		return &Poison{Projection: r.cfg.Projection.Name(), Topic: r.cfg.Topic, Partition: a.Partition, Offset: a.Offset,
			Bucket: a.GetBucket(), Seq: a.GetSeq(), Cause: err}
	}
	return nil
}

func (l *lane) foldVoid(partition int32, offset int64) {
	if folder, ok := l.projection.(VoidFolder); ok {
		folder.ApplyVoid(l.write, partition, offset)
	}
}

func (l *lane) tryFold(a Accepted) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.projection.Apply(l.write, a)
}
