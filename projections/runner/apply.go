package runner

import (
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
)

// apply folds a batch, commits it with its positions, and tells those who wait. An error stops the runner.
func (r *Runner) apply(b *batch) error {
	r.commit.Lock()
	defer r.commit.Unlock()
	if err := r.Err(); err != nil {
		return err
	}
	store := r.current()
	r.write.reset(store)
	for _, p := range b.parts {
		if err := r.fold(p); err != nil {
			return r.stop(err)
		}
	}
	if r.write.seal(); len(r.write.ops) > 0 {
		if err := store.Commit(r.write); err != nil {
			return r.stop(err)
		}
	}
	r.publish(b)
	for _, p := range b.parts {
		if p.err != nil {
			return r.stop(p.err)
		}
	}
	return nil
}

// fold applies one partition's accepted envelopes and adds where that leaves its positions.
func (r *Runner) fold(p *part) error {
	for _, a := range p.accepted {
		if a.GetBucket() >= events.Buckets {
			continue // of commands whose record key was wrong: they concern no link
		}
		if err := r.foldOne(a); err != nil {
			return &Poison{Projection: r.cfg.Projection.Name(), Topic: r.cfg.Topic, Partition: a.Partition, Offset: a.Offset,
				Bucket: a.GetBucket(), Seq: a.GetSeq(), Cause: err}
		}
	}
	if p.read {
		r.journals[p.partition].add(r.write, p.place, p.heads)
	}
	return nil
}

func (r *Runner) foldOne(a Accepted) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.cfg.Projection.Apply(r.write, a)
}

// publish makes a committed batch known: first to the projection, then to those who wait for positions.
func (r *Runner) publish(b *batch) {
	accepted, voids := 0, uint64(0)
	for _, p := range b.parts {
		accepted, voids = accepted+len(p.accepted), voids+p.voids
		if len(p.accepted) > 0 {
			r.cfg.Projection.Committed(p.accepted)
		}
	}
	r.applied.Add(uint64(accepted))
	r.voids.Add(voids)
	r.advance(b)
	for _, p := range b.parts {
		for _, h := range p.heads {
			r.heads.publish(h.bucket, h.seq)
		}
	}
}

func (r *Runner) advance(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastApplied = time.Now()
	for _, p := range b.parts {
		if p.read {
			r.positions[p.partition] = p.place.next
		}
		if n := len(p.accepted); n > 0 {
			r.lastStamp = max(r.lastStamp, p.accepted[n-1].GetStamp().GetTimeUs())
		}
	}
}

func (r *Runner) current() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}
