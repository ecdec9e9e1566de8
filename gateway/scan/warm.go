package scan

import (
	"sync"
	"sync/atomic"
)

// warm is the sources that guess, as bits: what a visit that found a link asks first. Bits live for one window at least and
// two at most after they were set last.
type warm struct {
	bits  [2][warmBits / 64]atomic.Uint64
	now   atomic.Uint32 // which of the two is being written
	until atomic.Int64  // nanoseconds: nothing is warm after that

	began atomic.Int64 // nanoseconds, when the one being written began

	mu sync.Mutex // to begin the next
}

const warmBits = 1 << 16

func (w *warm) has(key uint64) bool {
	at, bit := key>>6%(warmBits/64), uint64(1)<<(key&63)
	return (w.bits[0][at].Load()|w.bits[1][at].Load())&bit != 0
}

// any reports whether something may be warm.
func (w *warm) any(now int64) bool { return now < w.until.Load() }

func (w *warm) set(key uint64, now int64) {
	if now-w.began.Load() > int64(window) {
		w.turn(now)
	}
	if until := now + 2*int64(window); until-w.until.Load() > int64(window)/60 {
		w.until.Store(until)
	}
	word, bit := &w.bits[w.now.Load()][key>>6%(warmBits/64)], uint64(1)<<(key&63)
	if word.Load()&bit == 0 {
		word.Or(bit)
	}
}

// turn begins the next bits.
func (w *warm) turn(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	age := now - w.began.Load()
	if age <= int64(window) {
		return
	}
	next := 1 - w.now.Load()
	clearBits(&w.bits[next])
	w.now.Store(next)
	if age > 2*int64(window) { // the other ones are out of date too
		clearBits(&w.bits[1-next])
	}
	w.began.Store(now)
}

func clearBits(words *[warmBits / 64]atomic.Uint64) {
	for i := range words {
		words[i].Store(0)
	}
}
