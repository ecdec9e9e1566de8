package redirects

import "sync"

// shards is a power of two, so that a hash picks one by its top bits.
const (
	shardBits = 8
	shards    = 1 << shardBits
)

// cache is the map in front of the store: a bounded number of entries per shard, the second chance (CLOCK) decides which
// one makes room.
type cache struct {
	perShard int
	shards   [shards]shard
}

type shard struct {
	mu      sync.Mutex
	entries map[string]*Entry
	ring    []*Entry // nil: a free slot
	free    []int    // slots that were given up
	hand    int
	hits    uint64
	misses  uint64
	key     []byte // of the store, reused by each fill
}

func newCache(entries int) *cache {
	c := &cache{perShard: max(1, entries/shards)}
	for i := range c.shards {
		c.shards[i].entries = map[string]*Entry{}
	}
	return c
}

func (c *cache) shard(hash uint64) *shard { return &c.shards[hash>>(64-shardBits)] }

// put adds an entry whose key is not there. The shard is locked.
func (s *shard) put(e *Entry, limit int) {
	s.entries[e.key] = e
	switch n := len(s.free) - 1; {
	case n >= 0:
		e.slot, s.free = s.free[n], s.free[:n]
	case len(s.ring) < limit:
		e.slot, s.ring = len(s.ring), append(s.ring, nil)
	default:
		e.slot = s.evict()
	}
	s.ring[e.slot] = e
}

// evict drops the next entry that was not used since the hand last passed, and returns its slot. No slot is free.
func (s *shard) evict() int {
	for {
		slot := s.hand
		s.hand = (s.hand + 1) % len(s.ring)
		e := s.ring[slot]
		if !e.used {
			delete(s.entries, e.key)
			return slot
		}
		e.used = false
	}
}

// drop forgets a key. The shard is locked.
func (s *shard) drop(key []byte) {
	if e := s.entries[string(key)]; e != nil {
		delete(s.entries, e.key)
		s.ring[e.slot] = nil
		s.free = append(s.free, e.slot)
	}
}

// clear forgets everything. When it returns, no fill that began before it is under way.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.entries)
		clear(s.ring)
		s.ring, s.free, s.hand = s.ring[:0], s.free[:0], 0
		s.mu.Unlock()
	}
}
