package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway/spool"
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
	BlockBytes int           // encoded clicks that fill a block; default 248 KiB
	MaxAge     time.Duration // blocks of an earlier process that are older are dropped; default: none are
	Spool      string        // file in which clicks wait; default: memory
	MaxBytes   int64         // bound of the spool; default 64 MiB
}

const (
	clickFlushEvery = 100 * time.Millisecond
	clickBlockBytes = 248 << 10
	clickMaxMemory  = 64 << 20
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
		c.MaxBytes = clickMaxMemory
	}
	if len(c.VisitorSecret) == 0 {
		c.VisitorSecret = make([]byte, 32)
		_, _ = rand.Read(c.VisitorSecret) // never fails
	}
	return c, nil
}

// ClickRecorder takes the clicks of a redirect node and brings them to the log as blocks.
//
// What holds: Record never blocks and, in the steady state, never allocates and makes no system call. Every click has the
// next sequence of its (node, boot, partition), dense from 1; a click that finds no room is dropped, which uses up its
// sequence and is counted. Blocks of a partition go out one after the other, each again until it is acknowledged: a block
// that arrives twice is told by its sequences, and none overtakes another.
//
// Clicks wait in a spool (package spool), in the bytes that go to the log. With a file, the end of the process takes none
// along: the next one sends first what it finds, byte for byte, under the names it was recorded with.
type ClickRecorder struct {
	config   ClickConfig
	boot     [16]byte
	appender ClickAppender
	logger   *slog.Logger

	partitions []clickPartition
	agents     *clickAgents
	visitors   *clickVisitors
	phase      time.Duration // shifts the flushes of this node against those of others
	spool      *spool.Spool
	found      clickFound

	abandon context.CancelFunc // ends the senders before all is sent
	senders sync.WaitGroup
	unmap   sync.Once
}

// NewClickRecorder starts a recorder with one sender per partition. Close ends it. Without a usable file, clicks wait in
// memory: redirects go on, and Status says so.
func NewClickRecorder(appender ClickAppender, config ClickConfig, logger *slog.Logger) (*ClickRecorder, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &ClickRecorder{config: config, appender: appender, logger: logger, agents: newClickAgents(),
		visitors: newClickVisitors(config.VisitorSecret), abandon: cancel,
		phase: mathrand.N(config.FlushEvery)}
	_, _ = rand.Read(r.boot[:]) // never fails
	left, err := r.openSpool()
	if err != nil {
		cancel()
		return nil, err
	}
	r.partitions = make([]clickPartition, config.Partitions)
	for i := range r.partitions {
		r.partitions[i].prepare(r, int32(i))
	}
	for _, block := range left.Segments {
		// The topic may have fewer partitions than it had. A block names its own, and always goes to the same place.
		r.partitions[uint32(block.Partition)%uint32(config.Partitions)].takeOver(block)
	}
	for i := range r.partitions {
		r.partitions[i].start(ctx)
	}
	return r, nil
}

// Boot returns the random bytes that name this process's clicks.
func (r *ClickRecorder) Boot() [16]byte { return r.boot }

// Record takes a click, or drops and counts it. It never blocks.
func (r *ClickRecorder) Record(c *Click) {
	agent := r.agents.of(clickCut(c.UserAgent, clickMaxUserAgent))
	visitor := r.visitors.number(c.TimeUS, c.Address, agent.digest)
	// Any partition will do; a random one spreads a hot link without a counter that all cores write to.
	i := uint64(mathrand.Uint32()) * uint64(len(r.partitions)) >> 32
	r.partitions[i].record(c, agent, visitor)
}

// flushIn returns how long a block that got its first click now stays open: between half of FlushEvery and all of it. All
// partitions flush on one grid, so that their blocks share a request to the log.
func (r *ClickRecorder) flushIn(now time.Time) time.Duration {
	grid := max(1, r.config.FlushEvery/2)
	return r.config.FlushEvery - time.Duration(now.UnixNano()+int64(r.phase))%grid
}

// clickCloseWithin bounds how long Close tries to send what the next process would send as well.
const clickCloseWithin = 3 * time.Second

// Close takes no more clicks, sends what there is and returns when all of it is acknowledged. When ctx is done first, or the
// log does not answer, clicks in a file wait for the next process; clicks in memory are lost, and the error says how many.
// Idempotent.
func (r *ClickRecorder) Close(ctx context.Context) error {
	if r.config.Spool != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, clickCloseWithin)
		defer cancel()
	}
	for i := range r.partitions {
		r.partitions[i].close()
	}
	done := make(chan struct{})
	go func() {
		r.senders.Wait()
		close(done)
	}()
	var late error
	select {
	case <-done:
	case <-ctx.Done():
		late = ctx.Err()
	}
	r.abandon()
	<-done
	return r.closeSpool(late)
}
