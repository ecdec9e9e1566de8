package runner

import (
	"errors"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events"
)

// pending is what was folded and not committed yet.
type pending struct {
	open      bool // the commit lock is held for it
	began     time.Time
	dirty     map[int32]bool // partitions
	accepted  uint64
	voids     uint64
	lastStamp int64
	oldest    int64 // stamped time of the oldest accepted envelope, 0: none
	alarm     error // the first; what came before it counts
}

func (p *pending) count(part *part) {
	p.dirty[part.partition] = true
	p.accepted += part.count
	p.voids += part.voids
	p.lastStamp = max(p.lastStamp, part.lastStamp)
	if p.oldest == 0 || (part.firstStamp != 0 && part.firstStamp < p.oldest) {
		p.oldest = part.firstStamp
	}
	if p.alarm == nil {
		p.alarm = part.alarm
	}
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

// apply folds a batch. If it ends a commit, all that was folded since the last is committed with its positions, and those who
// wait are told. An error stops the runner.
func (r *Runner) apply(b *batch) error {
	if !r.pending.open {
		r.begin()
	}
	if b.records > 0 {
		if err := r.fold(b); err != nil {
			return r.abandon(err)
		}
	}
	far := !b.ends && r.isFar(b)
	r.noteFar(far)
	if far && r.waits() {
		return nil
	}
	moved, err := r.moved()
	if err == nil {
		err = r.store(moved)
	}
	if err != nil {
		return r.abandon(err)
	}
	r.publish(b, moved)
	alarm := r.pending.alarm
	r.pending.open = false
	r.commit.Unlock()
	if alarm != nil {
		return r.stop(alarm)
	}
	return nil
}

func (r *Runner) begin() {
	r.commit.Lock()
	r.pending = pending{open: true, began: time.Now(), dirty: map[int32]bool{}}
	live := r.current()
	for _, l := range r.lanes {
		l.write.reset(live)
	}
}

// abandon gives up what was folded and stops the runner. The store stays where the last commit left it.
func (r *Runner) abandon(err error) error {
	r.pending.open = false
	r.commit.Unlock()
	return r.stop(err)
}

// isFar notes how much of the log comes after a batch, and reports whether it is much.
func (r *Runner) isFar(b *batch) bool {
	for _, p := range b.parts {
		if int(p.partition) < len(r.behind) {
			r.behind[p.partition] = p.behind
		}
	}
	return sum(r.behind) > int64(spanBehind*r.cfg.MaxRecords)
}

// waits reports whether a commit far behind the log waits for the next batch: that of a Lender does, for the larger a commit,
// the less the store has to do for each record.
func (r *Runner) waits() bool {
	if r.lender == nil || r.pending.alarm != nil || time.Since(r.pending.began) >= spanTime {
		return false
	}
	size := 0
	for _, l := range r.lanes {
		size += l.write.Size()
	}
	return size < spanBytes
}

// moved is where a commit leaves a partition: its place, and the heads that changed since the last commit.
type moved struct {
	partition int32
	place     events.Place
	heads     []events.SavedHead
}

func (r *Runner) moved() (out []moved, err error) {
	for partition := range r.pending.dirty {
		if int(partition) >= len(r.checkers) {
			continue // it is an alarm
		}
		c := r.checkers[partition]
		heads, failed := c.Moved()
		out, err = append(out, moved{partition, c.Place(), heads}), errors.Join(err, failed)
	}
	return out, err
}

// store adds where the commit leaves the positions, and commits.
func (r *Runner) store(to []moved) error {
	for _, m := range to {
		r.journals[m.partition].add(r.of(m.partition).write, m.place, m.heads)
	}
	var writes []*Write
	var all sync.WaitGroup
	for _, l := range r.lanes {
		if l.write.Len() > 0 {
			writes = append(writes, l.write)
			all.Go(l.write.seal)
		}
	}
	all.Wait()
	if len(writes) == 0 {
		return nil
	}
	return r.current().Commit(writes)
}

// publish makes a commit known: first to the projection, then to those who wait for positions.
func (r *Runner) publish(b *batch, to []moved) {
	if r.lender != nil {
		for _, l := range r.lanes {
			if l.write.Len() > 0 {
				r.lender.Written(l.write)
			}
		}
	} else {
		for _, p := range b.parts {
			if len(p.accepted) > 0 {
				r.cfg.Projection.Committed(p.accepted)
			}
		}
	}
	r.applied.Add(r.pending.accepted)
	r.voids.Add(r.pending.voids)
	r.advance(to)
	for _, m := range to {
		for _, h := range m.heads {
			r.heads.publish(h.Bucket, h.Seq)
		}
	}
	if r.cfg.Observe != nil && r.pending.oldest != 0 {
		r.cfg.Observe(r.pending.oldest)
	}
}

func (r *Runner) advance(to []moved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastApplied = time.Now()
	for _, m := range to {
		r.positions[m.partition] = m.place.Next
	}
	r.lastStamp = max(r.lastStamp, r.pending.lastStamp)
}

func (r *Runner) current() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}
