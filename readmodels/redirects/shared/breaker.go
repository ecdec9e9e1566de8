package shared

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker is closed while Redis answers in time. Failures in a row open it; only a probe closes it again.
type breaker struct {
	closed   atomic.Bool
	failures atomic.Int32

	mu     sync.Mutex
	since  time.Time // of the state
	opened uint64    // how often
	last   error
	wake   chan struct{} // closed when the breaker closes
}

// failuresInARow open the breaker.
const failuresInARow = 3

func newBreaker() *breaker { return &breaker{since: time.Now(), wake: make(chan struct{})} }

func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// failed counts a failure; true: it opened the breaker.
func (b *breaker) failed(err error) bool {
	if b.failures.Add(1) >= failuresInARow {
		return b.trip(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = err
	return false
}

// trip opens the breaker; false: it was open.
func (b *breaker) trip(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = err
	if !b.closed.Load() {
		return false
	}
	b.closed.Store(false)
	b.since, b.wake = time.Now(), make(chan struct{})
	b.opened++
	return true
}

// renew makes those who wait for a Redis that was away believe that it was, though the breaker stayed closed.
func (b *breaker) renew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		b.wake = make(chan struct{})
		close(b.wake)
	}
}

// close is for who probed.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return
	}
	b.failures.Store(0)
	b.since, b.last = time.Now(), nil
	b.closed.Store(true)
	close(b.wake)
}

// closing returns what is closed when the breaker is, at once if it is now.
func (b *breaker) closing() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wake
}
