package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/events/eventlog"
)

// Group is the consumer group whose assignment says which process writes which partition.
const Group = "hoplog-commands"

// Config is what a handler needs. All fields but Options, Damaged and Full are required.
type Config struct {
	Log    *eventlog.Log
	Logger *slog.Logger
	// Dir holds the confirmed state. It belongs to this process alone.
	Dir string
	// Options are Pebble's; nil for the defaults.
	Options *pebble.Options
	// Damaged, if not nil, hears of damage to the state that is found while it is open. It must not block.
	Damaged func(*disk.Damage)
	// Full, if not nil, says why nothing may be written to Dir; partitions stand still while it says so.
	Full func() error
	// Partitions of the link topics.
	Partitions int
	// Now is the writer's clock.
	Now func() time.Time
}

// Handler is the commands role of one process: a warm standby of every partition and the writer of those it is assigned.
type Handler struct {
	cfg     Config
	store   *store
	control *Control
	workers []*worker // the links' by partition, then the control stream's
	joined  chan struct{}
	once    sync.Once
}

// Open opens the confirmed state. Run starts the work.
func Open(cfg Config) (*Handler, error) {
	if !events.ValidPartitions(cfg.Partitions) {
		return nil, fmt.Errorf("%d partitions: not a power of two up to %d", cfg.Partitions, events.Buckets)
	}
	if cfg.Options == nil {
		cfg.Options = &pebble.Options{}
	}
	s, err := openStore(cfg.Dir, cfg.Partitions, cfg.Options, disk.Reports{Logger: cfg.Logger, Damaged: cfg.Damaged})
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, store: s, control: newControl(cfg.Log, cfg.Logger, cfg.Now), joined: make(chan struct{})}
	for p := range int32(cfg.Partitions) {
		w, err := h.linkWorker(p)
		if err != nil {
			return nil, errors.Join(err, s.db.Close())
		}
		h.workers = append(h.workers, w)
	}
	h.workers = append(h.workers, h.controlWorker())
	return h, nil
}

func newPlace(topic string, number int32, count int) place {
	return place{checker: events.NewChecker(topic, number, count), covered: map[int64]commandID{}}
}

func (h *Handler) linkWorker(number int32) (*worker, error) {
	l := &linkLedger{store: h.store, partition: number, count: h.cfg.Partitions, control: h.control, now: h.cfg.Now}
	at, err := l.loadPlace(eventlog.EventsLink)
	if err != nil {
		return nil, err
	}
	p := &partition{stream: events.StreamLink, commandTopic: eventlog.CommandsLink, eventTopic: eventlog.EventsLink,
		number: number, count: h.cfg.Partitions, log: h.cfg.Log, full: h.cfg.Full, ledger: l, place: at}
	p.standing.next.Store(at.checker.Next())
	w := h.worker(p)
	w.lives = func(begins bool) { l.live(begins, h.cfg.Logger) }
	return w, nil
}

func (h *Handler) controlWorker() *worker {
	return h.worker(&partition{stream: events.StreamControl, commandTopic: eventlog.CommandsControl, eventTopic: eventlog.EventsControl,
		count: 1, log: h.cfg.Log, ledger: &controlLedger{now: h.cfg.Now}, place: newPlace(eventlog.EventsControl, 0, 1)})
}

func (h *Handler) worker(p *partition) *worker {
	open := func(topic string) (appender, error) { return h.cfg.Log.NewAppender(topic) }
	return &worker{partition: p, open: open, logger: h.cfg.Logger}
}

// Control returns the process's fold of the control log.
func (h *Handler) Control() *Control { return h.control }

// Run joins the group and works until ctx is done; then it finishes the batches at hand, leaves the group and returns. A
// partition that an alarm stopped stays stopped (Status shows it); the others go on.
func (h *Handler) Run(ctx context.Context) error {
	var working sync.WaitGroup
	working.Go(func() { _ = h.control.run(ctx) }) // its alarm shows in Status
	for _, w := range h.workers {
		working.Go(func() { _ = w.run(ctx) })
	}
	working.Go(func() { h.loadFilters(ctx) })
	err := h.membership(ctx)
	working.Wait()
	return err
}

// loadFilters fills the partitions' key filters, one after the other, beside the work.
func (h *Handler) loadFilters(ctx context.Context) {
	began := time.Now()
	for _, w := range h.workers {
		l, ok := w.ledger.(*linkLedger)
		if !ok {
			continue
		}
		first, last := events.BucketsOf(l.partition, l.count)
		if err := l.filter.load(ctx, h.store, first, last); err != nil {
			if ctx.Err() == nil {
				h.cfg.Logger.Warn("creating links stays slower", "partition", l.partition, "error", err)
			}
			return
		}
	}
	h.cfg.Logger.Debug("key filters loaded", "took", time.Since(began))
}

// membership holds the group membership until ctx is done. Joining is tried until it succeeds.
func (h *Handler) membership(ctx context.Context) error {
	assign := func(ours bool) func(string, []int32) {
		return func(topic string, partitions []int32) {
			for _, number := range partitions {
				if w := h.of(topic, number); w != nil {
					w.set(ours)
				}
			}
			h.once.Do(func() { close(h.joined) })
		}
	}
	for ctx.Err() == nil {
		m, err := h.cfg.Log.Join(ctx, Group, []string{eventlog.CommandsLink, eventlog.CommandsControl}, assign(true), assign(false))
		if err == nil {
			select {
			case <-h.joined:
			case <-time.After(standbyAfter):
				h.once.Do(func() { close(h.joined) })
			case <-ctx.Done():
			}
			<-ctx.Done()
			m.Close()
			return nil
		}
		h.cfg.Logger.Warn("joining the writers' group failed", "error", err)
		wait(ctx, lastPause)
	}
	return nil
}

func (h *Handler) of(topic string, number int32) *worker {
	if topic == eventlog.CommandsControl {
		return h.workers[len(h.workers)-1]
	}
	if int(number) >= len(h.workers)-1 {
		return nil
	}
	return h.workers[number]
}

// standbyAfter is when a member of the group without partitions counts as a standby: a rebalance takes less.
const standbyAfter = 12 * time.Second

// Joined is closed once the group assigned this process its first partitions, or none for so long that it is a standby.
func (h *Handler) Joined() <-chan struct{} { return h.joined }

// Close closes the confirmed state. Run must have returned.
func (h *Handler) Close() error {
	h.once.Do(func() { close(h.joined) })
	if err := h.store.db.Close(); err != nil {
		return fmt.Errorf("closing command state: %w", err)
	}
	return nil
}

// PartitionStatus is how one partition's worker is.
type PartitionStatus struct {
	Stream    string `json:"stream"`
	Partition int32  `json:"partition"`
	Mode      string `json:"mode"`
	// Next is the offset of the events partition up to which the confirmed state stands.
	Next  int64  `json:"next"`
	Voids uint64 `json:"voids"`
	// Folded counts the records read back from the log since the start: those of other writers, and what the store lacked.
	Folded uint64 `json:"folded"`
	// Command is the offset of the next command that the writer looks at; of no meaning while it does not write.
	Command int64 `json:"command"`
	// Lives counts the writer's lives that this process began here, each with a replay to the log's end; Unconfirmed the
	// appends that were not confirmed, each of which ends a life.
	Lives       uint64 `json:"lives"`
	Unconfirmed uint64 `json:"unconfirmed"`
	// Batches counts the confirmed appends, Decided the commands in them.
	Batches uint64 `json:"batches"`
	Decided uint64 `json:"decided"`
	// Error is what stopped the worker, or the last trouble it had.
	Error string `json:"error,omitempty"`
	// Mint is what the ids of the writer's life are like, nil while it has none.
	Mint *mint.Stats `json:"mint,omitempty"`
}

// Writing reports whether this process writes the partition.
func (s PartitionStatus) Writing() bool { return s.Mode == ModeWriting }

// Stopped reports whether something stopped the partition's worker for good; Error says what.
func (s PartitionStatus) Stopped() bool { return s.Mode == ModeStopped }

// Status returns how every partition is, the links' first.
func (h *Handler) Status() []PartitionStatus {
	var list []PartitionStatus
	for _, w := range h.workers {
		at := &w.standing
		s := PartitionStatus{Stream: w.stream, Partition: w.number, Mode: ModeStandby, Next: at.next.Load(), Voids: at.voids.Load(), Folded: at.folded.Load(), Command: at.command.Load(),
			Lives: at.lives.Load(), Unconfirmed: at.unconfirmed.Load(), Batches: at.batches.Load(), Decided: at.decided.Load()}
		if mode := w.mode.Load(); mode != nil {
			s.Mode = *mode
		}
		if err := w.fault.Load(); err != nil {
			s.Error = (*err).Error()
		}
		if l, ok := w.ledger.(*linkLedger); ok {
			if m := l.mints.Load(); m != nil {
				stats := m.Stats()
				s.Mint = &stats
			}
		}
		list = append(list, s)
	}
	return list
}

// Alarm returns what stopped a partition or the control fold, nil if all work.
func (h *Handler) Alarm() error {
	for _, w := range h.workers {
		if mode := w.mode.Load(); mode != nil && *mode == ModeStopped {
			return *w.fault.Load()
		}
	}
	h.control.mu.Lock()
	defer h.control.mu.Unlock()
	return h.control.err
}
