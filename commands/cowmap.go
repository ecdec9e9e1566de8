package commands

import (
	"maps"

	"github.com/cespare/xxhash/v2"
)

// cowMap is a map that is never changed: with and without return another one, which shares nearly all of it. So a reader
// needs no lock, and a writer does not copy 100,000 entries to add one. It is 32,768 small maps behind three levels of 32,
// chosen by the hash of the key. The zero value is empty.
type cowMap[V any] struct {
	count int
	root  *[cowFan]*[cowFan]*[cowFan]map[string]V
}

const (
	cowBits = 5
	cowFan  = 1 << cowBits
)

// cowSlots are where a hash leads: by its top bits, as the bucket of a route key takes the lowest.
func cowSlots(hash uint64) (first, second, third int) {
	return int(hash >> (64 - cowBits)), int(hash >> (64 - 2*cowBits) & (cowFan - 1)), int(hash >> (64 - 3*cowBits) & (cowFan - 1))
}

func (m cowMap[V]) leaf(hash uint64) map[string]V {
	first, second, third := cowSlots(hash)
	if m.root == nil || m.root[first] == nil || m.root[first][second] == nil {
		return nil
	}
	return m.root[first][second][third]
}

func (m cowMap[V]) get(key string) (v V, ok bool) {
	if m.count == 0 {
		return v, false
	}
	v, ok = m.leaf(xxhash.Sum64String(key))[key]
	return v, ok
}

// getBytes is get for a borrowed key. It does not allocate.
func (m cowMap[V]) getBytes(key []byte) (v V, ok bool) {
	if m.count == 0 {
		return v, false
	}
	v, ok = m.leaf(xxhash.Sum64(key))[string(key)]
	return v, ok
}

// with returns a map that also holds value under key.
func (m cowMap[V]) with(key string, value V) cowMap[V] {
	return m.changed(key, func(leaf map[string]V) { leaf[key] = value })
}

// without returns a map without key.
func (m cowMap[V]) without(key string) cowMap[V] {
	if _, ok := m.get(key); !ok {
		return m
	}
	return m.changed(key, func(leaf map[string]V) { delete(leaf, key) })
}

// changed copies the way to the key's small map, and that map, and changes the copy.
func (m cowMap[V]) changed(key string, change func(map[string]V)) cowMap[V] {
	first, second, third := cowSlots(xxhash.Sum64String(key))
	root := copied(m.root)
	root[first] = copied(root[first])
	root[first][second] = copied(root[first][second])
	leaf := maps.Clone(root[first][second][third])
	if leaf == nil {
		leaf = make(map[string]V, 1)
	}
	before := len(leaf)
	change(leaf)
	root[first][second][third] = leaf
	return cowMap[V]{count: m.count + len(leaf) - before, root: root}
}

func copied[T any](from *T) *T {
	to := new(T)
	if from != nil {
		*to = *from
	}
	return to
}

// each calls f with every entry, in no order, until it returns false.
func (m cowMap[V]) each(f func(key string, value V) bool) {
	for _, leaf := range m.leaves() {
		for key, value := range leaf {
			if !f(key, value) {
				return
			}
		}
	}
}

func (m cowMap[V]) leaves() (all []map[string]V) {
	for _, second := range *copied(m.root) {
		for _, third := range *copied(second) {
			for _, leaf := range *copied(third) {
				if len(leaf) > 0 {
					all = append(all, leaf)
				}
			}
		}
	}
	return all
}
