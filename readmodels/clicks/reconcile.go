package clicks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
)

// Options of a reconciliation.
type Options struct {
	// From ≤ click < To is compared, by the click's own time. Zero: unbounded. Both are cut to whole minutes.
	From, To time.Time
	// Wait is how long the sink may take to reach the end that the log has now; default 30 s.
	Wait time.Duration
	// Repair inserts again what is missing, removes what is too much, and counts wrong aggregates again. The sinks of the
	// partitions concerned wait meanwhile. The report's counts are those after the repair.
	Repair bool
	// Progress, which may be nil, is told what is going on: done of total, in the stage's own unit; total 0 when unknown.
	Progress func(stage string, done, total int64)
}

const defaultWait = 30 * time.Second

// maxDifferences is how many differences a report lists. The counts are always whole.
const maxDifferences = 1000

// Report is the outcome. Clicks do not include probes, missing and duplicated do.
type Report struct {
	From            *time.Time   `json:"from"` // null: since the beginning of the log
	To              *time.Time   `json:"to"`   // null: up to the frozen end
	Offsets         []Offsets    `json:"offsets"`
	LogClicks       uint64       `json:"log_clicks"`
	RawClicks       uint64       `json:"raw_clicks"`
	AggregateClicks uint64       `json:"aggregate_clicks"`
	Missing         uint64       `json:"missing"`
	Duplicated      uint64       `json:"duplicated"`
	Differences     []Difference `json:"differences"`
}

// Offsets are the frozen bounds of one partition of the clicks topic, [From, To).
type Offsets struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
}

// Kinds of differences.
const (
	// DifferNotReached: the sink has not come to the end within the time.
	DifferNotReached = "not_reached"
	// DifferUnreadable: the log holds a record that is no block of clicks; nothing behind it is compared.
	DifferUnreadable = "unreadable"
	// DifferRaw: raw rows of these offsets are missing, doubled, too many or altered.
	DifferRaw = "raw"
	// DifferLog: an aggregate of a minute is not what the log gives.
	DifferLog = "log_aggregate"
	// DifferAggregate: an aggregate of a link is not what the raw rows give.
	DifferAggregate = "aggregate"
	// DifferMore: there are more differences than are listed.
	DifferMore = "more"
)

// Difference is one place where log, raw rows and aggregates do not agree.
type Difference struct {
	Kind       string     `json:"kind"`
	Partition  int32      `json:"partition"`
	FromOffset int64      `json:"from_offset,omitempty"`
	ToOffset   int64      `json:"to_offset,omitempty"`
	Table      string     `json:"table,omitempty"`
	LinkID     uint64     `json:"link_id,omitempty"`
	Bucket     *time.Time `json:"bucket,omitempty"`
	Log        uint64     `json:"log"`
	Raw        uint64     `json:"raw"`
	Aggregate  uint64     `json:"aggregate"`
	Detail     string     `json:"detail"`
	Repaired   bool       `json:"repaired"`
}

// OK reports whether nothing differs, or everything that did was repaired.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Differences, func(d Difference) bool { return !d.Repaired })
}

// Reconcile freezes the ends of the clicks topic, waits for the sink to reach them, counts the log again with code of its
// own, and compares raw rows and aggregates with it. An error says that the comparison could not be made.
func Reconcile(ctx context.Context, log runner.ClickLog, store *Store, o Options) (*Report, error) {
	r := &reconciliation{log: log, store: store, o: o}
	if err := r.freeze(ctx); err != nil {
		return nil, err
	}
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	first, err := r.compare(ctx)
	if err != nil || !o.Repair || first.OK() {
		return first.report(), err
	}
	if err := r.repair(ctx, first); err != nil {
		return nil, fmt.Errorf("repairing: %w", err)
	}
	again, err := r.compare(ctx)
	if err != nil {
		return nil, err
	}
	return again.after(first), nil
}

// reconciliation is one run.
type reconciliation struct {
	log    runner.ClickLog
	store  *Store
	o      Options
	frozen []partitionRange
	late   []Difference // partitions whose end the sink has not reached
}

// partitionRange is what is compared of one partition: offsets [from, to), with what was seen of every source before.
type partitionRange struct {
	logRange
	seeds []seed
}

type seed struct {
	node, boot          []byte
	partition, sequence uint64
}

func (r *reconciliation) progress(stage string, done, total int64) {
	if r.o.Progress != nil {
		r.o.Progress(stage, done, total)
	}
}

func (r *reconciliation) freeze(ctx context.Context) error {
	if r.o.Wait == 0 {
		r.o.Wait = defaultWait
	}
	r.o.From, r.o.To = r.o.From.Truncate(time.Minute), r.o.To.Truncate(time.Minute)
	ends, err := r.log.Ends(ctx, eventlog.Clicks)
	if err != nil {
		return fmt.Errorf("freezing the ends of the clicks: %w", err)
	}
	starts, err := r.log.Starts(ctx, eventlog.Clicks)
	if err != nil {
		return fmt.Errorf("asking for the start of the clicks: %w", err)
	}
	if len(starts) != len(ends) {
		return fmt.Errorf("the clicks topic has %d partitions, then %d", len(starts), len(ends))
	}
	for p := range ends {
		part := partitionRange{logRange: logRange{int32(p), starts[p], ends[p]}}
		if starts[p] > 0 {
			if part, err = r.afterExpired(ctx, part); err != nil {
				return err
			}
		}
		r.frozen = append(r.frozen, part)
	}
	return nil
}

// afterExpired moves the beginning of a partition whose first clicks have expired to a place where the sink wrote down what
// it had seen: a repeat of an expired click could not be told from a new one otherwise.
func (r *reconciliation) afterExpired(ctx context.Context, part partitionRange) (partitionRange, error) {
	start := part.from
	_, _, err := runner.ReadIntents(ctx, r.log, part.partition, func(i *projections.ClickIntents) error {
		intent, _ := i.Open()
		if intent.GetFrom() >= start {
			return nil
		}
		for _, l := range intent.GetLast() {
			part.seeds = append(part.seeds, seed{[]byte(l.GetNode()), l.GetBoot(), uint64(l.GetPartition()), l.GetSequence()})
		}
		part.from = max(start, intent.GetTo())
		return nil
	})
	part.from = min(part.from, part.to)
	return part, err
}

// await waits until the sink says that it has inserted everything up to the frozen ends.
func (r *reconciliation) await(ctx context.Context) error {
	deadline := time.Now().Add(r.o.Wait)
	for {
		positions, err := r.store.progressOf(ctx)
		if err != nil {
			return err
		}
		r.late = r.late[:0]
		var left int64
		for _, part := range r.frozen {
			if next := positions[part.partition].next; next < part.to {
				left += part.to - next
				r.late = append(r.late, Difference{Kind: DifferNotReached, Partition: part.partition, FromOffset: next, ToOffset: part.to,
					Detail: fmt.Sprintf("the sink has not inserted these records within %s", r.o.Wait)})
			}
		}
		r.progress("waiting for the sink", 0, left)
		if left == 0 || !time.Now().Before(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// bounds are the times that are compared, in microseconds.
func (r *reconciliation) bounds() span {
	var s span
	s.from, s.to = forever()
	if !r.o.From.IsZero() {
		s.from = r.o.From.UnixMicro()
	}
	if !r.o.To.IsZero() {
		s.to = r.o.To.UnixMicro()
	}
	return s
}
