package runner

import (
	"context"
	"fmt"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ReadIntents folds one partition of the sink topic from its beginning to its present end, and returns that end. each, which
// may be nil, is called after every intent that counts and has a range; an error of it ends the reading.
func ReadIntents(ctx context.Context, log Source, partition int32, each func(i *projections.ClickIntents) error) (*projections.ClickIntents, int64, error) {
	b, err := boundsOf(ctx, log, eventlog.Sink, partition)
	if err != nil {
		return nil, 0, err
	}
	if b.start > 0 {
		return nil, 0, clickAlarm(eventlog.Sink, partition, 0, fmt.Sprintf("the topic begins at %d: intents are lost", b.start))
	}
	s := projections.NewClickIntents(partition)
	if b.end == 0 {
		return s, 0, nil
	}
	r, err := openClickReader(log, eventlog.Sink, partition, 0)
	if err != nil {
		return nil, 0, err
	}
	defer r.close()
	for r.next < b.end {
		if err := readIntent(ctx, r, s, each); err != nil {
			return nil, 0, err
		}
	}
	return s, b.end, nil
}

func readIntent(ctx context.Context, r *clickReader, s *projections.ClickIntents, each func(i *projections.ClickIntents) error) error {
	rec, err := r.peek(ctx)
	if err != nil {
		return err
	}
	intent, err := s.Add(rec.Offset, rec.Value)
	if err != nil {
		return clickAlarm(r.topic, r.partition, rec.Offset, err.Error())
	}
	r.take()
	if each != nil && intent != nil && intent.GetFrom() < intent.GetTo() {
		return each(s)
	}
	return nil
}

// WalkRanges calls do for the ranges of a partition's intents that are wanted, in order. Neighbours are joined, up to
// defaultMaxRows rows. before is the fold as it was before the range; it belongs to do.
func WalkRanges(ctx context.Context, log Source, partition int32, wanted func(*pb.SinkIntent) bool, do func(joined *pb.SinkIntent, before *projections.Clicks) error) error {
	var joined *pb.SinkIntent
	var before *projections.Clicks
	flush := func() error {
		if joined == nil {
			return nil
		}
		done := joined
		joined = nil
		return do(done, before)
	}
	_, _, err := ReadIntents(ctx, log, partition, func(i *projections.ClickIntents) error {
		intent, fold := i.Open()
		want := wanted(intent)
		fits := joined != nil && joined.GetTo() == intent.GetFrom() && joined.GetRows()+intent.GetRows() <= defaultMaxRows
		if !fits || !want {
			if err := flush(); err != nil {
				return err
			}
		}
		switch {
		case !want:
		case joined == nil:
			joined, before = intent, fold.Clone()
		default:
			joined = projections.JoinIntents(joined, intent)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// RereadClicks folds the range of an intent again, from the fold as it was before it, and checks that the log still gives
// what the intent says. The error is an alarm if not.
func RereadClicks(ctx context.Context, log Source, intent *pb.SinkIntent, before *projections.Clicks) (*projections.ClickBatch, error) {
	partition := int32(intent.GetPartition())
	r, err := openClickReader(log, eventlog.Clicks, partition, intent.GetFrom())
	if err != nil {
		return nil, err
	}
	defer r.close()
	fold := before.Clone()
	batch := fold.Begin(intent.GetFrom())
	for r.next < intent.GetTo() {
		rec, err := r.peek(ctx)
		if err != nil {
			return nil, err
		}
		if err := fold.Add(batch, rec.Offset, rec.Value); err != nil {
			return nil, clickAlarm(r.topic, partition, rec.Offset, err.Error())
		}
		r.take()
	}
	if err := fold.End(batch).Matches(intent); err != nil {
		return nil, clickAlarm(eventlog.Clicks, partition, intent.GetFrom(), err.Error())
	}
	return batch, nil
}
