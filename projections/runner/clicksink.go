package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
)

// ClickGroup is the consumer group that shares the partitions of the clicks topic among the analytics processes.
const ClickGroup = "hoplog-analytics"

// ClickStore is where clicks end up. All methods may be repeated after an error, whatever became of the try before.
type ClickStore interface {
	// Prepare makes what Insert needs. It is cheap when all is there.
	Prepare(ctx context.Context) error
	// Insert adds the rows of a batch. The same batch under the same token counts once, in raw rows and aggregates alike,
	// whatever the tries before came to, while the store remembers the token: for SameTokenFor at least.
	Insert(ctx context.Context, b *projections.ClickBatch, token string) error
	// Check compares what the store holds of the batch with the batch.
	Check(ctx context.Context, b *projections.ClickBatch) (ClickState, error)
	// Count returns how many rows the store holds of a range.
	Count(ctx context.Context, partition int32, from, to int64) (uint64, error)
	// Replace removes what the store holds of the batch's range, inserts the batch and counts the aggregates that it touches
	// again. Nobody else may write to the partition meanwhile.
	Replace(ctx context.Context, b *projections.ClickBatch) error
	// Rebuild counts the aggregates that the batch touches again from the raw rows, under the same condition.
	Rebuild(ctx context.Context, b *projections.ClickBatch) error
	// Report notes that everything below next is in, and the time of the last record below it.
	Report(ctx context.Context, partition int32, next int64, asOf time.Time) error
	// Reported returns the largest next that was reported, 0 if none was.
	Reported(ctx context.Context, partition int32) (next int64, err error)
}

// ClickState is what a store holds of a batch.
type ClickState uint8

// States of a batch in the store.
const (
	ClicksMissing    ClickState = iota // no row of it
	ClicksComplete                     // each row once, and the aggregates it touches add up
	ClicksMiscounted                   // each row once, but an aggregate it touches does not add up
	ClicksDamaged                      // some rows, or some twice
)

// ClickSinkConfig is what a click sink needs.
type ClickSinkConfig struct {
	Log    ClickLog
	Store  ClickStore
	Logger *slog.Logger
	// Gather is how long a batch waits for company after its first record; default 700 ms. One that has a fifth of MaxRows by
	// then waits as long again.
	Gather time.Duration
	// MaxRows ends a batch early; default 50,000. One record may exceed it.
	MaxRows int
}

const (
	defaultGather  = 700 * time.Millisecond
	defaultMaxRows = 50_000
	// maxSources bounds the size of an intent.
	maxSources = 4096
	// insertTimeout bounds one statement of ours in the store. A statement of a process that was frozen for longer is not
	// sent any more.
	insertTimeout = 20 * time.Second
	minPause      = 100 * time.Millisecond
	maxPause      = 5 * time.Second
)

// SameTokenFor is for how long an insert is repeated under its token without looking at what is there. The store remembers
// 10,000 blocks per table. At P = 16 partitions that insert 4 times a second each, into two months, that is 78 s.
const SameTokenFor = time.Minute

// ClickSink writes the clicks of the partitions that its group gives it into the store, exactly once. For each partition it
// folds the sink topic, settles the range that may not have been inserted to its end, and goes on: gather clicks, append the
// intent under an offset check, insert, again. While the store is down it waits; it never skips. What it must not read past
// stops that partition (Err).
type ClickSink struct {
	cfg  ClickSinkConfig
	mu   sync.Mutex
	own  map[int32]*ownedClicks
	wait error // why there is no partition yet
	in   bool  // the store is prepared, and the group joined
}

type ownedClicks struct {
	p      *clickPartition
	cancel context.CancelFunc
	done   chan struct{}
}

// NewClickSink makes a sink. It does nothing before Run.
func NewClickSink(cfg ClickSinkConfig) *ClickSink {
	if cfg.Gather == 0 {
		cfg.Gather = defaultGather
	}
	if cfg.MaxRows == 0 {
		cfg.MaxRows = defaultMaxRows
	}
	return &ClickSink{cfg: cfg, own: map[int32]*ownedClicks{}}
}

// Run prepares the store, joins the group and works until ctx is done, which is no error. A batch under way is left where it
// is: the next owner of the partition settles it.
func (s *ClickSink) Run(ctx context.Context) error {
	member, err := s.enter(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the end of ctx ends the tries, and that is how Run ends
	}
	<-ctx.Done()
	member.Close()
	s.drop(eventlog.Clicks, s.owned())
	return nil
}

// enter tries for ever to prepare the store and to join the group.
func (s *ClickSink) enter(ctx context.Context) (ClickMembership, error) {
	var pause backoff
	for {
		member, err := s.tryEnter(ctx)
		s.entered(err)
		if err == nil {
			return member, nil
		}
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("click sink waits", "error", err)
		}
		if err := pause.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *ClickSink) tryEnter(ctx context.Context) (ClickMembership, error) {
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	if err := s.cfg.Store.Prepare(try); err != nil {
		return nil, fmt.Errorf("preparing the click store: %w", err)
	}
	return s.cfg.Log.Join(ctx, ClickGroup, []string{eventlog.Clicks},
		func(topic string, partitions []int32) { s.take(ctx, topic, partitions) }, s.drop)
}

func (s *ClickSink) take(ctx context.Context, _ string, partitions []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, number := range partitions {
		if s.own[number] != nil || ctx.Err() != nil {
			continue
		}
		life, cancel := context.WithCancel(ctx)
		o := &ownedClicks{p: newClickPartition(s.cfg, number), cancel: cancel, done: make(chan struct{})}
		s.own[number] = o
		go func() {
			defer close(o.done)
			o.p.run(life)
		}()
	}
}

// drop returns when the partitions are let go of: nothing of ours is under way in them.
func (s *ClickSink) drop(_ string, partitions []int32) {
	s.mu.Lock()
	var ending []*ownedClicks
	for _, number := range partitions {
		if o := s.own[number]; o != nil {
			ending = append(ending, o)
			delete(s.own, number)
			o.cancel()
		}
	}
	s.mu.Unlock()
	for _, o := range ending {
		<-o.done
	}
}

func (s *ClickSink) owned() (numbers []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range s.own {
		numbers = append(numbers, number)
	}
	return numbers
}

func (s *ClickSink) entered(err error) {
	s.mu.Lock()
	s.wait, s.in = err, err == nil
	s.mu.Unlock()
}

// ClickSinkStatus is what an operator wants to know of a sink.
type ClickSinkStatus struct {
	// Waiting says why there are no partitions yet: the store or the log cannot be reached.
	Waiting error
	// Joined: the store is prepared and the group joined. False without Waiting: the first try is under way.
	Joined     bool
	Partitions []ClickPartitionStatus // ours, in order
}

// Status returns how the sink is.
func (s *ClickSink) Status() ClickSinkStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ClickSinkStatus{Waiting: s.wait, Joined: s.in}
	for _, o := range s.own {
		out.Partitions = append(out.Partitions, o.p.status.get())
	}
	slices.SortFunc(out.Partitions, func(a, b ClickPartitionStatus) int { return int(a.Partition) - int(b.Partition) })
	return out
}

// Err returns why partitions of ours stopped for good, nil while none did. errors.As finds the *events.Alarm.
func (s *ClickSink) Err() error {
	var all []error
	for _, p := range s.Status().Partitions {
		if p.Stopped != nil {
			all = append(all, p.Stopped)
		}
	}
	return errors.Join(all...)
}

// Lag returns how many records of the clicks topic the sink has not inserted yet, over its own partitions.
func (s *ClickSink) Lag(ctx context.Context) (int64, error) {
	ends, err := s.cfg.Log.Ends(ctx, eventlog.Clicks)
	if err != nil {
		return 0, fmt.Errorf("asking for the end of the clicks: %w", err)
	}
	var lag int64
	for _, p := range s.Status().Partitions {
		if int(p.Partition) < len(ends) {
			lag += max(0, ends[p.Partition]-p.Next)
		}
	}
	return lag, nil
}

// backoff paces tries that fail: 100 ms, doubled up to 5 s.
type backoff struct{ next time.Duration }

func (b *backoff) sleep(ctx context.Context) error {
	b.next = min(max(2*b.next, minPause), maxPause)
	return sleep(ctx, b.next)
}

func (b *backoff) reset() { b.next = 0 }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// isAlarm reports whether an error must stop its reader.
func isAlarm(err error) bool {
	var alarm *events.Alarm
	return errors.As(err, &alarm)
}
