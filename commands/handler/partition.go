package handler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ledger is the confirmed content of one partition: what its decisions read and its envelopes change.
type ledger interface {
	// begin opens a set of changes on top of the confirmed content. One is open at a time.
	begin() overlay
}

// overlay is a set of changes that is confirmed as a whole or dropped as a whole.
type overlay interface {
	// stamp reads the command in a record and what its decision rests on: the bucket's state on the overlay, and what the
	// stamp says. It returns the envelope so far (the command's id, actor, request key and stamp) and the decision that is to
	// be made, which is pure. head is the bucket's head on the overlay; misplaced says why the record key names no bucket of
	// the partition, nil if it does.
	stamp(ctx context.Context, record eventlog.Record, bucket uint32, misplaced error, head events.Head) (*pb.Envelope, decision, error)
	// apply folds an envelope that was decided on this overlay, or accepted by the chain rule.
	apply(e *pb.Envelope) error
	// commit makes the changes the confirmed content, in one step with the place in the log that they stand for.
	commit(place *place) error
	drop()
}

// decision is a decider applied to the state of one bucket and a stamped command: no I/O, no clock, no randomness.
type decision func() commands.Decision

// place is where a partition's reader stands: what is stored with its content.
type place struct {
	checker *events.Checker
	// covered holds the id of every command from the largest low watermark on that an accepted envelope covers.
	covered map[int64]commandID
}

type commandID [16]byte

// partition folds one events partition into a ledger, as a standby, and writes it while it is assigned.
type partition struct {
	stream       string
	commandTopic string
	eventTopic   string
	number       int32
	count        int
	log          *eventlog.Log
	full         func() error // nil: never
	ledger       ledger
	place
	standing standing
}

// standing is what others may read of a partition while it works.
type standing struct {
	next  atomic.Int64
	voids atomic.Uint64
	// folded counts the records read back from the log: those of other writers, and what the store lacked at the start.
	folded atomic.Uint64
	// command is the offset of the next command that the writer's life looks at.
	command                              atomic.Int64
	lives, unconfirmed, batches, decided atomic.Uint64
}

// commit commits an overlay with the place that it stands for.
func (p *partition) commit(o overlay) error {
	if err := o.commit(&p.place); err != nil {
		return storeError{err}
	}
	p.standing.next.Store(p.checker.Next())
	p.standing.voids.Store(p.checker.Voids())
	return nil
}

// parseKey returns the bucket that a command's record key names, or the partition's bucket for bad keys and why.
func (p *partition) parseKey(key []byte) (uint32, error) {
	bucket, err := events.ParseBucketKey(key, p.number, p.count)
	if err == nil && p.stream == events.StreamControl && bucket != events.ControlBucket {
		err = fmt.Errorf("record key names bucket %d of the control stream, which has one", bucket)
	}
	if err != nil {
		return events.BadKeyBucket(p.number), err
	}
	return bucket, nil
}

// foldBatch is the most envelopes folded in one commit.
const foldBatch = 4096

// follow folds what the events partition gets, until ctx is done; with an end, until it stands there.
func (p *partition) follow(ctx context.Context, end int64) error {
	if p.checker.Next() == end {
		return nil
	}
	tail, err := p.log.NewTail(p.eventTopic, map[int32]int64{p.number: p.checker.Next()})
	if err != nil {
		return fmt.Errorf("opening tail: %w", err)
	}
	defer tail.Close()
	for end < 0 || p.checker.Next() < end {
		batches, err := tail.Poll(ctx, foldBatch)
		if err != nil {
			return p.asAlarm(err)
		}
		if err := p.awaitRoom(ctx); err != nil {
			return err
		}
		for _, b := range batches {
			if err := p.fold(b.Records); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRoom waits until the confirmed state may be written. It comes before the work, not before the commit: what is decided and
// in the log is committed, for which the reserve is enough.
func (p *partition) awaitRoom(ctx context.Context) error {
	for p.full != nil && p.full() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(roomPoll):
		}
	}
	return nil
}

const roomPoll = 50 * time.Millisecond

// toEnd is follow without an end.
const toEnd = -1

// fold takes records of the events partition through the chain rule into the ledger, in one commit.
func (p *partition) fold(records []eventlog.Record) error {
	o := p.ledger.begin()
	defer o.drop()
	for _, r := range records {
		e, accepted, err := p.checker.Check(r.Offset, r.Key, r.Value)
		if err != nil {
			return err
		}
		if !accepted {
			continue
		}
		if err := o.apply(e.Envelope); err != nil {
			return fmt.Errorf("applying envelope at offset %d: %w", r.Offset, err)
		}
		p.cover(e)
	}
	p.forget()
	p.standing.folded.Add(uint64(len(records)))
	return p.commit(o)
}

// cover notes that an accepted envelope answers its command.
func (p *place) cover(e *events.Envelope) {
	var id commandID
	copy(id[:], e.GetCommandId())
	p.covered[e.GetCommandOffset()] = id
}

// forget drops covered commands that no scan will meet again: every scan starts at the largest low watermark or later.
func (p *place) forget() {
	for offset := range p.covered {
		if offset < p.checker.MaxLowWatermark() {
			delete(p.covered, offset)
		}
	}
}

// lowWatermark is L: the lowest command offset from the start of the scan on that is not covered in the confirmed state.
func (p *place) lowWatermark(from int64) int64 {
	for {
		if _, ok := p.covered[from]; !ok {
			return from
		}
		from++
	}
}

func (p *partition) alarm(offset int64, bucket uint32, reason error) *events.Alarm {
	return &events.Alarm{Topic: p.eventTopic, Partition: p.number, Offset: offset, Bucket: bucket, Reason: reason.Error()}
}

func (p *partition) commandAlarm(offset int64, bucket uint32, reason string) *events.Alarm {
	return &events.Alarm{Topic: p.commandTopic, Partition: p.number, Offset: offset, Bucket: bucket, Reason: reason}
}

// asAlarm turns a position outside of the log into the alarm that it is.
func (p *partition) asAlarm(err error) error {
	var out *eventlog.OutOfRangeError
	if errors.As(err, &out) {
		return &events.Alarm{Topic: out.Topic, Partition: out.Partition, Offset: out.Want, Bucket: events.NoBucket, Reason: err.Error()}
	}
	return err
}
