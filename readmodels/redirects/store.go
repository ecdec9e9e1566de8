package redirects

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Entry is a link as a redirect node serves it. It is shared and never changed.
type Entry struct {
	// Record is what the link's events fold to.
	Record *pb.Redirect
	// Bucket is the link's.
	Bucket uint32

	key  string // route key
	slot int    // of the shard's ring
	used bool   // since the hand last passed; of the shard's lock
}

// Config is what a store needs. Dir holds the store and nothing else.
type Config struct {
	Dir     string
	Source  runner.Source
	Pebble  runner.PebbleOptions
	Entries int // bound of the map in memory; default 200,000
}

const defaultEntries = 200_000

// Store is the redirects read model: a live Pebble store, the map in front of it, and the runner that feeds both.
type Store struct {
	*runner.Runner
	generations *runner.Generations
	live        atomic.Pointer[runner.Pebble]
	cache       *cache
}

// Open opens the store in a directory, or makes it. It is fed while Run runs.
func Open(cfg Config) (*Store, error) {
	if cfg.Entries == 0 {
		cfg.Entries = defaultEntries
	}
	generations, pebbles, err := runner.OpenGenerations(cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	s := &Store{generations: generations, cache: newCache(cfg.Entries)}
	s.live.Store(pebbles)
	s.Runner, err = runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: cfg.Source,
		Store: pebbles, Projection: &projection{cache: s.cache}, Logger: cfg.Pebble.Logger})
	if err != nil {
		return nil, errors.Join(err, pebbles.Close())
	}
	return s, nil
}

// Close ends the tail and closes the store. Nobody may be looking up, and no run be under way.
func (s *Store) Close() error {
	s.Runner.Close()
	return s.live.Load().Close()
}

// Lookup returns the link at a route key, nil when there is none. It does not allocate when the link is in memory.
func (s *Store) Lookup(routeKey []byte) (*Entry, error) {
	hash := xxhash.Sum64(routeKey)
	shard := s.cache.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := shard.entries[string(routeKey)]; e != nil {
		e.used = true
		shard.hits++
		return e, nil
	}
	shard.misses++
	e, err := s.load(shard, routeKey, uint32(hash%events.Buckets))
	if err != nil || e == nil {
		return nil, err
	}
	shard.put(e, s.cache.perShard)
	return e, nil
}

// Cached is Lookup as far as the map in memory goes, without waiting: known is false where it would have to read from the
// store, or wait for somebody who does.
func (s *Store) Cached(routeKey []byte) (entry *Entry, known bool) {
	shard := s.cache.shard(xxhash.Sum64(routeKey))
	if !shard.mu.TryLock() {
		return nil, false
	}
	defer shard.mu.Unlock()
	e := shard.entries[string(routeKey)]
	if e == nil {
		return nil, false // Lookup counts it
	}
	e.used = true
	shard.hits++
	return e, true
}

// load reads from the live store, with the shard locked: see the package's invariant.
func (s *Store) load(locked *shard, routeKey []byte, bucket uint32) (*Entry, error) {
	locked.key = append(appendKey(locked.key[:0], bucket), routeKey...)
	value, closer, err := s.live.Load().DB().Get(locked.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up a link: %w", err)
	}
	record := &pb.Redirect{}
	err = record.UnmarshalVT(value)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, fmt.Errorf("looking up a link: %w", err)
	}
	return &Entry{Record: record, Bucket: bucket, key: string(routeKey)}, nil
}

// CacheStats are how often the map in memory had what was asked for.
type CacheStats struct {
	Entries, Hits, Misses uint64
}

// CacheStats returns the figures since the start.
func (s *Store) CacheStats() (sum CacheStats) {
	for i := range s.cache.shards {
		shard := &s.cache.shards[i]
		shard.mu.Lock()
		sum.Entries += uint64(len(shard.entries))
		sum.Hits += shard.hits
		sum.Misses += shard.misses
		shard.mu.Unlock()
	}
	return sum
}

// Rebuild builds the store again from the log beside the live one, compares the two at the same positions by a hash per
// bucket, and switches. Progress (may be nil) hears how many records were folded of how many.
func (s *Store) Rebuild(ctx context.Context, progress func(done, total int64)) (*runner.Report, error) {
	rebuild := &runner.Rebuild{Live: s.Runner, Generations: s.generations, Projection: &projection{}, BucketOf: bucketOf,
		Progress: progress, Switch: s.switchTo}
	report, err := rebuild.Run(ctx)
	if err != nil {
		return report, fmt.Errorf("rebuilding redirects: %w", err)
	}
	return report, nil
}

// switchTo makes look-ups read from another store. A fill holds its shard's lock while it reads, so after the map has been
// cleared nobody reads from the old store and nothing of it is left.
func (s *Store) switchTo(next *runner.Pebble) {
	s.live.Store(next)
	s.cache.clear()
}

// HashPerBucket returns a hash per bucket over everything in the store at one moment.
func (s *Store) HashPerBucket() (_ map[uint32][32]byte, err error) {
	snapshot := s.live.Load().DB().NewSnapshot()
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	return runner.HashPerBucket(snapshot, bucketOf)
}
