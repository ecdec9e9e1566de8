package runner

import "github.com/cespare/xxhash/v2"

// index finds changes by key: a hash table with linear probing that holds nothing but hashes and numbers, so that most of what
// is not there is not there after one look at memory.
type index struct {
	slots []uint64 // hash, number + 1; 0: free; a power of two
	used  int
}

const (
	indexSlots = 1 << 10 // at least
	indexKept  = 1 << 16 // more are given back unless a commit needs an eighth of them
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

// find returns the number of the change whose key has that hash and is the one asked for.
func (x *index) find(hash uint32, is func(number int) bool) (number int, ok bool) {
	if x.used == 0 {
		return 0, false
	}
	mask := uint32(len(x.slots) - 1)
	for at := hash & mask; x.slots[at] != 0; at = (at + 1) & mask {
		if number = int(uint32(x.slots[at]) - 1); x.slots[at]>>32 == uint64(hash) && is(number) {
			return number, true
		}
	}
	return 0, false
}

// add takes a change up whose key is not there.
func (x *index) add(hash uint32, number int) {
	if 2*(x.used+1) > len(x.slots) {
		x.grow()
	}
	x.put(uint64(hash)<<32 | uint64(number+1))
	x.used++
}

func (x *index) grow() {
	old := x.slots
	x.slots = make([]uint64, max(indexSlots, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			x.put(slot)
		}
	}
}

func (x *index) put(slot uint64) {
	mask := uint32(len(x.slots) - 1)
	at := uint32(slot>>32) & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = slot
}
