package pubsub

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
)

// queue is one partition while it is ours. A goroutine sends its records in order, as far as the window allows; another per
// message that is out waits for its acknowledgement.
type queue struct {
	sub       *subscription
	partition int32
	fetch     func(on bool)   // has the partition fetched or not; called with mu held, so that the last call is what paused says
	window    chan struct{}   // a token per message that is out
	sending   context.Context //nolint:containedctx // done: nothing is sent any more
	endSend   context.CancelFunc
	life      context.Context //nolint:containedctx // of messages that are out; done: they are given back
	giveBack  context.CancelFunc
	work      sync.WaitGroup // the sender and the waiters

	mu        sync.Mutex // guards what follows
	waiting   []eventlog.Record
	bytes     int // of their values
	paused    bool
	arrived   chan struct{} // closed when records come; nil when nobody waits
	flights   []*flight     // taken and not known to be done up to, oldest first; at most two per message that is out, and one
	next      int64         // all before it is done
	committed int64         // where it began, or what was last written down
	known     bool          // next is set
}

// flight is a record on its way through a handler.
type flight struct {
	offset int64
	done   bool
}

func newQueue(s *subscription, partition int32) *queue {
	q := &queue{sub: s, partition: partition, window: make(chan struct{}, s.cfg.Window)}
	q.fetch = func(on bool) { s.fetch(partition, on) }
	q.sending, q.endSend = context.WithCancel(s.life)
	// Not the subscription's own life: what is out when that ends may still finish.
	q.life, q.giveBack = context.WithCancel(context.WithoutCancel(s.life))
	q.work.Go(q.send)
	return q
}

// add appends polled records. A partition with too many is not fetched until half is gone.
func (q *queue) add(records []eventlog.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known {
		q.known, q.next, q.committed = true, records[0].Offset, records[0].Offset
	}
	q.waiting = append(q.waiting, records...)
	for i := range records {
		q.bytes += len(records[i].Value)
	}
	if q.arrived != nil {
		close(q.arrived)
		q.arrived = nil
	}
	if !q.paused && (len(q.waiting) >= queueRecords || q.bytes >= queueBytes) {
		q.paused = true
		q.fetch(false)
	}
}

// take waits for the next record and notes it as on its way. False: the queue closes.
func (q *queue) take() (eventlog.Record, *flight, bool) {
	for {
		q.mu.Lock()
		if len(q.waiting) > 0 {
			record := q.waiting[0]
			q.bytes -= len(record.Value)
			q.waiting[0] = eventlog.Record{} // its memory goes with the message
			if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
				q.waiting = nil
			}
			f := &flight{offset: record.Offset}
			q.flights = append(q.flights, f)
			if q.paused && len(q.waiting) <= queueRecords/2 && q.bytes <= queueBytes/2 {
				q.paused = false
				q.fetch(true)
			}
			q.mu.Unlock()
			return record, f, true
		}
		if q.arrived == nil {
			q.arrived = make(chan struct{})
		}
		arrived := q.arrived
		q.mu.Unlock()
		select {
		case <-arrived:
		case <-q.sending.Done():
			return eventlog.Record{}, nil, false
		}
	}
}

// send hands out records until the queue closes.
func (q *queue) send() {
	for {
		record, f, ok := q.take()
		if !ok {
			return
		}
		m, ok := q.unmarshal(&record)
		switch {
		case !ok:
			return
		case m == nil:
			q.land(f)
			continue
		}
		select {
		case q.window <- struct{}{}:
		case <-q.sending.Done():
			return
		}
		out, ok := q.deliver(m)
		if !ok {
			return
		}
		q.work.Go(func() { q.await(out, f) })
	}
}

// unmarshal asks for the record's message until there is an answer. False: the queue closes.
func (q *queue) unmarshal(record *eventlog.Record) (*message.Message, bool) {
	told := false
	for {
		m, err := q.sub.cfg.Unmarshal(q.sending, q.partition, record)
		if err == nil {
			return m, true
		}
		if !told && q.sending.Err() == nil {
			q.sub.logger.Error("a record waits", "partition", q.partition, "offset", record.Offset, "error", err)
			told = true
		}
		if !q.pause() {
			return nil, false
		}
	}
}

func (q *queue) pause() bool {
	timer := time.NewTimer(q.sub.cfg.Redelivery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.sending.Done():
	}
	return false
}

// delivered is a message that is out.
type delivered struct {
	*message.Message
	end context.CancelFunc
}

// deliver sends a copy of the message. False: the queue closes.
func (q *queue) deliver(m *message.Message) (delivered, bool) {
	out := delivered{Message: m.Copy()}
	var ctx context.Context
	ctx, out.end = context.WithCancel(q.life)
	out.SetContext(ctx)
	select {
	case q.sub.out <- out.Message:
		return out, true
	case <-q.sending.Done():
	}
	out.end()
	return out, false
}

// await waits until a message is acknowledged, sends it again when it is refused, or sees it given back.
func (q *queue) await(out delivered, f *flight) {
	defer func() { <-q.window }()
	for {
		select {
		case <-out.Acked():
			out.end()
			q.land(f)
			return
		case <-out.Nacked():
			out.end()
		case <-q.life.Done():
			out.end()
			return
		}
		if !q.pause() {
			return
		}
		var ok bool
		if out, ok = q.deliver(out.Message); !ok {
			return
		}
	}
}

// land notes that a record is done, and moves next over all that are, without a hole. Behind a message that is out, records
// that ask for nothing share one flight.
func (q *queue) land(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f.done = true
	if n := len(q.flights); n > 1 && q.flights[n-1] == f && q.flights[n-2].done {
		q.flights[n-2].offset = f.offset
		q.flights = q.flights[:n-1]
	}
	for len(q.flights) > 0 && q.flights[0].done {
		q.next = q.flights[0].offset + 1
		q.flights = q.flights[1:]
	}
	if len(q.flights) == 0 {
		q.flights = nil
	}
}

// toCommit returns the position to write down; moved is false when there is nothing new.
func (q *queue) toCommit() (next int64, moved bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next, q.known && q.next != q.committed
}

func (q *queue) committedAt(next int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.committed = next
}

// drain ends the queue: what is out may finish within patience and is then given back.
func (q *queue) drain(patience time.Duration) {
	q.endSend()
	finished := make(chan struct{})
	go func() {
		q.work.Wait()
		close(finished)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
	q.giveBack()
	<-finished
}
