package redirects

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// cache is the records in memory, bounded in bytes. A look-up takes no lock: it goes to a group by the key's hash, compares a
// byte of each record there, and follows the pointer of those that agree, as a rule of one. So it costs two trips to memory.
// Changes lock a shard, which is a range of groups; evict.go says what makes room.
type cache struct {
	groups []group
	each   int // groups of a shard
	shards [shards]shard
}

const (
	shardBits = 6
	shards    = 1 << shardBits
	// usedMost is how many chances a record gathers.
	usedMost = 3
	// recordGuess is the size of a small record: the table has a place for each that fits the bound, so that as a rule bytes
	// run out first, not places.
	recordGuess = 112
)

// group is one line of the processor's cache: a byte of the hash for each of its records, and the records.
type group struct {
	tags    atomic.Uint64
	records [groupSize]atomic.Pointer[Record]
}

const groupSize = 7

type shard struct {
	mu      sync.Mutex
	flights map[string]*flight // fills under way; see load.go
	number  int
	bytes   int // of all records
	limit   int
	entries atomic.Int64
	eviction
	_       [64]byte
	hits    atomic.Uint64 // of Find
	unknown atomic.Uint64
	_       [64]byte
}

func newCache(bytes int) *cache {
	c := &cache{each: max(1, bytes/recordGuess/groupSize/shards)}
	c.groups = make([]group, c.each*shards)
	for i := range c.shards {
		s := &c.shards[i]
		s.number, s.flights, s.limit = i, map[string]*flight{}, bytes/shards
		s.eviction = newEviction(c.each * groupSize)
	}
	return c
}

func (c *cache) shard(hash uint64) *shard { return &c.shards[hash>>(64-shardBits)] }

// group returns where a key belongs, by the top of its hash; bucket and tag are of its bottom.
func (c *cache) group(hash uint64) *group {
	in, _ := bits.Mul64(hash<<shardBits, uint64(c.each))
	return &c.groups[int(hash>>(64-shardBits))*c.each+int(in)]
}

const (
	ones = 0x0001010101010101 // one for each record of a group
	tops = ones << 7
)

// tagOf returns the byte that stands for a key in its group; 0 is a free place.
func tagOf(hash uint64) uint64 { return max(1, hash>>12&0xff) }

// find returns the record at a key, nil if it is not in memory.
func (c *cache) find(hash uint64, key []byte) *Record {
	_, r := c.group(hash).find(hash, lent(key))
	if r == nil {
		return nil
	}
	if used := r.used.Load(); used < usedMost {
		r.used.Store(used + 1) // one of several at the same time counts
	}
	return r
}

// lent is a key as a string for a look-up, which keeps nothing of it.
func lent(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

func (g *group) find(hash uint64, key string) (at int, r *Record) {
	differ := g.tags.Load() ^ ones*tagOf(hash)
	for agree := (differ - ones) & ^differ & tops; agree != 0; agree &= agree - 1 {
		at = bits.TrailingZeros64(agree) >> 3
		if r = g.records[at].Load(); r != nil && r.RouteKey() == key {
			return at, r
		}
	}
	return -1, nil
}

// set makes a place hold a record, nil for none. The shard is locked.
func (g *group) set(at int, r *Record, tag uint64) {
	g.records[at].Store(r)
	g.tags.Store(g.tags.Load()&^(0xff<<(8*at)) | tag<<(8*at))
}

// put keeps a record unless a newer version is there. One that takes another's place is never missed meanwhile. The shard is
// locked.
func (s *shard) put(c *cache, hash uint64, r *Record) {
	g := c.group(hash)
	at, was := g.find(hash, r.RouteKey())
	switch {
	case was != nil && was.Version > r.Version:
	case was != nil:
		r.used.Store(was.used.Load())
		if r.fresh = was.fresh; r.fresh {
			s.freshBytes += r.bytes() - was.bytes()
		}
		s.bytes += r.bytes() - was.bytes()
		g.records[at].Store(r)
		s.makeRoom(c, 0)
	case s.makeRoom(c, r.bytes()):
		g.set(s.placeIn(g), r, tagOf(hash))
		s.bytes += r.bytes()
		s.entries.Add(1)
		s.admit(c, hash, r)
	}
}

// take empties a place that holds a record.
func (s *shard) take(g *group, at int) {
	r := g.records[at].Load()
	s.bytes -= r.bytes()
	if r.fresh {
		s.freshBytes -= r.bytes()
	}
	s.entries.Add(-1)
	g.set(at, nil, 0)
}

// placeIn returns a free place of a group. If there is none, the record makes room that was asked for least, and the others
// lose a chance.
func (s *shard) placeIn(g *group) (at int) {
	least := uint32(usedMost + 1)
	for i := range g.records {
		r := g.records[i].Load()
		if r == nil {
			return i
		}
		if used := r.used.Load(); used < least {
			at, least = i, used
		}
	}
	for i := range g.records {
		g.records[i].Load().spend()
	}
	s.take(g, at)
	return at
}

// drop forgets a key. The shard is locked.
func (s *shard) drop(c *cache, hash uint64, key []byte) {
	g := c.group(hash)
	if at, r := g.find(hash, lent(key)); r != nil {
		s.take(g, at)
	}
}

// clear forgets all of a shard. The shard is locked.
func (s *shard) clear(c *cache) {
	if s.entries.Load() == 0 {
		return
	}
	first := s.first(c)
	s.queue, s.from = s.queue[:0], 0
	for i := range c.groups[first : first+c.each] {
		g := &c.groups[first+i]
		for at := range g.records {
			if g.records[at].Load() != nil {
				s.take(g, at)
			}
		}
	}
}

// first returns a shard's first group.
func (s *shard) first(c *cache) int { return s.number * c.each }
