package commands

import (
	"maps"

	"github.com/cespare/xxhash/v2"
)

// cowMap is a map that is never changed: with and without return another one, which shares nearly all of it. So a reader
// needs no lock, and a writer does not copy 100,000 entries to add one. It is 4096 small maps behind two levels of 64, chosen
// by the hash of the key. The zero value is empty.
type cowMap[V any] struct {
	count int
	root  *[cowFan]*[cowFan]map[string]V
}

const (
	cowBits = 6
	cowFan  = 1 << cowBits
)

// cowSlots are where a hash leads: by its top bits, as the bucket of a route key takes the lowest.
func cowSlots(hash uint64) (outer, inner int) {
	return int(hash >> (64 - cowBits)), int(hash >> (64 - 2*cowBits) & (cowFan - 1))
}

func (m cowMap[V]) leaf(hash uint64) map[string]V {
	if m.root == nil {
		return nil
	}
	outer, inner := cowSlots(hash)
	if m.root[outer] == nil {
		return nil
	}
	return m.root[outer][inner]
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
	outer, inner := cowSlots(xxhash.Sum64String(key))
	root, branch, leaf := &[cowFan]*[cowFan]map[string]V{}, &[cowFan]map[string]V{}, map[string]V{}
	if m.root != nil {
		*root = *m.root
	}
	if root[outer] != nil {
		*branch = *root[outer]
	}
	if branch[inner] != nil {
		leaf = maps.Clone(branch[inner])
	}
	before := len(leaf)
	change(leaf)
	branch[inner], root[outer] = leaf, branch
	return cowMap[V]{count: m.count + len(leaf) - before, root: root}
}

// each calls f with every entry, in no order, until it returns false.
func (m cowMap[V]) each(f func(key string, value V) bool) {
	if m.root == nil {
		return
	}
	for _, branch := range m.root {
		if branch == nil {
			continue
		}
		for _, leaf := range branch {
			for key, value := range leaf {
				if !f(key, value) {
					return
				}
			}
		}
	}
}
