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
	topic     string
	maxBytes  int
	client    *kgo.Client
	deadlines deadlines
	dead      atomic.Pointer[error]
	closing   sync.Once
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
		kgo.ProducerLinger(l.cfg.Linger),
		kgo.MaxBufferedRecords(l.cfg.MaxBuffered),
		kgo.MaxBufferedBytes(maxBufferBytes),
		kgo.ProduceRequestTimeout(defaultProduceTimeout),
		// Without it no deadline ends an append that was sent to a broker which is gone. What it gives up, the chain rule
		// and the request keys allow for: a record may arrive later, or twice.
		kgo.AllowIdempotentProduceCancellation(),
	)
	if err != nil {
		return nil, err
	}
	return &Appender{topic: topic, maxBytes: max, client: client, deadlines: deadlines{within: l.cfg.DeliveryTimeout}}, nil
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
	// The client ends an append soon after ctx, but not at once when a connection hangs.
	done := make(chan kgo.ProduceResults, 1)
	go func() { done <- a.client.ProduceSync(ctx, out...) }()
	select {
	case results := <-done:
		return a.judge(partition, results, out, expect)
	case <-ctx.Done():
		return fmt.Errorf("appending to %s/%d: %w: %w", a.topic, partition, ErrUnknownOutcome, ctx.Err())
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

// AppendAsync hands one record over and returns. Records wait a moment for company (Config.Linger) and go out in the
// order of the calls. answer is called exactly once, from another goroutine, and must not block: with the record's
// offset, or with ErrBufferFull, ErrTooLarge (nothing was written) or ErrUnknownOutcome (it may have been). It is called
// at the latest a little after Config.DeliveryTimeout. ctx only matters until the record is handed over.
func (a *Appender) AppendAsync(ctx context.Context, partition int32, rec Record, answer func(offset int64, err error)) {
	err := a.usable()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && a.tooLarge(&rec) {
		err = fmt.Errorf("record for %s: %w", a.topic, ErrTooLarge)
	}
	if err != nil {
		go answer(-1, err)
		return
	}
	a.client.TryProduce(a.deadlines.next(), toKgo(a.topic, partition, &rec), func(r *kgo.Record, err error) {
		if err != nil {
			answer(-1, a.explain(partition, err))
			return
		}
		answer(r.Offset, nil)
	})
}

// Close drops what is still waiting (its answers say ErrUnknownOutcome) and ends the session. Idempotent.
func (a *Appender) Close() {
	a.kill(fmt.Errorf("appender of %s: %w", a.topic, ErrClosed))
	a.closing.Do(func() {
		a.client.Close()
		a.deadlines.close()
	})
}

// Flush waits until everything handed over was answered, or ctx is done.
func (a *Appender) Flush(ctx context.Context) error {
	if err := a.client.Flush(ctx); err != nil {
		return fmt.Errorf("flushing %s: %w", a.topic, err)
	}
	return nil
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

func (a *Appender) tooLarge(r *Record) bool {
	n := len(r.Key) + len(r.Value) + recordSlack
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n > a.maxBytes
}

// explain sorts the client's errors into those after which the record is surely not written, and the rest.
func (a *Appender) explain(partition int32, err error) error {
	switch {
	case errors.Is(err, kgo.ErrMaxBuffered):
		return fmt.Errorf("appending to %s/%d: %w", a.topic, partition, ErrBufferFull)
	case errors.Is(err, kerr.MessageTooLarge):
		return fmt.Errorf("appending to %s/%d: %w", a.topic, partition, ErrTooLarge)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("appending to %s/%d: %w", a.topic, partition, ErrNoTopic)
	}
	return fmt.Errorf("appending to %s/%d: %w: %w", a.topic, partition, ErrUnknownOutcome, err)
}

// deadlines hands out contexts that end no sooner than within, and at most a quarter later. Records of one moment share
// one: the callers' contexts cannot be used, because the client fails a partition's whole buffer when the context of one
// record in it ends; its own delivery timeout neither, because that counts from the record's timestamp.
type deadlines struct {
	within time.Duration

	mu      sync.Mutex
	current context.Context
	renew   time.Time
	cancel  context.CancelFunc
}

func (d *deadlines) next() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Before(d.renew) {
		return d.current
	}
	slack := d.within / 4
	d.renew = now.Add(slack)
	// The context before this one still ends by its own deadline.
	d.current, d.cancel = context.WithDeadline(context.Background(), now.Add(d.within+slack))
	return d.current
}

func (d *deadlines) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
	}
}
