package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
)

// Bounds of what is polled at once and of what waits in a queue: a partition with more is not fetched until half is gone.
const (
	pollRecords  = 1000
	queueRecords = 4000
	queueBytes   = 4 << 20
)

// subscription is one member of a group: a poller, a queue per partition that is ours, and who writes positions down.
type subscription struct {
	cfg    SubscriberConfig
	logger *slog.Logger
	out    chan *message.Message
	life   context.Context //nolint:containedctx // the subscription's own; messages hang on it
	stop   context.CancelFunc

	mu       sync.Mutex // guards what follows
	consumer *eventlog.Consumer
	queues   map[int32]*queue

	committing sync.Mutex // held while positions are written down, and while partitions are lost
}

func newSubscription(ctx context.Context, cfg SubscriberConfig, logger *slog.Logger) *subscription {
	s := &subscription{cfg: cfg, logger: logger, out: make(chan *message.Message), queues: map[int32]*queue{}}
	s.life, s.stop = context.WithCancel(ctx)
	return s
}

// run reads until the subscription's life ends, then gives up its partitions and closes the channel. What is out has Drain, the
// last commit endWithin and the group as long, also when no broker answers.
func (s *subscription) run(consumer *eventlog.Consumer) {
	s.mu.Lock()
	s.consumer = consumer
	s.mu.Unlock()
	var commits sync.WaitGroup
	commits.Go(s.commitRegularly)
	for s.life.Err() == nil {
		err := consumer.Poll(s.life, pollRecords, s.put)
		if errors.Is(err, eventlog.ErrClosed) {
			break
		}
	}
	s.stop()
	commits.Wait()
	s.lost(s.partitions(), true) // before leaving, so that each has its own time
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	consumer.Close(ctx) // loses what was assigned meanwhile
	s.lost(s.partitions(), false)
	close(s.out)
}

func (s *subscription) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.consumer == nil {
		return nil
	}
	return s.consumer.LastError()
}

func (s *subscription) partitions() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.queues))
}

// assigned begins a queue for each partition. Its records come by put.
func (s *subscription) assigned(partitions []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		if s.queues[p] == nil {
			s.queues[p] = newQueue(s, p)
		}
	}
}

// put hands polled records to their queue. The poller waits for nobody.
func (s *subscription) put(b eventlog.Batch) {
	s.mu.Lock()
	q := s.queues[b.Partition]
	s.mu.Unlock()
	if q != nil {
		q.add(b.Records)
	}
}

// fetch has a partition fetched again, or no longer. It does not block.
func (s *subscription) fetch(partition int32, on bool) {
	s.mu.Lock()
	consumer := s.consumer
	s.mu.Unlock()
	if on {
		consumer.Resume(partition)
	} else {
		consumer.Pause(partition)
	}
}

// lost ends the queues of partitions. While they are still ours, what is out may finish, and how far they are is written down.
func (s *subscription) lost(partitions []int32, ours bool) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.mu.Lock()
	consumer := s.consumer
	var gone []*queue
	for _, p := range partitions {
		if q := s.queues[p]; q != nil {
			gone = append(gone, q)
			delete(s.queues, p)
		}
	}
	s.mu.Unlock()
	var drained sync.WaitGroup
	for _, q := range gone {
		patience := s.cfg.Drain
		if !ours {
			patience = 0
		}
		drained.Go(func() { q.drain(patience) })
	}
	drained.Wait()
	if consumer == nil {
		return // nothing was polled yet
	}
	if ours {
		within := commitWithin
		if s.life.Err() != nil {
			within = endWithin
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		s.commit(ctx, consumer, gone)
	}
	for _, q := range gone {
		consumer.Resume(q.partition) // whoever gets it next, this member or another, fetches it
	}
}

func (s *subscription) commitRegularly() {
	tick := time.NewTicker(s.cfg.CommitEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		s.committing.Lock()
		s.mu.Lock()
		consumer, queues := s.consumer, slices.Collect(maps.Values(s.queues))
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.life, commitWithin) // the end's own commit is not to wait for it
		s.commit(ctx, consumer, queues)
		cancel()
		s.committing.Unlock()
	}
}

const (
	commitWithin = 3 * time.Second
	endWithin    = time.Second // at the end of a subscription
)

// commit writes down how far queues are. What fails comes with the next; at the end, the messages since the last come again.
func (s *subscription) commit(ctx context.Context, consumer *eventlog.Consumer, queues []*queue) {
	next := map[int32]int64{}
	for _, q := range queues {
		if o, moved := q.toCommit(); moved {
			next[q.partition] = o
		}
	}
	if len(next) == 0 {
		return
	}
	if err := consumer.Commit(ctx, next); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // the end's own commit follows
			s.logger.Warn("positions are not written down yet", "error", err)
		}
		return
	}
	for _, q := range queues {
		if o, ok := next[q.partition]; ok {
			q.committedAt(o)
		}
	}
}
