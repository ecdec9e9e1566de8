package runner

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Write collects what one commit changes. Reads through it see its own changes. It is used by one goroutine and only within
// Apply.
type Write struct {
	store Store
	ops   []op
	index index     // of ops by key
	order []sortKey // of ops by key, once sealed
	arena arena
	bytes int
}

// op is where the pair of a change is.
type op struct{ block, offset uint32 }

// pairHead is what precedes a pair in the arena: the lengths of key and value, four bytes each. The value follows the key.
const pairHead = 8

// deleted stands for the length of a value when the key is deleted.
const deleted = 1<<32 - 1

// sortKey is where an op is, with a piece of its key.
type sortKey struct {
	word uint64
	op   uint32
}

// Message is what a generated protobuf type offers.
type Message interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

func newWrite() *Write { return &Write{} }

func (w *Write) reset(s Store) {
	if cap(w.ops) > keptOps && len(w.ops) < cap(w.ops)/4 {
		w.ops, w.order = nil, nil
	}
	w.store, w.ops, w.order, w.bytes = s, w.ops[:0], w.order[:0], 0
	w.index.reset()
	w.arena.reset()
}

// keptOps is how many changes a Write keeps room for in any case; for more, as long as commits need a quarter of it: those
// from far behind the log do.
const keptOps = 1 << 15

// Get returns the value under key, nil when there is none. It is lent until the commit and must not be changed.
func (w *Write) Get(key []byte) ([]byte, error) {
	if i, ok := w.find(key, hashOf(key)); ok {
		_, value := w.pair(i)
		return value, nil
	}
	value, found, err := w.store.Get(w.arena.rest(), key)
	if err != nil || !found {
		return nil, err
	}
	return w.arena.keep(value), nil
}

func (w *Write) find(key []byte, hash uint32) (number int, ok bool) {
	return w.index.find(hash, func(number int) bool { return bytes.Equal(w.key(number), key) })
}

// pair returns the key and the value of a change, nil if it is deleted.
func (w *Write) pair(number int) (key, value []byte) {
	o := w.ops[number]
	in := w.arena.blocks[o.block][o.offset:]
	end := pairHead + int(binary.LittleEndian.Uint32(in))
	size := binary.LittleEndian.Uint32(in[4:])
	if size == deleted {
		return in[pairHead:end:end], nil
	}
	return in[pairHead:end:end], in[end : end+int(size) : end+int(size)]
}

func (w *Write) key(number int) []byte {
	o := w.ops[number]
	in := w.arena.blocks[o.block][o.offset:]
	return in[pairHead : pairHead+binary.LittleEndian.Uint32(in)]
}

// Set writes a copy of value under a copy of key.
func (w *Write) Set(key, value []byte) { copy(w.put(key, len(value)), value) }

// SetMessage writes an encoded message under a copy of key.
func (w *Write) SetMessage(key []byte, m Message) error {
	if _, err := m.MarshalToSizedBufferVT(w.put(key, m.SizeVT())); err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	return nil
}

// Delete removes key.
func (w *Write) Delete(key []byte) {
	at, _ := w.newPair(key, 0, deleted)
	w.point(key, at)
}

// put makes a copy of key stand for a value of that size, which it returns to be filled.
func (w *Write) put(key []byte, size int) (value []byte) {
	at, value := w.newPair(key, size, uint32(size))
	w.point(key, at)
	return value
}

// append is put for a pair that is not read back within the commit and whose key comes once.
func (w *Write) append(key []byte, size int) (value []byte) {
	at, value := w.newPair(key, size, uint32(size))
	w.push(at)
	return value
}

// remove is append for a deletion.
func (w *Write) remove(key []byte) {
	at, _ := w.newPair(key, 0, deleted)
	w.push(at)
}

// point makes a key's change the pair at a place.
func (w *Write) point(key []byte, at op) {
	hash := hashOf(key)
	if i, ok := w.find(key, hash); ok {
		w.ops[i] = at
		return
	}
	w.push(at)
	w.index.add(hash, len(w.ops)-1)
}

// newPair makes room for a pair and fills it, but for the value.
func (w *Write) newPair(key []byte, size int, coded uint32) (at op, value []byte) {
	w.bytes += len(key) + size
	in, block, offset := w.arena.take(pairHead + len(key) + size)
	binary.LittleEndian.PutUint32(in, uint32(len(key)))
	binary.LittleEndian.PutUint32(in[4:], coded)
	copy(in[pairHead:], key)
	return op{block, offset}, in[pairHead+len(key):]
}

// push doubles the room when there is none left: append would add a quarter at a time, and copy all of it each time.
func (w *Write) push(at op) {
	if len(w.ops) == cap(w.ops) {
		w.ops = slices.Grow(w.ops, max(64, len(w.ops)))
	}
	w.ops = append(w.ops, at)
}

// seal ends the collecting and puts the changes in key order, which is how a store takes them fastest: in Pebble, half the
// time of a commit is finding places in a sorted list.
func (w *Write) seal() {
	w.order = slices.Grow(w.order[:0], len(w.ops))
	for i := range w.ops {
		w.order = append(w.order, sortKey{op: uint32(i)})
	}
	w.sort(w.order, 0)
}

// sort puts changes in key order whose keys have their first bytes, so many, in common. Eight bytes at a time are compared as
// numbers, each read once: fetching whole keys again and again would take three times as long.
func (w *Write) sort(order []sortKey, common int) {
	for i := range order {
		order[i].word = wordOf(w.key(int(order[i].op)), common)
	}
	slices.SortFunc(order, func(a, b sortKey) int { return cmp.Compare(a.word, b.word) })
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].word == order[0].word {
			n++
		}
		if n > 1 {
			w.sortAlike(order[:n], common)
		}
		order = order[n:]
	}
}

// sortAlike sorts changes whose keys have the first bytes in common, and the same word after them.
func (w *Write) sortAlike(order []sortKey, common int) {
	first := w.key(int(order[0].op))
	alike := len(first)
	for _, at := range order[1:] {
		alike = min(alike, commonPrefix(first[:alike], w.key(int(at.op))))
	}
	if len(order) <= fewKeys || alike <= common {
		slices.SortFunc(order, func(a, b sortKey) int { return bytes.Compare(w.key(int(a.op)), w.key(int(b.op))) })
		return
	}
	w.sort(order, alike)
}

// fewKeys are sorted as they are.
const fewKeys = 4

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// wordOf reads the eight bytes of a key after its first ones as a number; missing ones count as zero.
func wordOf(key []byte, after int) uint64 {
	key = key[min(after, len(key)):]
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var word [8]byte
	copy(word[:], key)
	return binary.BigEndian.Uint64(word[:])
}

// All walks the changes in key order, one per key; a nil value means deleted. Slices are lent until the next commit.
func (w *Write) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for _, at := range w.order {
			if !yield(w.pair(int(at.op))) {
				return
			}
		}
	}
}

// Len returns how many changes there are.
func (w *Write) Len() int { return len(w.ops) }

// Size returns roughly how many bytes of keys and values the changes have.
func (w *Write) Size() int { return w.bytes }
