package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Limits of one append.
const (
	commandBatch  = 1000
	appendTimeout = 5 * time.Second
)

// errUnconfirmed ends a writer's life: what it appended is not, or not surely, what it expected to be.
var errUnconfirmed = errors.New("append not confirmed")

// appender is one producer session; *eventlog.Appender is one.
type appender interface {
	Append(ctx context.Context, partition int32, records []eventlog.Record, expect int64) error
	Close()
}

// writer is one life of the single writer of a partition: sentences 2 to 7 of the chain rule. One append is in flight at
// a time; what arrives meanwhile makes the next batch.
type writer struct {
	*partition
	session appender
	// start is S: the scan began here.
	start int64
	// next is the command to look at.
	next int64
}

// live runs a writer's life until ctx is done (nil), an append is not confirmed (errUnconfirmed: begin another life), the
// log cannot be reached, or an *events.Alarm.
func (p *partition) live(ctx context.Context, open func(topic string) (appender, error)) error {
	w := &writer{partition: p}
	err := w.replay(ctx)
	if err != nil {
		return err
	}
	w.standing.lives.Add(1)
	w.standing.command.Store(w.next)
	if w.session, err = open(p.eventTopic); err != nil {
		return fmt.Errorf("opening producer session: %w", err)
	}
	defer w.session.Close()
	tail, err := p.log.NewTail(p.commandTopic, map[int32]int64{p.number: w.next})
	if err != nil {
		return fmt.Errorf("opening tail of commands: %w", err)
	}
	defer tail.Close()
	for {
		batches, err := tail.Poll(ctx, commandBatch)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// Retention may have passed the scan in between: the next life's replay judges what is missing.
			return fmt.Errorf("reading commands: %w", err)
		}
		if w.awaitRoom(ctx) != nil {
			return nil
		}
		for _, b := range batches {
			if err := w.batch(ctx, b.Records); err != nil {
				return err
			}
		}
	}
}

// replay is the first half of sentence 2.
func (w *writer) replay(ctx context.Context) error {
	end, err := w.offset(ctx, w.log.Ends, w.eventTopic)
	if err != nil {
		return err
	}
	if w.checker.Next() > end {
		return w.alarm(w.checker.Next(), events.NoBucket, fmt.Errorf("stored position lies beyond the log's end %d", end))
	}
	if err := w.follow(ctx, end); err != nil {
		return err
	}
	first, err := w.offset(ctx, w.log.Starts, w.commandTopic)
	if err != nil {
		return err
	}
	last, err := w.offset(ctx, w.log.Ends, w.commandTopic)
	if err != nil {
		return err
	}
	return w.resume(first, last)
}

// resume is the other half of sentence 2: where the scan of a command log that holds [first, last) begins.
func (w *writer) resume(first, last int64) error {
	w.start = w.checker.MaxLowWatermark()
	w.next = max(w.start, first)
	return w.checkCommandLog(first, last)
}

// checkCommandLog is what sentences 3 and 8 ask of the command log before the scan.
func (w *writer) checkCommandLog(first, last int64) error {
	if w.start > last {
		return w.commandAlarm(w.start, events.NoBucket, fmt.Sprintf("low watermark lies beyond the log's end %d", last))
	}
	for offset := range w.covered {
		if offset >= last {
			return w.commandAlarm(offset, events.NoBucket, fmt.Sprintf("covered command lies beyond the log's end %d", last))
		}
	}
	for offset := w.start; offset < first; offset++ {
		if _, ok := w.covered[offset]; !ok {
			return w.commandAlarm(offset, events.NoBucket, fmt.Sprintf("the log begins at %d, and no envelope answers this command: its retention is too short", first))
		}
	}
	return nil
}

func (w *writer) offset(ctx context.Context, list func(context.Context, string) ([]int64, error), topic string) (int64, error) {
	offsets, err := list(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("listing offsets: %w", err)
	}
	if int(w.number) >= len(offsets) {
		return 0, fmt.Errorf("listing offsets: %s has %d partitions, not %d", topic, len(offsets), w.count)
	}
	return offsets[w.number], nil
}

// batch decides a run of commands on an overlay, appends the envelopes and merges them once they are confirmed.
func (w *writer) batch(ctx context.Context, records []eventlog.Record) error {
	o := w.ledger.begin()
	defer o.drop()
	out, err := w.decideAll(ctx, o, records)
	if err != nil {
		return err
	}
	if len(out.records) == 0 {
		w.standing.command.Store(w.next)
		return nil
	}
	if err := w.append(ctx, out.records); err != nil {
		return err
	}
	return w.merge(o, out)
}

// outgoing is a batch on its way into the log: each envelope with the hash of its record's value, and the records.
type outgoing struct {
	envelopes []events.Envelope
	records   []eventlog.Record
}

// decideAll is sentences 3 to 5: one envelope for every command that is not covered.
func (w *writer) decideAll(ctx context.Context, o overlay, records []eventlog.Record) (out outgoing, err error) {
	low := w.lowWatermark(w.start)
	heads := make(map[uint32]events.Head, len(records))
	out = outgoing{make([]events.Envelope, 0, len(records)), make([]eventlog.Record, 0, len(records))}
	for _, r := range records {
		if r.Offset != w.next {
			return out, w.commandAlarm(r.Offset, events.NoBucket, fmt.Sprintf("gap in offsets: expected %d", w.next))
		}
		w.next++
		bucket, misplaced := w.parseKey(r.Key)
		if covered, err := w.isCovered(r, bucket); covered || err != nil {
			if err != nil {
				return out, err
			}
			continue
		}
		head, known := heads[bucket]
		if !known {
			head = w.checker.Head(bucket)
		}
		envelope, err := propose(ctx, o, r, bucket, misplaced, head)
		if err != nil {
			return out, fmt.Errorf("deciding command at offset %d: %w", r.Offset, err)
		}
		record, next, err := seal(w.stream, envelope, bucket, head, r.Offset, low)
		if err != nil {
			return out, err
		}
		if err := o.apply(envelope); err != nil {
			return out, fmt.Errorf("applying envelope of command at offset %d: %w", r.Offset, err)
		}
		heads[bucket] = next
		out.envelopes = append(out.envelopes, events.Envelope{Envelope: envelope, Hash: next.Hash})
		out.records = append(out.records, record)
	}
	return out, nil
}

// propose stamps a command, then decides it: its envelope without the place in the chain.
func propose(ctx context.Context, o overlay, r eventlog.Record, bucket uint32, misplaced error, head events.Head) (*pb.Envelope, error) {
	envelope, decide, err := o.stamp(ctx, r, bucket, misplaced, head)
	if err != nil {
		return nil, err
	}
	d := decide()
	envelope.Events, envelope.Outcome = d.Events, d.Outcome
	return envelope, nil
}

// isCovered is the skip of sentence 3, with sentence 8's check that the command is the one that was answered.
func (w *writer) isCovered(r eventlog.Record, bucket uint32) (bool, error) {
	if w.checker.Head(bucket).CommandOffset < r.Offset {
		return false, nil
	}
	id, known := w.covered[r.Offset]
	if !known {
		return false, w.commandAlarm(r.Offset, bucket, "a later command of the bucket is answered, this one is not")
	}
	if id != idOf(r.Value) {
		return false, w.commandAlarm(r.Offset, bucket, "the command is not the one that its envelope answers")
	}
	return true, nil
}

// append is sentence 6. It goes on when ctx ends, so that a drain does not leave an outcome unknown.
func (w *writer) append(ctx context.Context, records []eventlog.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	if err := w.session.Append(ctx, w.number, records, w.checker.Next()); err != nil {
		w.standing.unconfirmed.Add(1)
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	return nil
}

// merge is sentence 7: the writer takes its own confirmed records through the chain rule like any reader, but for decoding
// what it has just encoded.
func (w *writer) merge(o overlay, confirmed outgoing) error {
	for i, r := range confirmed.records {
		e := &confirmed.envelopes[i]
		accepted, err := w.checker.CheckEncoded(w.checker.Next(), r.Key, e)
		if err != nil {
			return err
		}
		if !accepted {
			return w.alarm(w.checker.Next()-1, e.GetBucket(), errors.New("a confirmed envelope is void"))
		}
		w.cover(e)
	}
	w.forget()
	w.start = w.lowWatermark(w.start)
	w.standing.batches.Add(1)
	w.standing.decided.Add(uint64(len(confirmed.records)))
	w.standing.command.Store(w.next)
	return w.commit(o)
}
