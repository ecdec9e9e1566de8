package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Asynchronous appends batch themselves by back-pressure: per partition one produce is under way, and what arrives
// meanwhile goes out together in the next. A lone record waits for nobody; under load batches grow with what the broker
// needs for one, which on the embedded broker is two fsyncs per partition and batch.

type asyncQueue struct {
	patience   time.Duration // Config.DeliveryTimeout
	maxRecords int

	mu      sync.Mutex
	lanes   map[int32]*lane
	records int // waiting or under way
	bytes   int
	idle    chan struct{} // closed when records falls to 0; nil when nobody waits for that
}

// lane is the queue of one partition. While busy, a goroutine sends.
type lane struct {
	waiting []waiting
	busy    bool
}

type waiting struct {
	rec    *kgo.Record
	size   int
	since  time.Time
	answer func(offset int64, err error)
}

// roundBytes bounds what one produce carries, so that one answer does not wait for megabytes.
const roundBytes = 4 << 20

func newAsyncQueue(cfg Config) asyncQueue {
	return asyncQueue{patience: cfg.DeliveryTimeout, maxRecords: cfg.MaxBuffered, lanes: make(map[int32]*lane)}
}

// AppendAsync hands one record over and returns. Records of a partition go out in the order of the calls. answer is
// called exactly once, from another goroutine, and must not block: with the record's offset, or with an error. After
// ErrNotSent, ErrTooLarge, ErrClosed and ErrAppenderDead nothing was written; after ErrUnknownOutcome it may have been.
// It is called at the latest a moment after Config.DeliveryTimeout. ctx only matters until the record is handed over.
func (a *Appender) AppendAsync(ctx context.Context, partition int32, rec Record, answer func(offset int64, err error)) {
	err := a.usable()
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrNotSent, ctx.Err())
	case a.tooLarge(&rec):
		err = fmt.Errorf("record for %s: %w", a.topic, ErrTooLarge)
	default:
		err = a.enqueue(partition, waiting{toKgo(a.topic, partition, &rec), a.size(&rec), time.Now(), answer})
	}
	if err != nil {
		go answer(-1, err)
	}
}

func (a *Appender) enqueue(partition int32, w waiting) error {
	q := &a.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.records >= q.maxRecords || q.bytes+w.size > maxBufferBytes {
		return fmt.Errorf("appending to %s/%d: %d records wait already: %w", a.topic, partition, q.records, ErrNotSent)
	}
	l := q.lanes[partition]
	if l == nil {
		l = &lane{}
		q.lanes[partition] = l
	}
	l.waiting = append(l.waiting, w)
	q.records++
	q.bytes += w.size
	if !l.busy {
		l.busy = true
		go a.drain(partition, l)
	}
	return nil
}

// drain sends round after round until nothing waits in the lane.
func (a *Appender) drain(partition int32, l *lane) {
	for {
		round := a.queue.take(l)
		if len(round) == 0 {
			return
		}
		a.send(partition, round)
		a.queue.done(round)
	}
}

func (q *asyncQueue) take(l *lane) []waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for n < len(l.waiting) && (n == 0 || bytes+l.waiting[n].size <= roundBytes) {
		bytes += l.waiting[n].size
		n++
	}
	round := l.waiting[:n:n]
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.busy = n > 0
	return round
}

func (q *asyncQueue) done(round []waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records -= len(round)
	for _, w := range round {
		q.bytes -= w.size
	}
	if q.records == 0 && q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
}

func (a *Appender) send(partition int32, round []waiting) {
	round = a.dropHopeless(partition, round)
	if len(round) == 0 {
		return
	}
	recs := make([]*kgo.Record, len(round))
	for i, w := range round {
		recs[i] = w.rec
	}
	ctx, cancel := context.WithDeadline(context.Background(), round[0].since.Add(a.queue.patience))
	defer cancel()
	results, err := a.produce(ctx, partition, recs)
	if err != nil {
		for _, w := range round {
			w.answer(-1, err)
		}
		return
	}
	failed := make(map[*kgo.Record]error)
	for _, r := range results {
		if r.Err != nil {
			failed[r.Record] = a.explain(partition, r.Err)
		}
	}
	for _, w := range round {
		if err := failed[w.rec]; err != nil {
			w.answer(-1, err)
		} else {
			w.answer(w.rec.Offset, nil)
		}
	}
}

// dropHopeless answers what has waited too long behind a slow broker, or belongs to a dead appender: unsent.
func (a *Appender) dropHopeless(partition int32, round []waiting) []waiting {
	dead, now := a.usable(), time.Now()
	n := 0
	for ; n < len(round); n++ {
		w := round[n]
		late := now.Sub(w.since) >= a.queue.patience
		if dead == nil && !late {
			break
		}
		if err := dead; err != nil {
			w.answer(-1, err)
		} else {
			w.answer(-1, fmt.Errorf("appending to %s/%d: waited for %v: %w", a.topic, partition, a.queue.patience, ErrNotSent))
		}
	}
	return round[n:]
}

// Flush waits until everything that was handed over is answered, or ctx is done.
func (a *Appender) Flush(ctx context.Context) error {
	q := &a.queue
	q.mu.Lock()
	if q.records == 0 {
		q.mu.Unlock()
		return nil
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flushing %s: %w", a.topic, ctx.Err())
	}
}
