package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Tail reads partitions of one topic from positions that its caller keeps. It belongs to no group and never moves a
// position by itself. One goroutine polls; LastError and Close may be called from others.
type Tail struct {
	log    *Log
	topic  string
	client *kgo.Client
	status connStatus
	stop   context.CancelFunc
	life   context.Context
	fatal  error           // what ended this tail; every later Poll returns it
	next   map[int32]int64 // the offset that each partition is read from next
	bare   bool
}

// Fetch sizes: what one answer may hold. A larger batch still arrives, alone.
const (
	fetchBytes          = 8 << 20
	fetchPartitionBytes = 2 << 20
	fetchMaxWait        = 2 * time.Second
)

// NewTail starts reading: partition p from offset from[p], partitions that are not named not at all.
func (l *Log) NewTail(topic string, from map[int32]int64, options ...TailOption) (*Tail, error) {
	t := &Tail{log: l, topic: topic, next: make(map[int32]int64, len(from))}
	for _, set := range options {
		set(t)
	}
	offsets := make(map[int32]kgo.Offset, len(from))
	for p, o := range from {
		if o < 0 {
			return nil, fmt.Errorf("tailing %s/%d: negative offset %d", topic, p, o)
		}
		offsets[p], t.next[p] = kgo.NewOffset().At(o), o
	}
	extra := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.FetchMinBytes(1), // a broker answers as soon as there is anything
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.WithHooks(&t.status),
	}
	if t.bare {
		extra = append(extra, kgo.WithDecompressor(bareDecompressor{kgo.DefaultDecompressor()}))
	}
	client, err := l.newClient(extra...)
	if err != nil {
		return nil, err
	}
	t.client = client
	t.life, t.stop = context.WithCancel(context.Background())
	return t, nil
}

// Poll waits until there are records, and returns at most max of them (0: all that are here), grouped by partition, in
// offset order. When ctx is done first it returns nothing and ctx.Err(). Trouble with brokers is retried inside and
// shown by LastError. An ErrOutOfRange, or ErrClosed after Close, ends the tail: every later Poll returns it again.
func (t *Tail) Poll(ctx context.Context, max int) ([]Batch, error) {
	for {
		if t.fatal != nil {
			return nil, t.fatal
		}
		fetches := t.client.PollRecords(ctx, max)
		out, err := t.sort(fetches)
		if err != nil {
			t.fatal = err
		}
		if len(out) > 0 {
			t.status.set(nil)
			return out, nil // what came before the trouble counts; the trouble is returned by the next Poll
		}
		if t.fatal == nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (t *Tail) sort(fetches kgo.Fetches) (out []Batch, fatal error) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		// Records that came with an error were read before it, unless the position was already given up.
		if len(p.Records) > 0 && fatal == nil {
			next := p.Records[len(p.Records)-1].Offset + 1
			out = append(out, Batch{Topic: t.topic, Partition: p.Partition, Records: fromKgo(p.Records), Behind: max(0, p.HighWatermark-next)})
			t.next[p.Partition] = next
		}
		if p.Err != nil && fatal == nil {
			fatal = t.judge(p.Partition, p.Err)
		}
	})
	return out, fatal
}

// judge turns a partition's error into what ends the tail, or notes it and returns nil.
func (t *Tail) judge(partition int32, err error) error {
	var lost *kgo.ErrDataLoss
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("tail of %s: %w", t.topic, ErrClosed)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &lost), errors.Is(err, kerr.OffsetOutOfRange):
		return t.outOfRange(partition)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		t.status.set(fmt.Errorf("tailing %s/%d: %w", t.topic, partition, ErrNoTopic))
		return nil
	}
	t.status.set(fmt.Errorf("tailing %s/%d: %w", t.topic, partition, err))
	return nil
}

func (t *Tail) outOfRange(partition int32) error {
	e := &OutOfRangeError{Topic: t.topic, Partition: partition, Want: t.next[partition], Start: -1, End: -1}
	ctx, cancel := context.WithTimeout(t.life, 2*time.Second)
	defer cancel()
	if starts, err := t.log.Starts(ctx, t.topic); err == nil && int(partition) < len(starts) {
		e.Start = starts[partition]
	}
	if ends, err := t.log.Ends(ctx, t.topic); err == nil && int(partition) < len(ends) {
		e.End = ends[partition]
	}
	return e
}

// LastError is the latest trouble with the brokers, nil since the last success.
func (t *Tail) LastError() error { return t.status.get() }

// Close ends the tail; a Poll that waits returns ErrClosed.
func (t *Tail) Close() {
	t.stop()
	t.client.Close()
}
