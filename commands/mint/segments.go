package mint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// spaceShift separates an id's space from its ordinal: id = space<<spaceShift | ordinal, below 2^63.
const spaceShift = 56

// plainSpace is the space of ids whose links have a custom or random code. The other spaces are code lengths: the code
// is the ordinal, permuted.
const plainSpace = 0

// Segment is the ordinals [From, To) of a space, leased to one life.
type Segment struct {
	Space    uint32
	From, To uint64
}

// Leaser gives out segments. No two calls, from whatever process, may return overlapping ones of a space, and those that
// one minter receives must ascend. It is called from goroutines of the minter's and may block until ctx ends; a segment
// whose answer is lost is burnt.
type Leaser interface {
	Lease(ctx context.Context, space uint32, size uint64) (Segment, error)
}

const (
	// leaseTimeout ends an attempt, so that a lost answer is asked for again.
	leaseTimeout = 5 * time.Second
	// firstPause and lastPause bound the growing pause between failed attempts.
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// never is a trigger that no ordinal reaches.
const never = math.MaxUint64

// segments are the leased ordinals of one space, double-buffered: when half of a segment is used, the next is asked for
// in the background.
type segments struct {
	space    uint32
	limit    uint64 // ordinals lie below
	current  Segment
	spare    Segment
	trigger  uint64 // the ordinal at which the next segment is asked for
	alarm    uint64 // the ordinal at which it is late
	size     uint64 // of the next lease; doubles up to most
	most     uint64
	arriving chan Segment
	asked    bool
	waited   bool
	lease    *leasing

	left, segment, leased, failures atomic.Uint64 // for Stats
}

// leasing is what the spaces of one life share.
type leasing struct {
	leaser Leaser
	logger *slog.Logger
	wait   time.Duration // for the first segment of a space
	// life is a context kept in a struct because it is what it says: Close ends it.
	life  context.Context
	tasks sync.WaitGroup
}

func newSegments(space uint32, l *leasing, least, most uint64) *segments {
	s := &segments{space: space, limit: 1 << spaceShift, size: least, most: most, arriving: make(chan Segment, 1), lease: l}
	if space != plainSpace {
		s.limit = min(s.limit, powers[space])
		// A short code space must not be used up by lives that end early.
		s.most = max(least, min(most, s.limit>>12))
	}
	return s
}

// take returns the next ordinal, or ErrNoIDs.
func (s *segments) take() (uint64, error) {
	if s.current.From == s.current.To && !s.advance() {
		return 0, ErrNoIDs
	}
	ordinal := s.current.From
	s.current.From++
	if ordinal >= s.trigger {
		s.trigger = never
		s.ask()
	}
	if ordinal >= s.alarm {
		s.alarm = never
		s.warn()
	}
	return ordinal, nil
}

// warn says once per segment that a fifth of it is left and nothing follows.
func (s *segments) warn() {
	if s.receive(); s.spare.From == s.spare.To {
		s.lease.logger.Warn("leased ids run low: creating links stops when they are used up", "space", s.space,
			"left", s.current.To-s.current.From, "failed_attempts", s.failures.Load())
	}
}

// advance makes the spare segment the current one. It waits only for the first segment of the life, and only once.
func (s *segments) advance() bool {
	s.receive()
	if s.spare.From == s.spare.To {
		s.ask()
		if s.waited || s.lease.wait <= 0 {
			return false
		}
		s.await()
	}
	if s.spare.From == s.spare.To {
		return false
	}
	s.current, s.spare = s.spare, Segment{}
	s.segment.Store(s.current.To - s.current.From)
	size := s.current.To - s.current.From
	s.trigger, s.alarm = s.current.From+size/2, s.current.To-1-(size-1)/5
	return true
}

func (s *segments) await() {
	timer := time.NewTimer(s.lease.wait)
	defer timer.Stop()
	select {
	case arrived := <-s.arriving:
		s.accept(arrived)
	case <-timer.C:
	case <-s.lease.life.Done():
	}
	s.waited = true
}

func (s *segments) receive() {
	select {
	case arrived := <-s.arriving:
		s.accept(arrived)
	default:
	}
}

func (s *segments) accept(arrived Segment) {
	s.spare, s.asked, s.waited = arrived, false, true
	s.size = min(s.size*2, s.most)
}

// ask starts leasing the next segment unless that is under way or done.
func (s *segments) ask() {
	if s.asked || s.spare.From != s.spare.To || s.lease.life.Err() != nil {
		return
	}
	s.asked = true
	size, floor := s.size, s.current.To
	s.lease.tasks.Go(func() { s.obtain(size, floor) })
}

// obtain leases a segment, trying until the life ends.
func (s *segments) obtain(size, floor uint64) {
	for pause := firstPause; s.lease.life.Err() == nil; pause = min(2*pause, lastPause) {
		segment, err := s.attempt(size, floor)
		if err == nil {
			s.leased.Add(segment.To - segment.From)
			s.left.Add(segment.To - segment.From) // until the next draw knows better
			s.arriving <- segment                 // buffered; one is under way at most
			return
		}
		if s.lease.life.Err() != nil {
			return
		}
		s.failures.Add(1)
		s.lease.logger.Warn("leasing ids failed", "space", s.space, "size", size, "error", err)
		select {
		case <-time.After(pause):
		case <-s.lease.life.Done():
		}
	}
}

func (s *segments) attempt(size, floor uint64) (Segment, error) {
	ctx, cancel := context.WithTimeout(s.lease.life, leaseTimeout)
	defer cancel()
	segment, err := s.lease.leaser.Lease(ctx, s.space, size)
	if err != nil {
		return Segment{}, fmt.Errorf("leasing segment: %w", err)
	}
	return s.check(segment, floor)
}

// check refuses segments that would break the invariant, and cuts what lies beyond the space.
func (s *segments) check(segment Segment, floor uint64) (Segment, error) {
	if segment.Space != s.space || segment.From >= segment.To || segment.From < floor {
		return Segment{}, fmt.Errorf("segment [%d, %d) of space %d does not follow %d of space %d", segment.From, segment.To, segment.Space, floor, s.space)
	}
	if segment.From >= s.limit {
		return Segment{}, errSpaceUsedUp
	}
	segment.To = min(segment.To, s.limit)
	if s.space == plainSpace {
		segment.From = max(segment.From, 1) // the id 0 means: none
	}
	if segment.From == segment.To {
		return Segment{}, errSpaceUsedUp
	}
	return segment, nil
}

var errSpaceUsedUp = errors.New("the space has no more ids")

// publish makes the number of ids left visible to Stats.
func (s *segments) publish() {
	if s.asked {
		s.receive()
	}
	s.left.Store(s.current.To - s.current.From + s.spare.To - s.spare.From)
}
