package redirects

import "github.com/cespare/xxhash/v2"

// eviction decides which records of a shard make room, by S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO Queues are All You
// Need for Cache Eviction, 2023), with a hand over the places instead of its second queue. A record begins as fresh. Fresh
// ones have a tenth of the bytes: the oldest goes unless it was asked for again, so that a visitor who asks for each link
// once moves nothing else out. All others have a chance for each time they were asked for, which the hand takes. Of what
// went as fresh the hash is remembered; who comes back soon is not fresh again. It is guarded by the shard's lock.
type eviction struct {
	freshBytes int
	queue      []uint64 // hashes of fresh records, oldest first, from here on; some are gone
	from       int
	ghosts     []uint16 // by hash: a piece of the hash of what went
	hand       int      // place, counted over the shard's groups
}

const freshShare = 10 // one part of so many

func newEviction(places int) eviction { return eviction{ghosts: make([]uint16, places)} }

// ghost returns where a hash is remembered, and as what.
func (e *eviction) ghost(hash uint64) (at *uint16, is uint16) {
	return &e.ghosts[hash>>20%uint64(len(e.ghosts))], uint16(hash) | 1
}

// admit takes note of a record that has a place now.
func (s *shard) admit(c *cache, hash uint64, r *Record) {
	if at, is := s.ghost(hash); *at == is {
		*at = 0
		return
	}
	r.fresh = true
	s.freshBytes += r.bytes()
	s.queue = append(s.queue, hash)
	if len(s.queue) > len(s.ghosts) { // of records that are gone, mostly
		s.queue = s.queue[:copy(s.queue, s.queue[s.from:])]
		for s.from = 0; len(s.queue)-s.from > len(s.ghosts)/2; {
			s.judgeFresh(c)
		}
	}
}

// makeRoom takes records until so many bytes are free; false if the shard is too small for them.
func (s *shard) makeRoom(c *cache, bytes int) bool {
	if bytes > s.limit {
		return false
	}
	for s.bytes+bytes > s.limit {
		if s.freshBytes > s.limit/freshShare || s.freshBytes == s.bytes {
			s.judgeFresh(c)
		} else {
			s.moveHand(c)
		}
	}
	return true
}

// judgeFresh decides on the oldest fresh record: it goes, or is fresh no longer.
func (s *shard) judgeFresh(c *cache) {
	hash := s.queue[s.from]
	if s.from++; s.from == len(s.queue) {
		s.queue, s.from = s.queue[:0], 0
	}
	g := c.group(hash)
	for i := range g.records {
		r := g.records[i].Load()
		if r == nil || !r.fresh || xxhash.Sum64String(r.RouteKey()) != hash {
			continue
		}
		if r.used.Load() > 0 {
			r.fresh = false
			s.freshBytes -= r.bytes()
			return
		}
		s.take(g, i)
		at, is := s.ghost(hash)
		*at = is
		return
	}
}

// moveHand looks at the next place.
func (s *shard) moveHand(c *cache) {
	g, at := &c.groups[s.first(c)+s.hand/groupSize], s.hand%groupSize
	if r := g.records[at].Load(); r != nil && !r.fresh && !r.spend() {
		s.take(g, at)
	}
	s.hand = (s.hand + 1) % (c.each * groupSize)
}

// spend takes a chance from a record and reports whether there was one.
func (r *Record) spend() bool {
	used := r.used.Load()
	if used > 0 {
		r.used.Store(used - 1)
	}
	return used > 0
}
