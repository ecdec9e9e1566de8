package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// errNotOurs: somebody else wrote to our partition of the sink topic, or our own append may or may not have arrived. All we
// know of the partition is thrown away and read again.
var errNotOurs = errors.New("the partition may have another writer")

// clickPartition is the sink of one partition. run is one goroutine; status may be asked by others.
type clickPartition struct {
	cfg    ClickSinkConfig
	number int32
	status clickStatus

	intents  *projections.ClickIntents
	end      int64 // of our partition of the sink topic, as we know it
	fold     *projections.Clicks
	appender ClickAppender
	reader   *clickReader
	poison   error // what the record at the reader's position is
	unsaid   progress
}

// progress is what the store has to be told.
type progress struct {
	next int64
	asOf time.Time
	due  bool
}

func newClickPartition(cfg ClickSinkConfig, number int32) *clickPartition {
	p := &clickPartition{cfg: cfg, number: number}
	p.status.update(func(s *ClickPartitionStatus) { s.Partition = number })
	return p
}

// run works until ctx is done or an alarm stops the partition.
func (p *clickPartition) run(ctx context.Context) {
	var pause backoff
	for {
		err := p.life(ctx, &pause)
		switch {
		case ctx.Err() != nil:
			return
		case isAlarm(err):
			p.cfg.Logger.Error("click sink stopped", "partition", p.number, "error", err)
			p.status.update(func(s *ClickPartitionStatus) { s.Stopped = err })
			return
		}
		p.cfg.Logger.Warn("click sink starts again", "partition", p.number, "error", err)
		p.status.update(func(s *ClickPartitionStatus) { s.Waiting = err })
		if pause.sleep(ctx) != nil {
			return
		}
	}
}

// life is one time of being the partition's writer: from reading where it stands to the first sign of another writer.
func (p *clickPartition) life(ctx context.Context, pause *backoff) error {
	defer p.forget()
	if err := p.takeOver(ctx); err != nil {
		return err
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	for {
		pause.reset()
		if err := p.step(ctx); err != nil {
			return err
		}
	}
}

// takeOver reads the intents, waits while the partition is held, and settles the open one.
func (p *clickPartition) takeOver(ctx context.Context) error {
	if err := p.load(ctx); err != nil {
		return err
	}
	if err := p.awaitRelease(ctx); err != nil {
		return err
	}
	return p.settleOpen(ctx)
}

func (p *clickPartition) load(ctx context.Context) (err error) {
	p.intents, p.end, err = ReadIntents(ctx, p.cfg.Log, p.number, nil)
	if err != nil {
		return err
	}
	p.status.folded(p.intents)
	return nil
}

// awaitRelease waits while another writer holds the partition.
func (p *clickPartition) awaitRelease(ctx context.Context) error {
	for {
		until := p.intents.HeldUntil()
		if !time.Now().Before(until) {
			return nil
		}
		p.status.update(func(s *ClickPartitionStatus) { s.Waiting = fmt.Errorf("held by a repair until %s", until.UTC()) })
		if err := sleep(ctx, min(time.Until(until), maxHoldPoll)); err != nil {
			return err
		}
		b, err := boundsOf(ctx, p.cfg.Log, eventlog.Sink, p.number)
		if err != nil {
			return err
		}
		if b.end == p.end {
			continue
		}
		if err := p.load(ctx); err != nil {
			return err
		}
	}
}

// begin opens what reading on needs.
func (p *clickPartition) begin(ctx context.Context) (err error) {
	open, before := p.intents.Open()
	p.fold = before.Clone()
	if err := p.fold.Restore(open.GetLast()); err != nil {
		return clickAlarm(eventlog.Sink, p.number, p.end-1, err.Error())
	}
	b, err := boundsOf(ctx, p.cfg.Log, eventlog.Clicks, p.number)
	if err != nil {
		return err
	}
	next := p.intents.Next()
	switch {
	case next > b.end:
		return clickAlarm(eventlog.Clicks, p.number, next, fmt.Sprintf("the sink's position lies beyond the log's end %d: the log has lost its tail", b.end))
	case next < b.start:
		return clickAlarm(eventlog.Clicks, p.number, next, fmt.Sprintf("gap in offsets: the log begins at %d, clicks expired before they were inserted", b.start))
	}
	if p.appender, err = p.cfg.Log.NewAppender(eventlog.Sink); err != nil {
		return fmt.Errorf("opening appender of %s: %w", eventlog.Sink, err)
	}
	if p.reader, err = openClickReader(p.cfg.Log, eventlog.Clicks, p.number, next); err != nil {
		return err
	}
	p.unsaid = progress{next: next, asOf: time.UnixMicro(open.GetTimeUs()), due: true}
	p.status.update(func(s *ClickPartitionStatus) { s.Waiting = nil })
	return p.report(ctx)
}

func (p *clickPartition) forget() {
	if p.appender != nil {
		p.appender.Close()
	}
	if p.reader != nil {
		p.reader.close()
	}
	p.intents, p.fold, p.appender, p.reader, p.poison = nil, nil, nil, nil, nil
}

// step takes one batch from the log into the store.
func (p *clickPartition) step(ctx context.Context) error {
	batch, asOf, err := p.gather(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	intent := batch.Intent()
	intent.TimeUs = max(began.UnixMicro(), p.intents.HeldUntil().UnixMicro()) // the holder's clock may be ahead of ours
	if err := p.append(ctx, intent); err != nil {
		return err
	}
	if err := p.insert(ctx, batch, began); err != nil {
		return err
	}
	p.status.inserted(p.intents, batch)
	p.unsaid = progress{next: batch.To, asOf: asOf, due: true}
	return p.report(ctx)
}

// append writes an intent if nobody else wrote since we read.
func (p *clickPartition) append(ctx context.Context, intent *pb.SinkIntent) error {
	value, err := intent.MarshalVT()
	if err != nil {
		return fmt.Errorf("encoding intent: %w", err)
	}
	if err := p.appender.Append(ctx, p.number, []eventlog.Record{{Value: value}}, p.end); err != nil {
		return fmt.Errorf("%w: appending intent: %w", errNotOurs, err)
	}
	p.end++
	return p.intents.Take(intent)
}

// gather waits for clicks and collects what comes within the gathering time. asOf is the time of the last record.
func (p *clickPartition) gather(ctx context.Context) (_ *projections.ClickBatch, asOf time.Time, err error) {
	if err := p.awaitClicks(ctx); err != nil {
		return nil, asOf, err
	}
	batch := p.fold.Begin(p.reader.next)
	wait, cancel := context.WithTimeout(ctx, p.cfg.Gather)
	defer cancel()
	for len(batch.Rows) < p.cfg.MaxRows && batch.Sources() < maxSources {
		rec, err := p.reader.peek(wait)
		if err == nil {
			err = p.add(batch, rec)
		}
		switch timeUp := ctx.Err() == nil && wait.Err() != nil; {
		case err == nil:
			asOf = rec.Time
			continue
		case batch.From < batch.To && isAlarm(err):
			p.poison = err // what came before it counts
		case batch.From == batch.To || !timeUp:
			return nil, asOf, err
		}
		break
	}
	return p.fold.End(batch), asOf, nil
}

// awaitClicks returns when the next record is there.
func (p *clickPartition) awaitClicks(ctx context.Context) error {
	if p.poison != nil {
		return p.poison
	}
	for p.unsaid.due {
		wait, cancel := context.WithTimeout(ctx, time.Second)
		_, err := p.reader.peek(wait)
		cancel()
		if err == nil || ctx.Err() != nil || wait.Err() == nil {
			return err
		}
		if err := p.report(ctx); err != nil {
			return err
		}
	}
	_, err := p.reader.peek(ctx)
	return err
}

func (p *clickPartition) add(batch *projections.ClickBatch, rec *eventlog.Record) error {
	if err := p.fold.Add(batch, rec.Offset, rec.Value); err != nil {
		return clickAlarm(eventlog.Clicks, p.number, rec.Offset, err.Error())
	}
	p.reader.take()
	return nil
}

// report tells the store how far it is. The store may be down: what could not be said is said with the next batch.
func (p *clickPartition) report(ctx context.Context) error {
	if !p.unsaid.due {
		return nil
	}
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	if err := p.cfg.Store.Report(try, p.number, p.unsaid.next, p.unsaid.asOf); err != nil {
		p.cfg.Logger.Warn("reporting the sink's progress failed", "partition", p.number, "error", err)
		return ctx.Err()
	}
	p.unsaid.due = false
	return nil
}

// ClickPartitionStatus is how the sink of one partition is. Totals are over all writers the partition ever had.
type ClickPartitionStatus struct {
	Partition  int32
	Next       int64 // offset of the clicks topic below which all is inserted, or is about to be
	Rows       uint64
	Repeats    uint64 // dropped
	Gaps       uint64 // clicks that nodes dropped or lost
	Voids      uint64 // intents of writers that were no longer the partition's
	Inserted   uint64 // rows by this process
	LastInsert time.Time
	Waiting    error // why it waits and tries again
	Stopped    error // why it stopped for good
}

type clickStatus struct {
	mu sync.Mutex
	s  ClickPartitionStatus
}

func (c *clickStatus) get() ClickPartitionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

func (c *clickStatus) update(f func(s *ClickPartitionStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

func (c *clickStatus) folded(i *projections.ClickIntents) {
	c.update(func(s *ClickPartitionStatus) {
		s.Next, s.Rows, s.Repeats, s.Gaps, s.Voids = i.Next(), i.Rows, i.Repeats, i.Gaps, i.Voids
	})
}

func (c *clickStatus) inserted(i *projections.ClickIntents, b *projections.ClickBatch) {
	c.folded(i)
	c.update(func(s *ClickPartitionStatus) {
		s.Inserted += uint64(len(b.Rows))
		s.LastInsert, s.Waiting = time.Now(), nil
	})
}
