package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// AnyOffset as Append's expect: wherever the records land is fine.
const AnyOffset int64 = -1

// Appender is one producer session on one topic: idempotent, acknowledged by all in-sync replicas, order kept per
// partition, partition chosen by the caller. Safe for concurrent use.
type Appender struct {
	topic    string
	maxBytes int
	client   *kgo.Client
	queue    asyncQueue
	dead     atomic.Pointer[error]
	closing  sync.Once
}

// recordSlack bounds what the record format adds to a record's own bytes.
const recordSlack = 128

// NewAppender opens a producer session. The first append connects.
func (l *Log) NewAppender(topic string) (*Appender, error) {
	codec, err := l.cfg.compression()
	if err != nil {
		return nil, err
	}
	max := maxBatchBytes(topic)
	client, err := l.newClient(
		codec,
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(max)),
		// Never waited for: ProduceSync ends it once its records are handed over. Without it the first record of an
		// append would go out as a batch of its own.
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProduceRequestTimeout(defaultProduceTimeout),
		// Without it no deadline ends an append that was sent to a broker which is gone. What it gives up, the chain rule
		// and the request keys allow for: a record may arrive later, or twice.
		kgo.AllowIdempotentProduceCancellation(),
	)
	if err != nil {
		return nil, err
	}
	return &Appender{topic: topic, maxBytes: max, client: client, queue: newAsyncQueue(l.cfg)}, nil
}

// Append writes the records to the partition, in order, and waits for the answer.
//
// With expect ≥ 0 it succeeds if and only if every record i landed at offset expect+i. Any failure of such an append
// kills the appender: what was sent may be in the log, and nothing sent after it may count. The caller folds the
// partition to its end and opens a new one. With AnyOffset the appender lives on.
//
// Errors: ErrForeignOffset, ErrUnknownOutcome, ErrTooLarge, ErrAppenderDead, ErrClosed.
func (a *Appender) Append(ctx context.Context, partition int32, recs []Record, expect int64) error {
	err := a.append(ctx, partition, recs, expect)
	if err != nil && expect >= 0 {
		a.kill(err)
	}
	return err
}

func (a *Appender) append(ctx context.Context, partition int32, recs []Record, expect int64) error {
	if err := a.usable(); err != nil || len(recs) == 0 {
		return err
	}
	out := make([]*kgo.Record, len(recs))
	for i := range recs {
		if a.tooLarge(&recs[i]) {
			return fmt.Errorf("record %d for %s: %w", i, a.topic, ErrTooLarge)
		}
		out[i] = toKgo(a.topic, partition, &recs[i])
	}
	results, err := a.produce(ctx, partition, out)
	if err != nil {
		return err
	}
	return a.judge(partition, results, out, expect)
}

// produce sends the records and waits for all answers, or for the end of ctx: the client ends an append soon after that,
// but not at once when a connection hangs. After an error the records still belong to the client.
func (a *Appender) produce(ctx context.Context, partition int32, recs []*kgo.Record) (kgo.ProduceResults, error) {
	done := make(chan kgo.ProduceResults, 1)
	go func() { done <- a.client.ProduceSync(ctx, recs...) }()
	select {
	case results := <-done:
		return results, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("appending to %s/%d: %w: %w", a.topic, partition, ErrUnknownOutcome, ctx.Err())
	}
}

// judge decides what the answers mean: the records are confirmed, or the first thing that is wrong.
func (a *Appender) judge(partition int32, results kgo.ProduceResults, sent []*kgo.Record, expect int64) error {
	for _, r := range results {
		if r.Err != nil {
			return a.explain(partition, r.Err)
		}
	}
	if expect < 0 {
		return nil
	}
	for i, r := range sent {
		if want := expect + int64(i); r.Offset != want {
			return &ForeignOffsetError{Topic: a.topic, Partition: partition, Index: i, Want: want, Got: r.Offset}
		}
	}
	return nil
}

// Close ends the session. Appends that are under way end with ErrUnknownOutcome, those that were not sent yet with
// ErrClosed. Idempotent.
func (a *Appender) Close() {
	a.kill(fmt.Errorf("appender of %s: %w", a.topic, ErrClosed))
	a.closing.Do(a.client.Close)
}

func (a *Appender) kill(why error) { a.dead.CompareAndSwap(nil, &why) }

func (a *Appender) usable() error {
	why := a.dead.Load()
	if why == nil {
		return nil
	}
	if errors.Is(*why, ErrClosed) {
		return *why
	}
	return fmt.Errorf("%w: %w", ErrAppenderDead, *why)
}

func (a *Appender) tooLarge(r *Record) bool { return a.size(r) > a.maxBytes }

// size is at least what the record takes in an uncompressed batch of its own.
func (a *Appender) size(r *Record) int {
	n := len(r.Key) + len(r.Value) + recordSlack
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

// explain sorts the client's errors into those after which the record is surely not written, and the rest.
func (a *Appender) explain(partition int32, err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return fmt.Errorf("appending to %s/%d: %w", a.topic, partition, ErrTooLarge)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("appending to %s/%d: %w", a.topic, partition, ErrNoTopic)
	}
	return fmt.Errorf("appending to %s/%d: %w: %w", a.topic, partition, ErrUnknownOutcome, err)
}
