package redirects

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/hoplog/hoplog/events"
)

// memory is all that stands in front of the store.
type memory struct {
	cache   *cache // links; its shards' locks guard absent too
	absent  *cache // keys that the store was asked for and did not hold
	known   known
	now     func() int64 // nanoseconds since some moment
	changes scratch      // of the goroutine that commits
}

const (
	// absentBytes holds about 15,000 keys that nobody gave out and the filter lets through.
	absentBytes = 1 << 20
	absentFor   = 10 * time.Second
)

func newMemory(bytes int) *memory {
	began := time.Now()
	m := &memory{cache: newCache(bytes), absent: newCache(absentBytes), now: func() int64 { return int64(time.Since(began)) }}
	m.known.wanted = make(chan struct{}, 1)
	m.known.want()
	return m
}

// find is what Find does, uncounted.
func (m *memory) find(hash uint64, routeKey []byte) (*Record, State) {
	if r := m.cache.find(hash, routeKey); r != nil {
		return r, Hit
	}
	if m.known.absent(hash) {
		return nil, Unknown
	}
	if r := m.absent.find(hash, routeKey); r != nil && m.now() < int64(r.Version) {
		return nil, Unknown
	}
	return nil, NeedsStore
}

// changed is told of every committed change before anybody who waits for it is woken. A link that is in memory stays there,
// as it is now: one that everybody wants is not missed for a moment. A nil value means that the key is deleted.
func (m *memory) changed(routeKey, value []byte) {
	hash := xxhash.Sum64(routeKey)
	if value != nil {
		m.known.add(hash)
	}
	s := m.cache.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdate(routeKey)
	m.dropAbsent(hash, routeKey)
	if m.cache.find(hash, routeKey) == nil {
		return
	}
	if value != nil {
		if r, err := m.changes.pack(routeKey, uint32(hash%events.Buckets), value); err == nil {
			s.put(m.cache, hash, r)
			return
		}
	}
	s.drop(m.cache, hash, routeKey)
}

// remember notes that there is no such link. The shard of the cache is locked.
func (m *memory) remember(hash uint64, routeKey []byte) {
	r := newAbsent(routeKey, m.now()+int64(absentFor))
	if r == nil {
		return
	}
	s := m.absent.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(m.absent, hash, r)
}

func (m *memory) dropAbsent(hash uint64, routeKey []byte) {
	s := m.absent.shard(hash)
	if s.entries.Load() == 0 {
		return // only who holds the lock of the cache's shard adds one of this key
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(m.absent, hash, routeKey)
}

// forget is for when everything may have changed. When it returns, no fill that began before it is kept.
func (m *memory) forget() {
	m.known.forget(m.now())
	for i := range m.cache.shards {
		m.forgetShard(&m.cache.shards[i], &m.absent.shards[i])
	}
}

func (m *memory) forgetShard(s, absent *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		f.outdated = true
	}
	clear(s.flights)
	s.clear(m.cache)
	absent.mu.Lock()
	defer absent.mu.Unlock()
	absent.clear(m.absent)
}
