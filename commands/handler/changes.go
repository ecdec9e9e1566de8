package handler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// message is what the generated code offers of every stored record.
type message[T any] interface {
	*T
	UnmarshalVT([]byte) error
}

// encoder is what the generated code offers of every record to be stored.
type encoder interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// reader reads values by key; nil if there is none. A value is not changed, by its owner nor by its reader, who keeps none.
type reader interface {
	get(key []byte) ([]byte, error)
}

// load reads the record under key; it returns nil if there is none.
func load[T any, M message[T]](r reader, key []byte) (M, error) {
	value, err := r.get(key)
	if err != nil || value == nil {
		return nil, err
	}
	m := M(new(T))
	if err := m.UnmarshalVT(value); err != nil {
		return nil, storeError{fmt.Errorf("decoding state under %x: %w", key, err)}
	}
	return m, nil
}

// changes are writes on top of the confirmed state that are committed together or forgotten. A map serves them better than
// an indexed batch: most look-ups of a create find nothing, in either.
type changes struct {
	store  *store
	filter *keyFilter
	list   []change
	places map[string]int // key → place in list
	arena  []byte         // its end is free for values
}

type change struct {
	word  uint64 // the beginning of key
	key   string
	value []byte // nil: the key is deleted
}

const (
	arenaBlock  = 64 << 10
	keptChanges = 8 << 10 // a commit from far behind the log has more, and is not the rule
)

// reset forgets all changes.
func (c *changes) reset(s *store, f *keyFilter) {
	c.store, c.filter = s, f
	if c.places == nil || len(c.list) > keptChanges {
		c.list, c.places, c.arena = nil, map[string]int{}, nil
	}
	clear(c.list)
	clear(c.places)
	c.list, c.arena = c.list[:0], c.arena[:0]
}

func (c *changes) get(key []byte) ([]byte, error) {
	if at, changed := c.places[string(key)]; changed {
		return c.list[at].value, nil
	}
	if c.filter.absent(key) {
		return nil, nil
	}
	return c.store.get(key)
}

// set puts a value under a key; nil deletes it. The value is kept until reset.
func (c *changes) set(key, value []byte) {
	if at, again := c.places[string(key)]; again {
		c.list[at].value = value
		return
	}
	added := change{key: string(key), value: value}
	var word [8]byte
	copy(word[:], key)
	added.word = binary.BigEndian.Uint64(word[:])
	c.places[added.key] = len(c.list)
	c.list = append(c.list, added)
}

// room returns that many bytes for a value.
func (c *changes) room(size int) []byte {
	if c.arena == nil || cap(c.arena)-len(c.arena) < size {
		c.arena = make([]byte, 0, max(arenaBlock, 2*cap(c.arena), size))
	}
	from := len(c.arena)
	c.arena = c.arena[:from+size]
	return c.arena[from : from+size : from+size]
}

func save(c *changes, key []byte, m encoder) error {
	value := c.room(m.SizeVT())
	if _, err := m.MarshalToSizedBufferVT(value); err != nil {
		return storeError{fmt.Errorf("encoding state: %w", err)}
	}
	c.set(key, value)
	return nil
}

// commit writes the changes in one batch. It does not sync: the log is the truth, and what a power cut takes is folded again.
func (c *changes) commit() error {
	// In order, for the store finds the place of a key from that of the one before.
	slices.SortFunc(c.list, func(a, b change) int {
		switch {
		case a.word < b.word:
			return -1
		case a.word > b.word:
			return 1
		}
		return strings.Compare(a.key, b.key)
	})
	c.filter.addAll(c.list)
	size := 64
	for _, w := range c.list {
		size += len(w.key) + len(w.value) + 16
	}
	b := c.store.db.NewBatchWithSize(size)
	for _, w := range c.list {
		if w.value == nil {
			d := b.DeleteDeferred(len(w.key))
			copy(d.Key, w.key)
			_ = d.Finish() // says nothing of a batch that is not read
			continue
		}
		d := b.SetDeferred(len(w.key), len(w.value))
		copy(d.Key, w.key)
		copy(d.Value, w.value)
		_ = d.Finish()
	}
	if err := errors.Join(b.Commit(pebble.NoSync), b.Close()); err != nil {
		return storeError{fmt.Errorf("committing state: %w", err)}
	}
	return nil
}
