package handler

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
)

// keyFilter knows of most keys that a partition's state does not hold that it does not. Nearly all look-ups of a create find
// nothing (a new code, a new request key), and each would search the store's memory tables, which have no filters of their
// own: without this one they take half of a writer's time. It lives in memory: about three bytes a key.
//
// A layer is a split block Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007): a
// key sets one bit in each of the eight words of one block, so that a look-up costs one hash and, per layer, one trip to memory.
type keyFilter struct {
	mu     sync.Mutex
	layers [][]block // each four times as large as the one before; the last takes new keys
	room   int       // keys that the last layer still takes
	ready  bool      // all keys that the store held at the start are in
}

type block [8]uint64

const (
	firstLayer  = 128 // blocks
	layerGrowth = 4
	// blockKeys is how many keys a layer takes for each block; a full layer lets one key in five thousand through.
	blockKeys = 24
)

// filtered are the key spaces whose keys a filter holds; see store.go.
var filtered = [...]byte{prefixLink, prefixRequest, prefixFingerprint}

// blockOf returns the key's block in a layer, by the high end of its hash.
func blockOf(layer []block, hash uint64) *block {
	at, _ := bits.Mul64(hash, uint64(len(layer)))
	return &layer[at]
}

// scatter is what the words' bits are chosen by: independent of what the block was chosen by.
func scatter(hash uint64) uint64 { return hash * 0x9e3779b97f4a7c15 >> 16 }

func (b *block) has(hash uint64) bool {
	at := scatter(hash)
	for _, word := range b {
		if word>>(at&63)&1 == 0 {
			return false
		}
		at >>= 6
	}
	return true
}

func (b *block) add(hash uint64) {
	at := scatter(hash)
	for i := range b {
		b[i] |= 1 << (at & 63)
		at >>= 6
	}
}

// absent reports that the state surely does not hold the key; false says nothing.
func (f *keyFilter) absent(key []byte) bool {
	hash := xxhash.Sum64(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready && !f.has(hash)
}

func (f *keyFilter) has(hash uint64) bool {
	for _, layer := range f.layers {
		if blockOf(layer, hash).has(hash) {
			return true
		}
	}
	return false
}

// add takes a key that the state is about to hold, of whichever key space.
func (f *keyFilter) add(key []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(filtered[:], key[0]) {
		f.put(xxhash.Sum64(key))
	}
}

// addAll is add for all that is about to change.
func (f *keyFilter) addAll(list []change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range list {
		if slices.Contains(filtered[:], c.key[0]) {
			f.put(xxhash.Sum64String(c.key))
		}
	}
}

func (f *keyFilter) put(hash uint64) {
	if f.has(hash) {
		return
	}
	if f.room == 0 {
		size := firstLayer
		for range f.layers {
			size *= layerGrowth
		}
		f.layers, f.room = append(f.layers, make([]block, size)), size*blockKeys
	}
	blockOf(f.layers[len(f.layers)-1], hash).add(hash)
	f.room--
}

// load adds the keys of these buckets that the store holds. What is committed meanwhile adds itself. Until load is through,
// the store answers all look-ups.
func (f *keyFilter) load(ctx context.Context, s *store, first, last uint32) error {
	for _, prefix := range filtered {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: bucketKey(prefix, first, 0), UpperBound: bucketKey(prefix, last+1, 0)})
		if err != nil {
			return fmt.Errorf("reading the keys of the state: %w", err)
		}
		for it.First(); it.Valid() && ctx.Err() == nil; it.Next() {
			f.add(it.Key())
		}
		if err := errors.Join(it.Error(), it.Close(), ctx.Err()); err != nil {
			return fmt.Errorf("reading the keys of the state: %w", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = true
	return nil
}
