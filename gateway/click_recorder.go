package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// ClickAppender writes records to the clicks topic. answer is called exactly once for each record, from any goroutine, with
// the record's offset or with why it may not have been written. *eventlog.Appender is one.
type ClickAppender interface {
	AppendAsync(ctx context.Context, partition int32, rec eventlog.Record, answer func(offset int64, err error))
}

// ClickConfig is a recorder's settings. Zero values mean the defaults.
type ClickConfig struct {
	Node       string
	Region     string
	Partitions int // of the clicks topic; required

	// VisitorSecret keys the visitor numbers and must be the same on all nodes, else one visitor counts once per node.
	// Default: random, known to this process alone.
	VisitorSecret []byte

	FlushEvery time.Duration // longest time that a click waits for company; default 100 ms
	BlockBytes int           // raw clicks that fill a block; default 256 KiB
	MaxBytes   int           // memory for blocks, open and in flight, in all; default 64 MiB
}

const (
	clickFlushEvery = 100 * time.Millisecond
	clickBlockBytes = 256 << 10
	clickMaxBytes   = 64 << 20
)

func (c ClickConfig) withDefaults() (ClickConfig, error) {
	if c.Partitions < 1 {
		return c, fmt.Errorf("click recorder: %d partitions", c.Partitions)
	}
	if c.FlushEvery <= 0 {
		c.FlushEvery = clickFlushEvery
	}
	if c.BlockBytes <= 0 {
		c.BlockBytes = clickBlockBytes
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = clickMaxBytes
	}
	if len(c.VisitorSecret) == 0 {
		c.VisitorSecret = make([]byte, 32)
		_, _ = rand.Read(c.VisitorSecret) // never fails
	}
	return c, nil
}

// ClickRecorder takes the clicks of a redirect node and brings them to the log as blocks.
//
// What holds: Record never blocks and, in the steady state, never allocates. Every click has the next sequence of its
// (node, boot, partition), dense from 1; a click that finds no room is dropped, which uses up its sequence and is counted.
// Blocks of a partition go out one after the other, each again until it is acknowledged: a block that arrives twice is told
// by its sequences, and none overtakes another.
//
// Clicks wait in memory: what kills the process without a word (kill -9, power) takes the clicks along that were not
// acknowledged yet, which are those of the last 100 ms when the log answers.
type ClickRecorder struct {
	config   ClickConfig
	boot     [16]byte
	appender ClickAppender
	logger   *slog.Logger

	partitions []clickPartition
	arenas     clickArenas
	agents     *clickAgents

	closed  atomic.Bool
	abandon context.CancelFunc // ends the senders before all is sent
	senders sync.WaitGroup
}

// NewClickRecorder starts a recorder with one sender per partition. Close ends it.
func NewClickRecorder(appender ClickAppender, config ClickConfig, logger *slog.Logger) (*ClickRecorder, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &ClickRecorder{config: config, appender: appender, logger: logger, agents: newClickAgents(), abandon: cancel}
	_, _ = rand.Read(r.boot[:]) // never fails
	size := config.BlockBytes + clickMaxRawBytes
	r.arenas = clickArenas{size: size, free: make(chan []byte, max(config.MaxBytes/size, config.Partitions+1))}
	r.partitions = make([]clickPartition, config.Partitions)
	for i := range r.partitions {
		r.partitions[i].start(ctx, r, int32(i))
	}
	return r, nil
}

// Boot returns the random bytes that name this process's clicks.
func (r *ClickRecorder) Boot() [16]byte { return r.boot }

// Record takes a click, or drops and counts it. It never blocks.
func (r *ClickRecorder) Record(c *Click) {
	// Any partition will do; a random one spreads a hot link without a counter that all cores write to.
	i := uint64(mathrand.Uint32()) * uint64(len(r.partitions)) >> 32
	r.partitions[i].record(c)
}

// Close takes no more clicks, sends what there is and returns when all of it is acknowledged, or with an error when ctx is
// done first. Idempotent.
func (r *ClickRecorder) Close(ctx context.Context) error {
	r.closed.Store(true)
	for i := range r.partitions {
		r.partitions[i].close()
	}
	done := make(chan struct{})
	go func() {
		r.senders.Wait()
		close(done)
	}()
	select {
	case <-done:
		r.abandon()
		return nil
	case <-ctx.Done():
		r.abandon()
		<-done
		lost := r.Status().Waiting
		if lost == 0 {
			return nil
		}
		return fmt.Errorf("sending the last clicks: %d not acknowledged: %w", lost, ctx.Err())
	}
}

// ClickStatus is what a recorder has done so far, in clicks unless named otherwise.
type ClickStatus struct {
	Taken        uint64 `json:"taken"` // took a sequence, dropped ones included
	Sent         uint64 `json:"sent"`  // acknowledged by the log
	Dropped      uint64 `json:"dropped"`
	Waiting      uint64 `json:"waiting"`              // in open blocks and in blocks not acknowledged
	Blocks       uint64 `json:"blocks"`               // acknowledged
	WaitingBytes int    `json:"waiting_bytes"`        // memory of the blocks that are not free
	LastError    string `json:"last_error,omitempty"` // of the last append that failed, empty when the one after it succeeded
	Durability   string `json:"durability"`           // what a kill of this process would lose
}

// ClickDurability says what is not safe yet.
const ClickDurability = "clicks wait in memory until the log has them: kill -9 of this node loses its open blocks"

// Status may be called at any time.
func (r *ClickRecorder) Status() ClickStatus {
	s := ClickStatus{WaitingBytes: r.arenas.used(), Durability: ClickDurability}
	for i := range r.partitions {
		r.partitions[i].addTo(&s)
	}
	return s
}

// clickArenas is the bounded memory of blocks. Arenas are made on demand and used again.
type clickArenas struct {
	size int
	made atomic.Int64
	free chan []byte // its capacity is the bound
}

// take returns an empty arena, or nil when the bound is reached.
func (a *clickArenas) take() []byte {
	select {
	case arena := <-a.free:
		return arena
	default:
	}
	if a.made.Add(1) > int64(cap(a.free)) {
		a.made.Add(-1)
		return nil
	}
	return make([]byte, 0, a.size)
}

func (a *clickArenas) put(arena []byte) { a.free <- arena[:0] }

func (a *clickArenas) used() int { return (int(a.made.Load()) - len(a.free)) * a.size }

// errClickUnencodable: a block is larger than its topic takes; it cannot be sent at all.
var errClickUnencodable = errors.New("click block is too large for its topic")
