package runner

import (
	"context"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
)

// busyShare of MaxRows, gathered in the gathering time, shows a partition that is busy. Its batch gathers as long again: a
// store pays for each insert and for merging what it left, so twice the rows at once cost much less than two inserts.
const busyShare = 5

// gather waits for clicks and collects what comes within the gathering time. asOf is the time of the last record.
func (p *clickPartition) gather(ctx context.Context) (_ *projections.ClickBatch, asOf time.Time, err error) {
	if err := p.awaitClicks(ctx); err != nil {
		return nil, asOf, err
	}
	batch := p.fold.Begin(p.reader.next)
	asOf, err = p.fill(ctx, batch, asOf)
	if err == nil && p.poison == nil && len(batch.Rows) >= p.cfg.MaxRows/busyShare {
		asOf, err = p.fill(ctx, batch, asOf)
	}
	if err != nil {
		return nil, asOf, err
	}
	return p.fold.End(batch), asOf, nil
}

// fill adds to a batch until it is full or the gathering time is over. asOf is the time of the last record so far, and of the
// last one now.
func (p *clickPartition) fill(ctx context.Context, batch *projections.ClickBatch, asOf time.Time) (time.Time, error) {
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
			return asOf, err
		}
		break
	}
	return asOf, nil
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
