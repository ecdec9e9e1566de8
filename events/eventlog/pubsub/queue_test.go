package pubsub

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
)

// TestPauseAndResumeKeepTheirOrder: a queue that empties at the moment when it fills up is fetched afterwards.
func TestPauseAndResumeKeepTheirOrder(t *testing.T) {
	var done atomic.Int32
	cfg := SubscriberConfig{Unmarshal: func(context.Context, int32, *eventlog.Record) (*message.Message, error) {
		done.Add(1)
		return nil, nil
	}}
	s := newSubscription(t.Context(), cfg.withDefaults(), slog.New(slog.DiscardHandler))
	q := newQueue(s, 0)
	defer q.drain(0)
	var mu sync.Mutex
	fetched, paused := true, false
	q.fetch = func(on bool) {
		if !on { // a poller that is slow to pause: the sender has all the time to empty the queue
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && done.Load() < queueRecords; {
				time.Sleep(time.Millisecond)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		fetched, paused = on, paused || !on
	}
	q.add(make([]eventlog.Record, queueRecords))
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && done.Load() < queueRecords; {
		time.Sleep(time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	if !fetched || !paused || done.Load() != queueRecords {
		t.Errorf("fetched %v, was paused %v, %d records done: an empty queue must be fetched", fetched, paused, done.Load())
	}
}
