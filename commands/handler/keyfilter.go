package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events/filter"
)

// keyFilter knows of most keys that a partition's state does not hold that it does not. Nearly all look-ups of a create find
// nothing (a new code, a new request key), and each would search the store's memory tables, which have no filters of their
// own: without this one they take half of a writer's time. It lives in memory: about three bytes a key.
type keyFilter struct {
	mu    sync.Mutex
	keys  *filter.Filter
	ready bool // all keys that the store held at the start are in
}

// keyShape: a full layer lets one key in five thousand through, and there are few layers, each four times as large as those
// before it together.
var keyShape = filter.Shape{First: 128 * 24, PerBlock: 24, Growth: 3}

// filtered are the key spaces whose keys a filter holds; see store.go.
var filtered = [...]byte{prefixLink, prefixRequest, prefixFingerprint}

// absent reports that the state surely does not hold the key; false says nothing.
func (f *keyFilter) absent(key []byte) bool {
	hash := xxhash.Sum64(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready && (f.keys == nil || f.keys.Absent(hash))
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
	if f.keys == nil {
		f.keys = filter.New(keyShape)
	}
	f.keys.Add(hash)
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
