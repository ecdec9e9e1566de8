// Package filter says of most keys that a set does not hold that it does not, without asking the set.
//
// Invariant: a key that was added is never called absent. It holds hashes of keys only, does no I/O, and must not import
// anything of this module.
//
// A layer is a split block Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007): a
// key sets one bit in each of the eight words of one block, so that a look-up costs one hash and, per layer, one trip to memory.
package filter

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

// Shape is what a filter trades: memory, trips to memory and wrong answers.
type Shape struct {
	// First is how many keys the first layer takes.
	First int
	// PerBlock is how many keys a layer takes for each block of 64 bytes. Of keys that a full layer does not hold it lets
	// through one in five thousand at 24 (2.7 bytes a key), and one in 200 at 42 (1.5 bytes a key).
	PerBlock int
	// Growth is how many keys the next layer takes, in times of what all before it take.
	Growth float64
}

// Filter is a set of keys that grows. Absent may be called at any time, everything else by one goroutine at a time.
type Filter struct {
	shape    Shape
	layers   atomic.Pointer[[]layer]
	capacity int // keys that all layers take
	room     int // keys that the last layer still takes
}

type layer []block

// block is read while it is written: its words change by one atomic store each, and no bit is ever taken back.
type block [8]uint64

// New returns an empty filter.
func New(shape Shape) *Filter {
	f := &Filter{shape: shape}
	f.layers.Store(&[]layer{})
	return f
}

// Absent reports that no key of this hash was added; false says nothing.
func (f *Filter) Absent(hash uint64) bool {
	for _, l := range *f.layers.Load() {
		if l.of(hash).has(hash) {
			return false
		}
	}
	return true
}

// Add takes the hash of a key.
func (f *Filter) Add(hash uint64) {
	if !f.Absent(hash) {
		return
	}
	if f.room == 0 {
		f.grow()
	}
	layers := *f.layers.Load()
	layers[len(layers)-1].of(hash).add(hash)
	f.room--
}

func (f *Filter) grow() {
	keys := f.shape.First
	if f.capacity > 0 {
		keys = int(float64(f.capacity) * f.shape.Growth)
	}
	blocks := max(1, (keys+f.shape.PerBlock-1)/f.shape.PerBlock)
	f.room = blocks * f.shape.PerBlock
	f.capacity += f.room
	layers := append(slices.Clone(*f.layers.Load()), make(layer, blocks))
	f.layers.Store(&layers)
}

// Layers returns how many layers a look-up of an absent key goes through.
func (f *Filter) Layers() int { return len(*f.layers.Load()) }

// Keys returns how many keys were added, but for the few that were taken for others.
func (f *Filter) Keys() int { return f.capacity - f.room }

// Bytes returns how much memory the layers take.
func (f *Filter) Bytes() (sum int) {
	for _, l := range *f.layers.Load() {
		sum += len(l) * 64
	}
	return sum
}

// of returns a key's block, by the high end of its hash.
func (l layer) of(hash uint64) *block {
	at, _ := bits.Mul64(hash, uint64(len(l)))
	return &l[at]
}

// scatter is what the words' bits are chosen by: independent of what the block was chosen by.
func scatter(hash uint64) uint64 { return hash * 0x9e3779b97f4a7c15 >> 16 }

func (b *block) has(hash uint64) bool {
	at := scatter(hash)
	for i := range b {
		if atomic.LoadUint64(&b[i])>>(at&63)&1 == 0 {
			return false
		}
		at >>= 6
	}
	return true
}

func (b *block) add(hash uint64) {
	at := scatter(hash)
	for i := range b {
		if bit := uint64(1) << (at & 63); b[i]&bit == 0 {
			atomic.StoreUint64(&b[i], b[i]|bit)
		}
		at >>= 6
	}
}
