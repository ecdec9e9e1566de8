package scan

import (
	"math"
	"slices"
	"time"
)

// Rates and shares. All counts decay by e in a window, so that a steady rate comes to rest at what it brings in one.
const (
	window       = time.Minute
	linkShare    = 0.5  // guesses that a followed link makes up for
	mostLinks    = 1024 // that count
	closeAt      = 2    // times the limit
	mostOver     = 16   // times the limit that guesses are counted up to: how long a source stays refused is bounded
	freshLinks   = 16   // new ones in a row that a closed source may follow
	freshPerTime = 10   // and how many in a window at least
	pressed      = 8    // the limit's part while the node meets too many guesses
)

// source is one row of the table: what an address or a network did lately.
type source struct {
	key     uint64  // 0: free
	at      int64   // nanoseconds, when the counts were as they stand
	guesses float32 // unknown codes
	links   float32 // followed
	tokens  float32 // links that it may follow for the first time while it is closed
	size    float32 // how many times as much as an address it may do
	unknown recent8
	known   recent16
}

// recent8 and recent16 are hashes of what was asked for last, newest overwriting oldest.
type (
	recent8 struct {
		hashes [8]uint32
		next   uint32
	}
	recent16 struct {
		hashes [16]uint32
		next   uint32
	}
)

// note reports whether a hash is there, and keeps it.
func (r *recent8) note(hash uint32) (was bool) {
	if slices.Contains(r.hashes[:], hash) {
		return true
	}
	r.hashes[r.next%8] = hash
	r.next++
	return false
}

func (r *recent16) has(hash uint32) bool { return slices.Contains(r.hashes[:], hash) }

func (r *recent16) add(hash uint32) {
	r.hashes[r.next%16] = hash
	r.next++
}

func (s *source) begin(key uint64, size float32, now int64) {
	*s = source{key: key, at: now, size: size, tokens: freshLinks * size}
}

// decay brings the counts to now. What a closed source followed before stays, for it goes on at that rate.
func (s *source) decay(now int64, base float32) {
	passed := float64(now-s.at) / float64(window)
	if passed <= 0 {
		return // clocks of several readers
	}
	s.at = now
	s.tokens = min(s.tokens+float32(passed)*max(freshPerTime*s.size, s.links), freshLinks*s.size+s.links/4)
	keep := float32(math.Exp(-passed))
	if !s.isClosed(base) {
		s.links *= keep
	}
	s.guesses *= keep
}

// limit is how many guesses are answered.
func (s *source) limit(base float32) float32 { return base*s.size + linkShare*s.links }

// guess counts an unknown code and returns for how long the source's guesses are refused from now on, 0 if they are not.
func (s *source) guess(base float32, hash uint32) time.Duration {
	limit := s.limit(base)
	if !s.unknown.note(hash) {
		s.guesses = min(s.guesses+1, mostOver*limit)
	}
	return s.over(limit)
}

// over returns when the count of guesses will have decayed so far that one more is within the limit.
func (s *source) over(limit float32) time.Duration {
	if s.guesses <= limit {
		return 0
	}
	return max(time.Second, time.Duration(math.Log(float64(s.guesses/max(limit-1, 1)))*float64(window)))
}

func (s *source) isClosed(base float32) bool { return s.guesses > closeAt*s.limit(base) }

// mayFollow reports whether a link may be told, nil being any that it did not follow lately.
func (s *source) mayFollow(base float32, link *uint32) bool {
	return link != nil && s.known.has(*link) || !s.isClosed(base) || s.tokens >= 1
}

// follow counts a link that is told.
func (s *source) follow(base float32, link uint32) {
	switch {
	case s.known.has(link):
		return
	case s.isClosed(base):
		s.tokens--
	default:
		s.links = min(s.links+1, mostLinks*s.size)
	}
	s.known.add(link)
}
