package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// ClickLog is what the click sink needs of the log: to read, to append intents, to be told its partitions.
type ClickLog interface {
	Source
	NewAppender(topic string) (ClickAppender, error)
	Join(ctx context.Context, group string, topics []string, onAssigned, onLost func(topic string, partitions []int32)) (ClickMembership, error)
}

// ClickAppender appends under an offset check: it succeeds if and only if record i landed at offset expect+i. After an error
// it is of no more use.
type ClickAppender interface {
	Append(ctx context.Context, partition int32, recs []eventlog.Record, expect int64) error
	Close()
}

// ClickMembership is a place in the group; Close gives the partitions up.
type ClickMembership interface{ Close() }

// ClickLogOf makes a ClickLog of a Kafka log.
func ClickLogOf(log *eventlog.Log) ClickLog { return kafkaClicks{FromLog(log), log} }

type kafkaClicks struct {
	Source
	log *eventlog.Log
}

func (k kafkaClicks) NewAppender(topic string) (ClickAppender, error) {
	return k.log.NewAppender(topic)
}

func (k kafkaClicks) Join(ctx context.Context, group string, topics []string, onAssigned, onLost func(string, []int32)) (ClickMembership, error) {
	return k.log.Join(ctx, group, topics, onAssigned, onLost)
}

// bounds are the offsets [start, end) that one partition holds.
type bounds struct{ start, end int64 }

func boundsOf(ctx context.Context, log Source, topic string, partition int32) (b bounds, err error) {
	starts, err := log.Starts(ctx, topic)
	if err != nil {
		return b, fmt.Errorf("asking for the start of %s: %w", topic, err)
	}
	ends, err := log.Ends(ctx, topic)
	if err != nil {
		return b, fmt.Errorf("asking for the end of %s: %w", topic, err)
	}
	if int(partition) >= len(starts) || int(partition) >= len(ends) {
		return b, fmt.Errorf("%s has no partition %d", topic, partition)
	}
	return bounds{starts[partition], ends[partition]}, nil
}

func clickAlarm(topic string, partition int32, offset int64, reason string) *events.Alarm {
	return &events.Alarm{Topic: topic, Partition: partition, Offset: offset, Bucket: events.NoBucket, Reason: reason}
}

// clickReader reads one partition of a topic record by record and insists that no offset is missing.
type clickReader struct {
	topic     string
	partition int32
	next      int64
	tail      Tail
	left      []eventlog.Record
}

func openClickReader(log Source, topic string, partition int32, from int64) (*clickReader, error) {
	tail, err := log.NewTail(topic, map[int32]int64{partition: from})
	if err != nil {
		return nil, fmt.Errorf("opening tail of %s: %w", topic, err)
	}
	return &clickReader{topic: topic, partition: partition, next: from, tail: tail}, nil
}

func (r *clickReader) close() { r.tail.Close() }

// peek waits for the next record without taking it. The error is an alarm when the log does not hold the offset, ctx.Err()
// when there was none in time.
func (r *clickReader) peek(ctx context.Context) (*eventlog.Record, error) {
	for len(r.left) == 0 {
		batches, err := r.tail.Poll(ctx, 0)
		if errors.Is(err, eventlog.ErrOutOfRange) {
			return nil, clickAlarm(r.topic, r.partition, r.next, err.Error())
		}
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			r.left = append(r.left, b.Records...)
		}
	}
	if rec := &r.left[0]; rec.Offset != r.next {
		return nil, clickAlarm(r.topic, r.partition, r.next, fmt.Sprintf("gap in offsets: the next record has %d", rec.Offset))
	}
	return &r.left[0], nil
}

// take removes what peek returned.
func (r *clickReader) take() {
	r.left = r.left[1:]
	r.next++
}
