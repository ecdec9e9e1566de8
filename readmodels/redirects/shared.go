package redirects

import (
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Shared is a tier that nodes share. What it says may be old, and is weighed against what the store has applied.
type Shared interface {
	// Get returns what the tier holds of a link; nil: nothing, or it does not say so in a time that a visit can wait. It is
	// called within Config.Reads. The key is borrowed, the record the caller's.
	Get(routeKey []byte) *pb.Redirect
	// Offer gives the tier a link as it was at the log's end at that time. It never waits; the tier need not take it.
	Offer(r *Record, asOf time.Time)
}

// SetCurrent says when the store was last known to stand at the log's end, but for moments. The zero time: it may be behind by
// more, because it has not read the log to its end yet, has stopped, or is cut off. A store starts like that.
//
// While it is behind, the tier is asked for what memory does not have, and the newer of what the tier and the store know is the
// answer. So that is never older than what the store has applied. Of what only the tier knows nothing is kept in memory,
// neither a link nor that there is none: the tier keeps that itself, where its own notices take it away. A store that is
// current does not ask the tier, and offers what it reads.
func (s *Store) SetCurrent(asOf time.Time) {
	if asOf.IsZero() {
		s.current.Store(0)
		return
	}
	s.current.Store(asOf.UnixNano())
}

// asksShared reports whether the store is behind and has a tier to ask.
func (s *Store) asksShared() bool { return s.shared != nil && s.current.Load() == 0 }

// readShared asks the tier about a link that the store knows as own, nil if it does not.
func (s *Store) readShared(shard *shard, f *flight, hash uint64, routeKey []byte, own *Record) (*Record, error) {
	link := s.shared.Get(routeKey)
	// What was committed while the tier was asked is in the store by now. A flight that did not see it is not kept either.
	shard.mu.Lock()
	outdated := f.outdated
	shard.mu.Unlock()
	if outdated {
		var err error
		if own, err = s.readOwn(hash, routeKey); err != nil {
			return nil, err
		}
	}
	if link == nil || own != nil && link.GetVersion() <= own.Version {
		if link != nil && link.GetVersion() < own.Version {
			s.sharedOlder.Add(1)
		}
		f.passing = own == nil
		return own, nil
	}
	f.passing = true
	theirs := NewRecord(routeKey, uint32(hash%events.Buckets), link)
	if theirs == nil {
		return own, nil
	}
	s.sharedNewer.Add(1)
	return theirs, nil
}

// offer shares a link that was read while the store was current as of that time.
func (s *Store) offer(r *Record, asOf int64) {
	if s.shared != nil && asOf != 0 {
		s.shared.Offer(r, time.Unix(0, asOf))
	}
}

// EachInMemory yields every link that is in memory, and as of when it is current, while the store is; those that come or go
// meanwhile, maybe.
func (s *Store) EachInMemory(yield func(r *Record, asOf time.Time) bool) {
	cache := s.memory.cache
	for i := range cache.groups {
		for at := range cache.groups[i].records {
			asOf := s.current.Load()
			r := cache.groups[i].records[at].Load()
			if r == nil {
				continue
			}
			if asOf == 0 || !yield(r, time.Unix(0, asOf)) {
				return
			}
		}
	}
}
