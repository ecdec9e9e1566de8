package handler

import (
	"context"
	"sync"
)

// assignment is whether a partition is ours to write. A worker takes turns under it: a turn ends when the assignment
// changes.
type assignment struct {
	mu    sync.Mutex
	ours  bool
	end   context.CancelFunc
	ended chan struct{}
}

// turn begins a turn: its context, whether the partition is ours, and what to call when the turn is over.
func (a *assignment) turn(ctx context.Context) (turn context.Context, ours bool, over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	turn, a.end = context.WithCancel(ctx)
	ended := make(chan struct{})
	a.ended = ended
	end := a.end
	return turn, a.ours, func() { end(); close(ended) }
}

// set changes the assignment and returns once the turn under the old one is over.
func (a *assignment) set(ours bool) {
	a.mu.Lock()
	a.ours = ours
	end, ended := a.end, a.ended
	a.mu.Unlock()
	if end != nil {
		end()
		<-ended
	}
}
