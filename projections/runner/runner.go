package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// Projection folds accepted envelopes into a store.
type Projection interface {
	// Name names the fold and its version: a store made under another name is refused.
	Name() string
	// Apply folds one accepted envelope. It gets a bucket's envelopes in order and each exactly once with regard to what w
	// reads. An error or a panic is poison. Envelopes of buckets that hold no links are not shown to it.
	Apply(w *Write, a Accepted) error
	// Committed is called after a batch can be read and before anybody who waits for its positions is woken, per partition
	// in order. It gets every accepted envelope, those of buckets without links too, and must not block for long.
	Committed(accepted []Accepted)
}

// Lender is a Projection that keeps nothing of an envelope, which Apply gets lent for the call, and whose every key belongs to
// one partition. It is spared the memory of each envelope, its partitions are folded side by side, and far behind the log many
// batches become one commit.
type Lender interface {
	Projection
	// Fork returns a projection for the envelopes of one partition. Nothing but its Apply is called.
	Fork() Projection
	// Written is called in place of Committed, with all that was committed, partition by partition.
	Written(w *Write)
}

// VoidFolder is a Lender whose forks also hear of void envelopes: for whoever meets the records again by another way and must
// know which of them count for nothing.
type VoidFolder interface {
	Lender
	// ApplyVoid is called in place of Apply for the void envelope at an offset.
	ApplyVoid(w *Write, partition int32, offset int64)
}

// Accepted is an envelope that counts, with where its record lies.
type Accepted struct {
	*events.Envelope
	Value     []byte // the record's: what the envelope was decoded from, and never changed
	Partition int32
	Offset    int64
}

// Config is what a runner needs.
type Config struct {
	Topic      string
	Stream     string // of the topic's envelopes: events.StreamLink or events.StreamControl
	Source     Source
	Store      Store
	Projection Projection
	Logger     *slog.Logger
	// Observe, if not nil, is called after a commit can be read, with the stamped time of its oldest accepted envelope, in
	// microseconds: how late the commit is at worst. It must not block.
	Observe func(oldestStampUS int64)
	// MaxRecords bounds one batch; default 8192. A batch is whatever is there: a lone record does not wait.
	MaxRecords int
}

const (
	defaultMaxRecords = 8192
	maxBuckets        = 2 * events.Buckets
	retryPause        = 250 * time.Millisecond
)

// Runner feeds one projection from one topic. RunOnce, RunToEnd, RunTo and Run may be called one at a time, everything
// else at any time.
type Runner struct {
	cfg     Config
	lender  Lender // the projection, if it is one
	heads   heads
	applied atomic.Uint64
	voids   atomic.Uint64
	far     atomic.Int64 // when a batch far behind the log was folded, in nanoseconds since 1970; 0: the last one was not

	// Of the goroutine that runs.
	running  atomic.Bool
	checkers []*events.Checker
	lanes    []*lane
	feed     *feed
	left     []eventlog.Batch // polled, not yet checked
	behind   []int64          // about how many records come after those polled, per partition
	pending  pending

	commit   sync.Mutex // held from the first fold of a commit to wake-up, and by Pause; guards what follows
	journals []*journal

	mu          sync.Mutex // guards what follows
	live        Store
	partitions  int // 0: not known yet
	positions   []int64
	lastApplied time.Time
	lastStamp   int64
	err         error
	stopped     chan struct{} // closed with err
}

// New loads where the store stands. It does not speak to the log yet.
func New(cfg Config) (*Runner, error) {
	if cfg.MaxRecords == 0 {
		cfg.MaxRecords = defaultMaxRecords
	}
	r := &Runner{cfg: cfg, live: cfg.Store, stopped: make(chan struct{})}
	r.lender, _ = cfg.Projection.(Lender)
	r.heads.init()
	s, err := load(cfg.Store)
	if err != nil {
		return nil, err
	}
	if s.meta == "" {
		return r, nil
	}
	if err := r.restore(s); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runner) restore(s *stored) error {
	r.partitions, r.journals = len(s.journals), s.journals
	if want := meta(r.cfg.Projection.Name(), r.cfg.Topic, r.partitions); want != s.meta {
		return fmt.Errorf("%w: want %q, found %q", ErrOtherStore, want, s.meta)
	}
	if err := r.newCheckers(); err != nil {
		return err
	}
	for _, c := range r.checkers {
		r.positions = append(r.positions, c.Next())
		c.Heads(func(bucket uint32, head events.Head) {
			r.heads.set(bucket, head.Seq)
			r.lastStamp = max(r.lastStamp, head.TimeUS)
		})
	}
	return nil
}

// newCheckers makes the lanes, and a checker per partition, and puts it where its journal stands.
func (r *Runner) newCheckers() error {
	r.lanes, r.behind = newLanes(r.cfg.Projection, r.partitions), make([]int64, r.partitions)
	r.checkers = make([]*events.Checker, r.partitions)
	for i, j := range r.journals {
		r.checkers[i] = events.NewChecker(r.cfg.Topic, int32(i), r.partitions)
		if err := j.restore(r.checkers[i]); err != nil {
			return err
		}
	}
	return nil
}

// start meets the log: it compares what the log holds with where the store stands, and opens the tail.
func (r *Runner) start(ctx context.Context) error {
	if err := r.Err(); err != nil {
		return err
	}
	if r.feed != nil {
		return nil
	}
	ends, err := r.cfg.Source.Ends(ctx, r.cfg.Topic)
	if err != nil {
		return fmt.Errorf("asking for the end of the log: %w", err)
	}
	starts, err := r.cfg.Source.Starts(ctx, r.cfg.Topic)
	if err != nil {
		return fmt.Errorf("asking for the start of the log: %w", err)
	}
	if err := r.agree(len(ends)); err != nil {
		return err
	}
	from := map[int32]int64{}
	for i, c := range r.checkers {
		if err := r.checkBounds(int32(i), c.Next(), starts[i], ends[i]); err != nil {
			return r.stop(err)
		}
		from[int32(i)] = c.Next()
	}
	tail, err := r.cfg.Source.NewTail(r.cfg.Topic, from)
	if err != nil {
		return fmt.Errorf("opening tail: %w", err)
	}
	most := r.cfg.MaxRecords
	if r.lender != nil {
		most *= spanBehind // as a rule, all that is here
	}
	r.feed = newFeed(tail, most)
	return nil
}

// agree takes the topic's number of partitions, and writes it down in a new store.
func (r *Runner) agree(partitions int) error {
	r.mu.Lock()
	known := r.partitions
	r.mu.Unlock()
	if known == partitions {
		return nil
	}
	if known != 0 {
		return r.stop(fmt.Errorf("%w: the store was made from %d partitions, %s has %d", ErrOtherStore, known, r.cfg.Topic, partitions))
	}
	if !events.ValidPartitions(partitions) {
		return fmt.Errorf("%s has %d partitions, not a power of two up to %d", r.cfg.Topic, partitions, events.Buckets)
	}
	return r.found(partitions)
}

// found begins a new store.
func (r *Runner) found(partitions int) error {
	r.commit.Lock()
	defer r.commit.Unlock()
	w := newWrite()
	w.reset(r.current())
	w.Set(metaKey, []byte(meta(r.cfg.Projection.Name(), r.cfg.Topic, partitions)))
	journals := make([]*journal, partitions)
	for p := range journals {
		journals[p] = newJournal(int32(p))
		journals[p].rewrite(w)
	}
	w.seal()
	if err := w.store.Commit([]*Write{w}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journals, r.partitions, r.positions = journals, partitions, make([]int64, partitions)
	return r.newCheckers()
}

func (r *Runner) checkBounds(partition int32, next, start, end int64) error {
	reason := ""
	switch {
	case next > end:
		reason = fmt.Sprintf("the stored position lies beyond the log's end %d: the log has lost its tail", end)
	case next < start:
		reason = fmt.Sprintf("gap in offsets: the log begins at %d", start)
	default:
		return nil
	}
	return &events.Alarm{Topic: r.cfg.Topic, Partition: partition, Offset: next, Bucket: events.NoBucket, Reason: reason}
}

// stop ends the runner for good and wakes everybody who waits. It returns the error that all later calls return.
func (r *Runner) stop(cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %w", ErrStopped, r.cfg.Projection.Name(), cause)
		close(r.stopped)
	}
	return r.err
}

// Err returns why the runner stopped for good, nil while it has not.
func (r *Runner) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stopped is closed when the runner stops for good; Err says why. After a rebuild has revived it, it is another channel.
func (r *Runner) Stopped() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// Close ends the tail. No run may be under way. The store stays open.
func (r *Runner) Close() {
	if r.feed != nil {
		r.feed.close()
		r.feed = nil
	}
}

// farFor is how long after a batch far behind the log the next one may come for the run to count as under way: brokers may go
// away in the middle of the way.
const farFor = 5 * time.Second

// FarBehind reports whether a run is under way that has so much of the log still to fold that what is read from the store now
// is old within a second.
func (r *Runner) FarBehind() bool {
	at := r.far.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < farFor
}

func (r *Runner) noteFar(far bool) {
	var at int64
	if far {
		at = time.Now().UnixNano()
	}
	r.far.Store(at)
}

// Pause returns at the end of the batch under way, if any, and lets no other begin before Resume: state and positions
// stand still and belong together.
func (r *Runner) Pause() { r.commit.Lock() }

// Resume ends a Pause.
func (r *Runner) Resume() { r.commit.Unlock() }

// Positions returns the next offset to fold per partition; nil before the log was met for the first time.
func (r *Runner) Positions() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.positions)
}

// Status is what an operator wants to know of a runner.
type Status struct {
	Projection string
	Topic      string
	Positions  []int64   // next offset per partition
	Applied    uint64    // accepted envelopes since the start
	Voids      uint64    // void envelopes since the start
	LastCommit time.Time // of this process; zero: none yet
	LastStamp  int64     // stamped time of the newest envelope folded, microseconds
	Err        error     // why it stopped for good
}

// Status returns how the runner is.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{Projection: r.cfg.Projection.Name(), Topic: r.cfg.Topic, Positions: slices.Clone(r.positions), Applied: r.applied.Load(),
		Voids: r.voids.Load(), LastCommit: r.lastApplied, LastStamp: r.lastStamp, Err: r.err}
}

// passing reports whether a start that failed is worth another try. A deadline that was missed is one of the client's own, for a
// busy broker: the caller's context was looked at before.
func passing(err error) bool { return !errors.Is(err, ErrStopped) }
