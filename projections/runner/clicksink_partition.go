package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// errNotOurs: somebody else wrote to our partition of the sink topic, or our own append may or may not have arrived. All we
// know of the partition is thrown away and read again.
var errNotOurs = errors.New("the partition may have another writer")

// errStoreReset says that the store has lost what it had. It is filled again, as by a sink that has just started.
var errStoreReset = errors.New("the click store has lost what it held")

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
	said     int64 // the last next that was reported
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

// takeOver reads the intents, waits while the partition is held, fills the store again if it has lost what it had, and
// settles the open range.
func (p *clickPartition) takeOver(ctx context.Context) error {
	if err := p.load(ctx); err != nil {
		return err
	}
	if err := p.awaitRelease(ctx); err != nil {
		return err
	}
	if err := p.refill(ctx); err != nil {
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
	p.intents, p.fold, p.appender, p.reader, p.poison, p.said = nil, nil, nil, nil, nil, 0
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
	p.unsaid.due, p.said = false, p.unsaid.next
	return nil
}
