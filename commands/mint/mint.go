package mint

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
)

// Config is what a minter needs. Only Partitions and Leaser have no default.
type Config struct {
	// Partition is the writer's own of Partitions, a power of two ≤ 4096.
	Partition  int32
	Partitions int
	Leaser     Leaser
	// Key is the newest permutation key; none yet if its version is 0 (see UseKey).
	Key Key
	// Random is the source of random codes: crypto/rand.
	Random io.Reader
	// Logger hears of leases that fail: nobody.
	Logger *slog.Logger
	// Length and RandomLength are of codes drawn with length 0: 7 and 8 characters.
	Length, RandomLength int
	// Depth is the most candidates kept per bucket, Pools the most (namespace, length, kind) that have a pool: 32 and 16.
	// A deeper pool burns less at its rim; one of depth 32 takes 2 MiB / Partitions.
	Depth, Pools int
	// LeastLease and MostLease bound the size of a lease, which begins with the least and doubles: 2^16 and 2^20 ids.
	LeastLease, MostLease uint64
	// FirstWait is how long the first draw of a space waits for its first segment: 250 ms; negative: not at all.
	FirstWait time.Duration
}

func (c *Config) setDefaults() {
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Length = orDefault(c.Length, commands.DefaultCodeLength)
	c.RandomLength = orDefault(c.RandomLength, MinRandomLength)
	c.Depth = orDefault(c.Depth, 32)
	c.Pools = orDefault(c.Pools, 16)
	c.LeastLease = orDefault(c.LeastLease, 1<<16)
	c.MostLease = max(c.LeastLease, orDefault(c.MostLease, 1<<20))
	c.FirstWait = orDefault(c.FirstWait, 250*time.Millisecond)
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (c *Config) check() error {
	switch {
	case !events.ValidPartitions(c.Partitions) || c.Partition < 0 || int(c.Partition) >= c.Partitions:
		return fmt.Errorf("partition %d of %d: not a partition", c.Partition, c.Partitions)
	case c.Leaser == nil:
		return fmt.Errorf("no leaser")
	case c.Length < MinLength || c.Length > events.MaxCodeLength:
		return fmt.Errorf("%w: default length %d", ErrLength, c.Length)
	case c.RandomLength < MinRandomLength || c.RandomLength > events.MaxCodeLength:
		return fmt.Errorf("%w: default random length %d", ErrLength, c.RandomLength)
	}
	return nil
}

// Minter draws ids and codes for one life of one partition's writer: a new life takes a new Minter. It is used by one
// goroutine at a time; only Stats may be called from others.
type Minter struct {
	config  Config
	first   uint32 // bucket
	buckets uint32
	spaces  [MaxSequential + 1]*segments // by space; nil where there is none
	lease   *leasing
	end     context.CancelFunc
	random  *randomness
	pools   *pools
	key     Key
	codes   [MaxSequential + 1]*Permutation
	scratch []byte
	closed  bool
	counts  counts
}

// New begins a life. Close ends it.
func New(config Config) (*Minter, error) {
	config.setDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("opening minter: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	buckets := uint32(events.Buckets / config.Partitions)
	m := &Minter{
		config:  config,
		first:   uint32(config.Partition) * buckets,
		buckets: buckets,
		lease:   &leasing{leaser: config.Leaser, logger: config.Logger, wait: config.FirstWait, life: life},
		end:     end,
		random:  newRandomness(config.Random),
		pools:   newPools(config.Pools, int(buckets), config.Depth),
	}
	m.spaces[plainSpace] = newSegments(plainSpace, m.lease, config.LeastLease, config.MostLease)
	for length := MinLength; length <= MaxSequential; length++ {
		m.spaces[length] = newSegments(uint32(length), m.lease, config.LeastLease, config.MostLease)
	}
	m.UseKey(config.Key)
	return m, nil
}

// Warm asks for the first segments of the spaces that are sure to be needed, without waiting, so that the first draws
// need not.
func (m *Minter) Warm() {
	m.spaces[plainSpace].ask()
	if m.config.Length <= MaxSequential {
		m.spaces[m.config.Length].ask()
	}
}

// UseKey makes key the one that codes are drawn with from now on. A key older than the present one is ignored. Pooled
// candidates of the former key stay good.
func (m *Minter) UseKey(key Key) {
	if key.Version <= m.key.Version {
		return
	}
	m.key, m.codes = key, [MaxSequential + 1]*Permutation{}
}

// Close ends the life: leases under way are given up, and ids not handed out are burnt.
func (m *Minter) Close() {
	m.closed = true
	m.end()
	m.lease.tasks.Wait()
}

// permutation returns the code permutation of a length under the present key.
func (m *Minter) permutation(length int) (*Permutation, error) {
	if m.codes[length] == nil {
		p, err := NewPermutation(m.key, length)
		if err != nil {
			return nil, err
		}
		m.codes[length] = p
	}
	return m.codes[length], nil
}
