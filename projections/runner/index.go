package runner

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// index finds changes by key: a hash table with linear probing that holds nothing but their numbers, so that a table for
// some hundred thousand stays near the processor and is nothing to the collector.
type index struct {
	slots []uint32 // number + 1, 0: free; a power of two
	used  int
}

const (
	indexSlots = 1 << 10 // at least
	indexKept  = 1 << 16 // more are given back unless a commit needs a quarter of them
)

func hashOf(key []byte) uint32 { return uint32(xxhash.Sum64(key)) }

func (x *index) reset() {
	if len(x.slots) > indexKept && x.used < len(x.slots)/8 {
		x.slots = nil
	}
	if x.used > 0 {
		clear(x.slots)
	}
	x.used = 0
}

// find returns the number of the change to a key.
func (x *index) find(ops []op, key []byte, hash uint32) (number int, ok bool) {
	if x.used == 0 {
		return 0, false
	}
	mask := uint32(len(x.slots) - 1)
	for at := hash & mask; x.slots[at] != 0; at = (at + 1) & mask {
		number = int(x.slots[at] - 1)
		if ops[number].hash == hash && bytes.Equal(ops[number].key, key) {
			return number, true
		}
	}
	return 0, false
}

// add takes the last change up. Its key is not there.
func (x *index) add(ops []op) {
	if 2*(x.used+1) > len(x.slots) {
		x.grow(ops)
	}
	x.put(ops[len(ops)-1].hash, len(ops)-1)
	x.used++
}

func (x *index) grow(ops []op) {
	old := x.slots
	x.slots = make([]uint32, max(indexSlots, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			x.put(ops[slot-1].hash, int(slot-1))
		}
	}
}

func (x *index) put(hash uint32, number int) {
	mask := uint32(len(x.slots) - 1)
	at := hash & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = uint32(number + 1)
}
