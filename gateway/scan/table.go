package scan

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
)

// How much around an address is one source, and how much more the wide one may do.
const (
	narrow4, narrow6 = 32, 64
	wide4, wide6     = 24, 48
	wideSize         = 16
)

// seeds make keys that nobody outside can choose to collide.
type seeds [3]uint64

func newSeeds() (s seeds) {
	for i := range s {
		s[i] = rand.Uint64() | 1
	}
	return s
}

// keysOf returns the keys of an address and of the network around it; neither is 0.
func (s *seeds) keysOf(address netip.Addr) (narrow, wide uint64) {
	if address.Is4() {
		b := address.As4()
		v4 := uint64(binary.BigEndian.Uint32(b[:]))
		return s.mix(v4<<8 | 1), s.mix(v4>>(narrow4-wide4)<<16 | 2)
	}
	b := address.As16()
	v6 := binary.BigEndian.Uint64(b[:8])
	return s.mix(v6), s.mix(v6>>(narrow6-wide6)<<(narrow6-wide6) ^ s[2])
}

func (s *seeds) mix(v uint64) uint64 {
	hi, lo := bits.Mul64(v^s[0], s[1])
	hi, lo = bits.Mul64(hi^s[2], lo^s[0])
	return (hi ^ lo) | 1<<63
}

const (
	shardCount = 64
	groupSize  = 8 // sources of which a new one may take the place
)

// table is the sources, each in the group that its key names.
type table struct {
	shards  [shardCount]shard
	groups  uint64 // of a shard
	evicted atomic.Uint64
}

type shard struct {
	mu      sync.Mutex
	sources []source
	_       [64]byte
}

func (t *table) init(sources int) {
	t.groups = max(1, uint64(sources)/shardCount/groupSize)
	for i := range t.shards {
		t.shards[i].sources = make([]source, t.groups*groupSize)
	}
}

// shard returns where a key belongs.
func (t *table) shard(key uint64) (s *shard, group []source) {
	s = &t.shards[key%shardCount]
	at := key / shardCount % t.groups * groupSize
	return s, s.sources[at : at+groupSize]
}

// find returns a source as of now, nil if it is not there. The shard is locked.
func find(group []source, key uint64, now int64, base float32) *source {
	for i := range group {
		if s := &group[i]; s.key == key {
			s.decay(now, base)
			return s
		}
	}
	return nil
}

// place returns a source as of now, which takes a free place or that of the neighbour with the least guesses. The shard is
// locked.
func (t *table) place(group []source, key uint64, size float32, now int64, base float32) *source {
	if s := find(group, key, now, base); s != nil {
		return s
	}
	least := &group[0]
	for i := range group {
		s := &group[i]
		if s.key == 0 {
			least = s
			break
		}
		if s.decay(now, base); s.guesses/s.size < least.guesses/least.size {
			least = s
		}
	}
	if least.key != 0 && least.guesses > gone {
		t.evicted.Add(1)
	}
	least.begin(key, size, now)
	return least
}

// gone is a count that means nothing any more.
const gone = 0.05

// count returns how many sources there are, and how many of them are refused.
func (t *table) count(now int64, base float32) (tracked, slowed, closed int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for j := range s.sources {
			row := &s.sources[j]
			if row.key == 0 {
				continue
			}
			if row.decay(now, base); row.guesses <= gone {
				continue
			}
			tracked++
			switch {
			case row.isClosed(base):
				closed++
			case row.guesses > row.limit(base):
				slowed++
			}
		}
		s.mu.Unlock()
	}
	return tracked, slowed, closed
}
