package runner

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"
)

// Write collects what one batch of envelopes changes. Reads through it see its own changes. It is used by one goroutine
// and only within Apply.
type Write struct {
	store Store
	ops   []op
	index map[string]int // key → its place in ops
	arena arena
	bytes int
}

type op struct {
	key   []byte
	value []byte // nil: the key is deleted
}

// Message is what a generated protobuf type offers.
type Message interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

func newWrite() *Write { return &Write{index: map[string]int{}} }

func (w *Write) reset(s Store) {
	w.store, w.ops, w.bytes = s, w.ops[:0], 0
	clear(w.index)
	w.arena.reset()
}

// Get returns the value under key, nil when there is none. It is lent until the batch ends and must not be changed.
func (w *Write) Get(key []byte) ([]byte, error) {
	if i, ok := w.index[string(key)]; ok {
		return w.ops[i].value, nil
	}
	value, found, err := w.store.Get(w.arena.rest(), key)
	if err != nil || !found {
		return nil, err
	}
	return w.arena.keep(value), nil
}

// Set writes a copy of value under a copy of key.
func (w *Write) Set(key, value []byte) { w.put(key, w.arena.copy(value)) }

// SetMessage writes an encoded message under a copy of key.
func (w *Write) SetMessage(key []byte, m Message) error {
	value := w.arena.take(m.SizeVT())
	if _, err := m.MarshalToSizedBufferVT(value); err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	w.put(key, value)
	return nil
}

// Delete removes key.
func (w *Write) Delete(key []byte) { w.put(key, nil) }

func (w *Write) put(key, value []byte) {
	w.bytes += len(key) + len(value)
	if i, ok := w.index[string(key)]; ok {
		w.ops[i].value = value
		return
	}
	key = w.arena.copy(key)
	// The string shares the arena's bytes, which do not change before the index is cleared.
	w.index[unsafe.String(unsafe.SliceData(key), len(key))] = len(w.ops)
	w.ops = append(w.ops, op{key, value})
}

// append adds an operation that is not read back within the batch.
func (w *Write) append(key, value []byte) {
	w.bytes += len(key) + len(value)
	w.ops = append(w.ops, op{key, value})
}

// seal ends the collecting and puts the changes in key order, which is how a store takes them fastest: in Pebble, half the
// time of a commit is finding places in a sorted list.
func (w *Write) seal() {
	clear(w.index)
	slices.SortFunc(w.ops, func(a, b op) int { return bytes.Compare(a.key, b.key) })
}

// Each calls f for every change in key order, one per key; a nil value means deleted. Slices are lent for the call.
func (w *Write) Each(f func(key, value []byte) error) error {
	for _, o := range w.ops {
		if err := f(o.key, o.value); err != nil {
			return err
		}
	}
	return nil
}

// Size returns roughly how many bytes of keys and values the changes have.
func (w *Write) Size() int { return w.bytes }

// arena is memory for the keys and values of one batch, given back as a whole.
type arena struct {
	full [][]byte // blocks used up in this batch
	free [][]byte
	now  []byte
}

const (
	arenaBlock = 256 << 10
	arenaKept  = 64 // blocks kept between batches
)

func (a *arena) reset() {
	a.full = append(a.full, a.now)
	for _, block := range a.full {
		if cap(block) == arenaBlock && len(a.free) < arenaKept {
			a.free = append(a.free, block[:0])
		}
	}
	clear(a.full)
	a.full, a.now = a.full[:0], nil
}

// take returns n bytes of any content; never nil.
func (a *arena) take(n int) []byte {
	if n > cap(a.now)-len(a.now) || a.now == nil {
		a.grow(n)
	}
	from := len(a.now)
	a.now = a.now[:from+n]
	return a.now[from : from+n : from+n]
}

func (a *arena) grow(n int) {
	if a.now != nil {
		a.full = append(a.full, a.now)
	}
	switch last := len(a.free) - 1; {
	case n > arenaBlock:
		a.now = make([]byte, 0, n)
	case last >= 0:
		a.now, a.free = a.free[last], a.free[:last]
	default:
		a.now = make([]byte, 0, arenaBlock)
	}
}

func (a *arena) copy(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}

// rest is an empty slice over the free end of the current block, for append.
func (a *arena) rest() []byte { return a.now[len(a.now):] }

// keep makes what was appended to rest part of the arena, if it still fit.
func (a *arena) keep(b []byte) []byte {
	if a.now != nil && len(b) > 0 && len(b) <= cap(a.now)-len(a.now) && &b[0] == &a.now[:cap(a.now)][len(a.now)] {
		return a.take(len(b))
	}
	if b == nil {
		return []byte{}
	}
	return b
}
