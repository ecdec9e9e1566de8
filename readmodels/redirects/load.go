package redirects

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrBusy means that as many reads of the store are under way as may be, and none ended soon. Try again in a second.
var ErrBusy = errors.New("too many reads of the links' store at once")

// State is what memory knows of a key.
type State uint8

// What Find returns.
const (
	NeedsStore State = iota // only the store knows: ask Load
	Hit                     // the record is there
	Unknown                 // there is no such link
)

// Find looks a route key up in memory. It never waits, takes no lock and does not allocate. The key is borrowed.
func (s *Store) Find(routeKey []byte) (*Record, State) {
	hash := xxhash.Sum64(routeKey)
	r, state := s.look(hash, routeKey)
	switch state {
	case Hit:
		s.memory.cache.shard(hash).hits.Add(1)
	case Unknown:
		s.memory.cache.shard(hash).unknown.Add(1)
	}
	return r, state
}

// look is Find, uncounted. That the store does not know a link is no answer while it is behind and somebody else may know.
func (s *Store) look(hash uint64, routeKey []byte) (*Record, State) {
	r, state := s.memory.find(hash, routeKey)
	if state == Unknown && s.asksShared() {
		state = NeedsStore
	}
	return r, state
}

// Load is Find that reads the store if it must: for the goroutines that answer what Find could not. It returns nil when there
// is no such link. Loads of one key at the same time are one read, and no more reads than Config.Reads are under way: one that
// finds no room within Config.Wait fails with ErrBusy.
func (s *Store) Load(routeKey []byte) (*Record, error) {
	hash := xxhash.Sum64(routeKey)
	shard := s.memory.cache.shard(hash)
	shard.mu.Lock()
	// What was read since Find is there; nothing is taken off and read again between this look and the flight.
	if r, state := s.look(hash, routeKey); state != NeedsStore {
		shard.mu.Unlock()
		return r, nil
	}
	if f := shard.flights[string(routeKey)]; f != nil {
		shard.mu.Unlock()
		s.merged.Add(1)
		<-f.done
		return f.record, f.err
	}
	f := &flight{done: make(chan struct{})}
	shard.flights[string(routeKey)] = f
	shard.mu.Unlock()
	s.fly(shard, f, hash, routeKey)
	return f.record, f.err
}

// flight is a fill under way.
type flight struct {
	done   chan struct{} // closed when what follows is there
	record *Record
	err    error
	// outdated: something was committed or switched since it began. It is off the list. Of the shard's lock.
	outdated bool
	// passing: what it brings is for those who wait for it, and not kept; see shared.go.
	passing bool
}

func (s *Store) fly(shard *shard, f *flight, hash uint64, routeKey []byte) {
	defer close(f.done)
	landed, asOf := false, s.current.Load()
	defer func() {
		if !landed { // it panicked; nobody may wait for it
			f.err = errBroken
		}
		if s.land(shard, f, hash, routeKey) {
			s.offer(f.record, asOf)
		}
	}()
	f.record, f.err = s.read(shard, f, hash, routeKey)
	landed = true
}

var errBroken = errors.New("reading a link broke off")

// land keeps what a flight brings, unless it may be old. True: it is a record.
func (s *Store) land(shard *shard, f *flight, hash uint64, routeKey []byte) bool {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if f.outdated {
		return false
	}
	delete(shard.flights, string(routeKey))
	switch {
	case f.err != nil || f.passing:
		return false
	case f.record != nil:
		shard.put(s.memory.cache, hash, f.record)
		return true
	}
	s.memory.remember(hash, routeKey)
	return false
}

// outdate takes a fill of a key off the list. The shard is locked.
func (s *shard) outdate(key []byte) {
	if len(s.flights) == 0 {
		return
	}
	if f := s.flights[string(key)]; f != nil {
		f.outdated = true
		delete(s.flights, string(key))
	}
}

// read asks the live store, and what nodes share while that may be old, within the budget.
func (s *Store) read(shard *shard, f *flight, hash uint64, routeKey []byte) (*Record, error) {
	if !s.enter() {
		s.busy.Add(1)
		return nil, ErrBusy
	}
	defer func() { <-s.reads }()
	s.loads.Add(1)
	own, err := s.readOwn(hash, routeKey)
	if err != nil || !s.asksShared() {
		return own, err
	}
	return s.readShared(shard, f, hash, routeKey, own)
}

// readOwn asks the live store.
func (s *Store) readOwn(hash uint64, routeKey []byte) (*Record, error) {
	s.switching.RLock()
	defer s.switching.RUnlock()
	scratch := s.scratch.Get().(*scratch)
	defer s.scratch.Put(scratch)
	bucket := uint32(hash % events.Buckets)
	scratch.key = append(appendKey(scratch.key[:0], bucket), routeKey...)
	value, closer, err := s.live.DB().Get(scratch.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up a link: %w", err)
	}
	r, err := scratch.pack(routeKey, bucket, value)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, fmt.Errorf("looking up a link: %w", err)
	}
	return r, nil
}

// enter waits for room among the reads, not for long; false: there is none.
func (s *Store) enter() bool {
	select {
	case s.reads <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case s.reads <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// scratch is the working memory of one read.
type scratch struct {
	key    []byte
	record pb.Redirect
}

// pack makes a record of a stored value, which is borrowed.
func (s *scratch) pack(routeKey []byte, bucket uint32, value []byte) (*Record, error) {
	s.record.Reset()
	defer s.record.Reset() // its target is the value's bytes
	if err := s.record.UnmarshalVTUnsafe(value); err != nil {
		return nil, fmt.Errorf("decoding the stored record: %w", err)
	}
	r := NewRecord(routeKey, bucket, &s.record)
	if r == nil {
		return nil, errSize
	}
	return r, nil
}

var errSize = errors.New("the stored record is larger than any link's")
