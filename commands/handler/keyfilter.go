package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/cockroachdb/pebble/v2"
)

// keyFilter knows of most keys that a partition's state does not hold that it does not. Nearly all look-ups of a create find
// nothing (a new code, a new request key), and each would search the store's memory tables, which have no filters of their
// own: without this one they take half of a writer's time. It lives in memory: about two bytes a key.
type keyFilter struct {
	mu     sync.Mutex
	layers []*bloom.BloomFilter // each four times as large as the one before; the last takes new keys
	room   uint                 // keys that the last layer still takes
	ready  bool                 // all keys that the store held at the start are in
}

const (
	firstLayer  = 4096
	layerGrowth = 4
	// falsePositives of one layer.
	falsePositives = 0.002
)

// filtered are the key spaces whose keys a filter holds; see store.go.
var filtered = [...]byte{prefixLink, prefixRequest, prefixFingerprint}

// absent reports that the state surely does not hold the key; false says nothing.
func (f *keyFilter) absent(key []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready && !f.has(key)
}

func (f *keyFilter) has(key []byte) bool {
	for _, layer := range f.layers {
		if layer.Test(key) {
			return true
		}
	}
	return false
}

// add takes a key that the state is about to hold, of whichever key space.
func (f *keyFilter) add(key []byte) {
	if !slices.Contains(filtered[:], key[0]) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has(key) {
		return
	}
	if f.room == 0 {
		f.room = firstLayer
		for range f.layers {
			f.room *= layerGrowth
		}
		f.layers = append(f.layers, bloom.NewWithEstimates(f.room, falsePositives))
	}
	f.layers[len(f.layers)-1].Add(key)
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
