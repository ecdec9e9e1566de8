package runner

import (
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
)

// pending is what was folded and not committed yet.
type pending struct {
	open      bool // the commit lock is held for it
	accepted  uint64
	voids     uint64
	lastStamp int64
}

// apply folds a batch. If the batch ends a commit, it commits all that was folded since the last with its positions, and
// tells those who wait. An error stops the runner.
func (r *Runner) apply(b *batch) error {
	if !r.pending.open {
		r.commit.Lock()
		r.pending = pending{open: true}
		r.write.reset(r.current())
		r.collected.Store(0)
	}
	if err := r.fold(b); err != nil {
		return r.abandon(err)
	}
	if !b.ends {
		return nil
	}
	if err := r.store(b); err != nil {
		return r.abandon(err)
	}
	r.publish(b)
	r.pending.open = false
	r.commit.Unlock()
	if b.err != nil {
		return r.stop(b.err)
	}
	return nil
}

// abandon gives up what was folded and stops the runner. The store stays where the last commit left it.
func (r *Runner) abandon(err error) error {
	r.pending.open = false
	r.commit.Unlock()
	return r.stop(err)
}

// fold applies a batch's accepted envelopes.
func (r *Runner) fold(b *batch) error {
	if err := r.Err(); err != nil {
		return err
	}
	for _, p := range b.parts {
		if err := r.foldPart(p); err != nil {
			return err
		}
		r.pending.accepted += p.count
		r.pending.voids += p.voids
		r.pending.lastStamp = max(r.pending.lastStamp, p.lastStamp)
	}
	r.collected.Store(int64(r.write.Size()))
	return nil
}

func (r *Runner) foldPart(p *part) error {
	for _, a := range p.accepted {
		if err := r.foldOne(a); err != nil {
			return err
		}
	}
	for _, l := range p.lent {
		e, err := r.decoder.DecodeAgain(l.value, l.hash)
		if err != nil {
			return fmt.Errorf("decoding what was checked: %w", err)
		}
		if err := r.foldOne(Accepted{e, p.partition, l.offset}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) foldOne(a Accepted) error {
	if a.GetBucket() >= events.Buckets {
		return nil // of a command whose record key was wrong: it concerns no link
	}
	if err := r.tryFold(a); err != nil {
		return &Poison{Projection: r.cfg.Projection.Name(), Topic: r.cfg.Topic, Partition: a.Partition, Offset: a.Offset,
			Bucket: a.GetBucket(), Seq: a.GetSeq(), Cause: err}
	}
	return nil
}

func (r *Runner) tryFold(a Accepted) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.cfg.Projection.Apply(r.write, a)
}

// store adds where the commit leaves the positions, and commits.
func (r *Runner) store(b *batch) error {
	for _, m := range b.moved {
		r.journals[m.partition].add(r.write, m.place, m.heads)
	}
	if len(r.write.ops) == 0 {
		return nil
	}
	r.write.seal()
	return r.write.store.Commit(r.write)
}

// publish makes a commit known: first to the projection, then to those who wait for positions.
func (r *Runner) publish(b *batch) {
	if r.lender != nil {
		r.lender.Written(r.write)
	} else {
		for _, p := range b.parts {
			if len(p.accepted) > 0 {
				r.cfg.Projection.Committed(p.accepted)
			}
		}
	}
	r.applied.Add(r.pending.accepted)
	r.voids.Add(r.pending.voids)
	r.advance(b)
	for _, m := range b.moved {
		for _, h := range m.heads {
			r.heads.publish(h.bucket, h.seq)
		}
	}
}

func (r *Runner) advance(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastApplied = time.Now()
	for _, m := range b.moved {
		r.positions[m.partition] = m.place.next
	}
	r.lastStamp = max(r.lastStamp, r.pending.lastStamp)
}

func (r *Runner) current() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}
