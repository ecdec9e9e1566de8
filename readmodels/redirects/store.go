package redirects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Config is what a store needs. Dir holds the store and nothing else.
type Config struct {
	Dir    string
	Source runner.Source
	Pebble runner.PebbleOptions
	// Memory bounds the records in memory, in bytes; default 64 MiB, half a million links. The filter's two bytes a link
	// come on top, and for the collector's sake about as much again while much of it changes.
	Memory int
	// Reads is how many reads of the store may be under way; default 64.
	Reads int
	// Wait is how long a read waits for room among them before it fails with ErrBusy; default 50 ms.
	Wait time.Duration
	// Shared is what nodes share, nil if they share nothing; see SetCurrent.
	Shared Shared
	// Observe hears of every commit: see runner.Config.
	Observe func(oldestStampUS int64)
}

const (
	defaultMemory = 64 << 20
	defaultReads  = 64
	defaultWait   = 50 * time.Millisecond
)

// Store is the redirects read model: a live Pebble store, what is in memory in front of it, and the runner that feeds both.
type Store struct {
	*runner.Runner
	generations *runner.Generations
	logger      *slog.Logger
	memory      *memory
	reads       chan struct{} // a place for each read under way
	wait        time.Duration
	scratch     sync.Pool    // of *scratch
	shared      Shared       // nil: none
	current     atomic.Int64 // see SetCurrent, in nanoseconds since 1970; 0: behind

	switching sync.RWMutex // held while live is read from, and to exchange it
	live      *runner.Pebble

	loads, merged, busy atomic.Uint64

	sharedNewer, sharedOlder atomic.Uint64

	endLearning context.CancelFunc
	learning    sync.WaitGroup
}

// Open opens the store in a directory, or makes it. It is fed while Run runs.
func Open(cfg Config) (*Store, error) {
	cfg.fillIn()
	generations, live, err := runner.OpenGenerations(cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	s := &Store{generations: generations, live: live, memory: newMemory(cfg.Memory), logger: cfg.Pebble.Logger,
		reads: make(chan struct{}, cfg.Reads), wait: cfg.Wait, shared: cfg.Shared}
	s.scratch.New = func() any { return &scratch{} }
	s.Runner, err = runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: cfg.Source,
		Store: live, Projection: &projection{memory: s.memory}, Logger: cfg.Pebble.Logger, Observe: cfg.Observe})
	if err != nil {
		return nil, errors.Join(err, live.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.endLearning = cancel
	s.learning.Go(func() { s.learn(ctx) })
	return s, nil
}

func (c *Config) fillIn() {
	if c.Memory <= 0 {
		c.Memory = defaultMemory
	}
	if c.Reads <= 0 {
		c.Reads = defaultReads
	}
	if c.Wait <= 0 {
		c.Wait = defaultWait
	}
	if c.Pebble.Logger == nil {
		c.Pebble.Logger = slog.New(slog.DiscardHandler)
	}
}

// Close ends the tail and closes the store. Nobody may be looking up, and no run be under way.
func (s *Store) Close() error {
	s.endLearning()
	s.learning.Wait()
	s.Runner.Close()
	return s.live.Close()
}

// Lookup returns the link at a route key, nil when there is none: Find and then Load, unpacked into what is the caller's.
func (s *Store) Lookup(routeKey []byte) (*pb.Redirect, error) {
	r, state := s.Find(routeKey)
	if state == NeedsStore {
		var err error
		if r, err = s.Load(routeKey); err != nil {
			return nil, err
		}
	}
	if r == nil {
		return nil, nil
	}
	link := &pb.Redirect{}
	r.Message(link)
	return link, nil
}

// CacheStats are how often memory had the answer, and what it takes.
type CacheStats struct {
	Hits    uint64 // of Find
	Unknown uint64 // answered without the store
	Misses  uint64 // Load asked the store or waited for another that did
	Busy    uint64 // reads that found no room

	SharedNewer uint64 // answers from Shared, which knew of a version that the store has not applied
	SharedOlder uint64 // what Shared said was refused: the store has a newer version

	Entries, Bytes            int // links in memory
	AbsentEntries             int
	FilterKeys, FilterBytes   int
	FilterStripes, AllStripes int // those whose keys are known, of how many
}

// CacheStats returns the figures since the start.
func (s *Store) CacheStats() CacheStats {
	sum := CacheStats{Misses: s.loads.Load() + s.merged.Load(), Busy: s.busy.Load(), AllStripes: stripes,
		SharedNewer: s.sharedNewer.Load(), SharedOlder: s.sharedOlder.Load()}
	for i := range s.memory.cache.shards {
		shard := &s.memory.cache.shards[i]
		sum.Hits += shard.hits.Load()
		sum.Unknown += shard.unknown.Load()
		sum.Entries += int(shard.entries.Load())
		sum.AbsentEntries += int(s.memory.absent.shards[i].entries.Load())
		shard.mu.Lock()
		sum.Bytes += shard.bytes
		shard.mu.Unlock()
	}
	for i := range s.memory.known.stripes {
		sum.addStripe(&s.memory.known.stripes[i])
	}
	return sum
}

func (sum *CacheStats) addStripe(s *stripe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keys := s.keys.Load(); keys != nil {
		sum.FilterKeys += keys.Keys()
		sum.FilterBytes += keys.Bytes()
		sum.FilterStripes++
	}
}

// Rebuild builds the store again from the log beside the live one, compares the two at the same positions by a hash per
// bucket, and switches. Progress (may be nil) hears how many records were folded of how many.
func (s *Store) Rebuild(ctx context.Context, progress func(done, total int64)) (*runner.Report, error) {
	return s.rebuild(ctx, false, progress)
}

// Repair is Rebuild of a store that was found to be damaged: nothing is compared, the damaged store is kept beside the new one,
// and if the damage stopped the runner, Run may be called again. It must not run then.
func (s *Store) Repair(ctx context.Context, progress func(done, total int64)) (*runner.Report, error) {
	return s.rebuild(ctx, true, progress)
}

func (s *Store) rebuild(ctx context.Context, damaged bool, progress func(done, total int64)) (*runner.Report, error) {
	rebuild := &runner.Rebuild{Live: s.Runner, Generations: s.generations, Projection: &projection{}, BucketOf: bucketOf,
		Progress: progress, Switch: s.switchTo, Damaged: damaged}
	report, err := rebuild.Run(ctx)
	if err != nil {
		return report, fmt.Errorf("rebuilding redirects: %w", err)
	}
	return report, nil
}

// switchTo makes look-ups read from another store. Afterwards nobody reads from the old one and nothing of it is left.
func (s *Store) switchTo(next *runner.Pebble) {
	s.switching.Lock()
	s.live = next
	s.switching.Unlock()
	s.memory.forget()
}

// MarkFresh writes down that the store holds all that the log had acknowledged at this instant; see runner.Pebble.MarkFresh.
func (s *Store) MarkFresh(at time.Time) error {
	s.switching.RLock() // the live store stays open
	defer s.switching.RUnlock()
	return s.live.MarkFresh(at)
}

// FreshAt returns the newest instant that was marked; the zero time while the store never held all of the log.
func (s *Store) FreshAt() (time.Time, error) {
	s.switching.RLock()
	defer s.switching.RUnlock()
	return s.live.FreshAt()
}

// HashPerBucket returns a hash per bucket over everything in the store at one moment.
func (s *Store) HashPerBucket() (_ map[uint32][32]byte, err error) {
	s.switching.RLock()
	snapshot := s.live.DB().NewSnapshot()
	s.switching.RUnlock()
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	return runner.HashPerBucket(snapshot, bucketOf)
}
