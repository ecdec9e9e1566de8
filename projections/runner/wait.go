package runner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hoplog/hoplog/events"
)

// heads is the committed sequence of every bucket, and who waits for more.
type heads struct {
	seqs    [maxBuckets]atomic.Uint64
	waiting atomic.Int64 // how many wait, so that nobody is looked for when nobody does
	mu      sync.Mutex
	waiters map[uint32][]*waiter
}

type waiter struct {
	seq  uint64
	woke chan struct{}
}

func (h *heads) init() { h.waiters = map[uint32][]*waiter{} }

func (h *heads) set(bucket uint32, seq uint64) { h.seqs[bucket].Store(seq) }

// publish moves a head and wakes those who have waited for it. Whoever starts to wait at the same moment has counted itself
// before it looks at the head, so one of the two sees the other.
func (h *heads) publish(bucket uint32, seq uint64) {
	h.seqs[bucket].Store(seq)
	if h.waiting.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if list := h.waiters[bucket]; len(list) > 0 {
		h.keep(bucket, slices.DeleteFunc(list, func(w *waiter) bool {
			if w.seq <= seq {
				h.waiting.Add(-1)
				close(w.woke)
				return true
			}
			return false
		}))
	}
}

func (h *heads) keep(bucket uint32, list []*waiter) {
	if len(list) == 0 {
		delete(h.waiters, bucket)
		return
	}
	h.waiters[bucket] = list
}

func (h *heads) add(bucket uint32, w *waiter) {
	h.waiting.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[bucket] = append(h.waiters[bucket], w)
}

func (h *heads) remove(bucket uint32, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.waiters[bucket]
	if i := slices.Index(list, w); i >= 0 {
		h.waiting.Add(-1)
		h.keep(bucket, slices.Delete(list, i, i+1))
	}
}

// Head returns the sequence of the last envelope of a bucket that can be read, 0 before the first.
func (r *Runner) Head(bucket uint32) uint64 {
	if bucket >= maxBuckets {
		return 0
	}
	return r.heads.seqs[bucket].Load()
}

// WaitFor returns when the position can be read, when ctx is done (its error), or when the runner stops for good
// (ErrStopped). A position that was reached is reached, stopped or not.
func (r *Runner) WaitFor(ctx context.Context, p events.Position) error {
	if p.Stream != r.cfg.Stream || p.Bucket >= maxBuckets {
		return fmt.Errorf("waiting for %s: %w", p, ErrForeignStream)
	}
	if r.Head(p.Bucket) >= p.Seq {
		return nil
	}
	w := &waiter{seq: p.Seq, woke: make(chan struct{})}
	r.heads.add(p.Bucket, w)
	defer r.heads.remove(p.Bucket, w)
	if r.Head(p.Bucket) >= p.Seq {
		return nil
	}
	select {
	case <-w.woke:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.Stopped():
		if r.Head(p.Bucket) >= p.Seq {
			return nil
		}
		return r.Err()
	}
}
