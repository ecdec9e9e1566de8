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

// insert puts a batch whose intent is confirmed into the store, and tries until it is there or another writer shows.
//
// Within SameTokenFor of the first try the identical insert is repeated under the same token: that is safe whatever became
// of the tries before, even if one of them is still under way or was cut between the raw rows and an aggregate. Later, the
// store is asked first. After any failure it is asked in the end.
func (p *clickPartition) insert(ctx context.Context, b *projections.ClickBatch, began time.Time) error {
	if len(b.Rows) == 0 {
		return nil
	}
	err := p.tryInsert(ctx, b, began)
	var pause backoff
	for err != nil {
		p.cfg.Logger.Warn("inserting clicks failed", "partition", p.number, "from", b.From, "to", b.To, "error", err)
		p.status.update(func(s *ClickPartitionStatus) { s.Waiting = err })
		if err := pause.sleep(ctx); err != nil {
			return err
		}
		if err := p.stillOurs(ctx); err != nil {
			return err
		}
		if err := p.storeRemembers(ctx); errors.Is(err, errStoreReset) {
			return err
		}
		err = p.settle(ctx, b, began)
	}
	return nil
}

// storeRemembers asks whether the store still knows what it was told: it may have come back empty.
func (p *clickPartition) storeRemembers(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	if err := p.cfg.Store.Prepare(try); err != nil {
		return fmt.Errorf("preparing the click store: %w", err)
	}
	reported, err := p.cfg.Store.Reported(try, p.number)
	if err == nil && reported < p.said {
		return fmt.Errorf("%w: it knows of %d, it had %d", errStoreReset, reported, p.said)
	}
	return err
}

// settleOpen makes sure that the range of the last intent is in the store, whoever wrote that intent.
func (p *clickPartition) settleOpen(ctx context.Context) error {
	open, before := p.intents.Open()
	if open == nil {
		return nil
	}
	b, err := boundsOf(ctx, p.cfg.Log, eventlog.Clicks, p.number)
	if err != nil {
		return err
	}
	switch {
	case open.GetTo() > b.end:
		return nil // begin raises the alarm
	case open.GetFrom() < b.start:
		return p.compareExpired(ctx)
	}
	return p.settleRange(ctx, open, before, time.UnixMicro(open.GetTimeUs()))
}

// settleRange reads a range again and tries until it is in the store. began is when it may first have been inserted.
func (p *clickPartition) settleRange(ctx context.Context, intent *pb.SinkIntent, before *projections.Clicks, began time.Time) error {
	batch, err := RereadClicks(ctx, p.cfg.Log, intent, before)
	if err != nil {
		return err
	}
	var pause backoff
	for {
		err := p.settle(ctx, batch, began)
		if err == nil {
			return nil
		}
		p.cfg.Logger.Warn("settling a range of clicks failed", "partition", p.number, "from", batch.From, "to", batch.To, "error", err)
		p.status.update(func(s *ClickPartitionStatus) { s.Waiting = err })
		if err := pause.sleep(ctx); err != nil {
			return err
		}
		if err := p.stillOurs(ctx); err != nil {
			return err
		}
	}
}

// longAgo makes settle ask the store first: joined ranges were inserted under other tokens, if at all.
var longAgo time.Time

// refill inserts again what a store must have held and does not: one that was thrown away, or put back from a backup. What the
// log no longer holds is lost.
func (p *clickPartition) refill(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	if err := p.cfg.Store.Prepare(try); err != nil {
		return fmt.Errorf("preparing the click store: %w", err)
	}
	reported, err := p.cfg.Store.Reported(try, p.number)
	if err == nil && reported > p.intents.Next() {
		return p.intentsLost(ctx, reported)
	}
	open, _ := p.intents.Open()
	if err != nil || reported >= open.GetFrom() {
		return err
	}
	b, err := boundsOf(ctx, p.cfg.Log, eventlog.Clicks, p.number)
	if err != nil {
		return err
	}
	p.cfg.Logger.Warn("the click store knows less than was inserted: filling it again", "partition", p.number, "known", reported, "inserted", open.GetFrom())
	wanted := func(i *pb.SinkIntent) bool {
		return i.GetTo() > reported && i.GetFrom() >= b.start && i.GetTo() <= open.GetFrom()
	}
	return WalkRanges(ctx, p.cfg.Log, p.number, wanted, func(joined *pb.SinkIntent, before *projections.Clicks) error {
		p.status.update(func(s *ClickPartitionStatus) {
			s.Waiting = fmt.Errorf("filling the store again, at offset %d of %d", joined.GetFrom(), open.GetFrom())
		})
		if err := p.settleRange(ctx, joined, before, longAgo); err != nil {
			return err
		}
		p.unsaid = progress{next: joined.GetTo(), asOf: time.UnixMicro(joined.GetTimeUs()), due: true}
		return p.report(ctx)
	})
}

// intentsLost judges a store that was told more than the intents say: either somebody else wrote since they were read, or the
// topic has lost some, and going on would insert their clicks twice.
func (p *clickPartition) intentsLost(ctx context.Context, reported int64) error {
	b, err := boundsOf(ctx, p.cfg.Log, eventlog.Sink, p.number)
	if err != nil {
		return err
	}
	if b.end != p.end {
		return errNotOurs
	}
	return clickAlarm(eventlog.Sink, p.number, p.end, fmt.Sprintf("the click store holds clicks up to offset %d, the intents end at %d: this topic has lost its tail", reported, p.intents.Next()))
}

// compareExpired looks at an open range whose clicks the log no longer holds: nothing can be inserted again. Going on loses
// nothing that stopping would keep, so what is missing is said, not fatal.
func (p *clickPartition) compareExpired(ctx context.Context) error {
	open, _ := p.intents.Open()
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	rows, err := p.cfg.Store.Count(try, p.number, open.GetFrom(), open.GetTo())
	if err != nil {
		return fmt.Errorf("counting an expired range: %w", err)
	}
	if rows != open.GetRows() {
		p.cfg.Logger.Error("clicks of the last range are not all in the store, and the log no longer holds them", "partition", p.number,
			"from", open.GetFrom(), "to", open.GetTo(), "rows", open.GetRows(), "found", rows)
	}
	return nil
}

// settle brings a batch, of which anything may be in the store, to being there once.
func (p *clickPartition) settle(ctx context.Context, b *projections.ClickBatch, began time.Time) error {
	if len(b.Rows) == 0 {
		return nil
	}
	if err := p.cfg.Store.Prepare(ctx); err != nil {
		return fmt.Errorf("preparing the click store: %w", err)
	}
	if age := time.Since(began); -SameTokenFor < age && age < SameTokenFor {
		if err := p.tryInsert(ctx, b, began); err != nil {
			return err
		}
	}
	// A state that was mended is looked at again: the store may have answered from a token it remembers, and kept nothing.
	for try := range 3 {
		state, err := p.check(ctx, b)
		if err != nil || state == ClicksComplete {
			return err
		}
		p.cfg.Logger.Warn("mending a range of clicks", "partition", p.number, "from", b.From, "to", b.To, "state", state.String())
		if err := p.mend(ctx, b, state, try == 0); err != nil {
			return err
		}
	}
	return fmt.Errorf("the store does not keep the clicks of partition %d [%d, %d)", b.Partition, b.From, b.To)
}

func (p *clickPartition) mend(ctx context.Context, b *projections.ClickBatch, state ClickState, first bool) error {
	try, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	switch {
	case state == ClicksMissing && first:
		return p.cfg.Store.Insert(try, b, clickToken(b))
	case state == ClicksMiscounted:
		return p.cfg.Store.Rebuild(try, b)
	}
	return p.cfg.Store.Replace(try, b)
}

func (p *clickPartition) check(ctx context.Context, b *projections.ClickBatch) (ClickState, error) {
	try, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	return p.cfg.Store.Check(try, b)
}

// mendTimeout bounds what reads or rewrites more than one batch.
const mendTimeout = 5 * insertTimeout

// tryInsert inserts under the batch's token. The deadline counts from the intent: a process that was frozen in between must
// not send an insert that the store may no longer recognise.
func (p *clickPartition) tryInsert(ctx context.Context, b *projections.ClickBatch, began time.Time) error {
	try, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	try, cancelLate := context.WithDeadline(try, began.Add(SameTokenFor))
	defer cancelLate()
	if err := try.Err(); err != nil {
		return fmt.Errorf("inserting clicks too late: %w", err)
	}
	return p.cfg.Store.Insert(try, b, clickToken(b))
}

// clickToken names a batch to the store. Whoever inserts this range uses this token.
func clickToken(b *projections.ClickBatch) string {
	return fmt.Sprintf("hoplog.clicks/%d/%d-%d", b.Partition, b.From, b.To)
}

// stillOurs asks the log whether somebody else has become the partition's writer.
func (p *clickPartition) stillOurs(ctx context.Context) error {
	b, err := boundsOf(ctx, p.cfg.Log, eventlog.Sink, p.number)
	if err != nil {
		return err
	}
	if b.end != p.end {
		return fmt.Errorf("%w: the sink topic ends at %d, not %d", errNotOurs, b.end, p.end)
	}
	return nil
}

// String names the state.
func (s ClickState) String() string {
	return [...]string{"missing", "complete", "miscounted", "damaged"}[s]
}
