package pubsub_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
)

// rig is a topic on the embedded broker with numbered messages in one partition.
type rig struct {
	t     *testing.T
	log   *eventlog.Log
	topic string
}

func newRig(t *testing.T, messages int) *rig {
	t.Helper()
	addr := embedded(t)
	r := &rig{t, open(t, addr), "numbers"}
	if err := newTopics(t, addr).make(r.topic); err != nil {
		t.Fatal(err)
	}
	r.publish(0, messages)
	return r
}

// publish appends messages with these numbers to partition 0.
func (r *rig) publish(from, to int) {
	r.t.Helper()
	pub := pubsub.NewPublisher(r.log, pubsub.PublisherConfig{Partition: func(*message.Message, int) int32 { return 0 }})
	defer pub.Close()
	for i := from; i < to; i++ {
		if err := pub.Publish(r.topic, message.NewMessage(fmt.Sprint(i), []byte("x"))); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) subscriber(cfg pubsub.SubscriberConfig) (*pubsub.Subscriber, <-chan *message.Message) {
	r.t.Helper()
	cfg.Group = "numbers"
	if cfg.CommitEvery == 0 {
		cfg.CommitEvery = 50 * time.Millisecond
	}
	s, err := pubsub.NewSubscriber(r.log, cfg, quiet())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close() })
	out, err := s.Subscribe(context.Background(), r.topic)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, out
}

// next waits for a message.
func (r *rig) next(from <-chan *message.Message) *message.Message {
	r.t.Helper()
	select {
	case m, ok := <-from:
		if !ok {
			r.t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(patient):
		r.t.Fatalf("no message within %s", patient)
		return nil
	}
}

// committed waits until the group's position in partition 0 is this.
func (r *rig) committed(want int64) {
	r.t.Helper()
	var have []int64
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if have, err = r.log.GroupPositions(soon(r.t), pubsub.GroupOf("numbers", r.topic), r.topic); err != nil {
			r.t.Fatal(err)
		}
		if have[0] == want {
			return
		}
	}
	r.t.Fatalf("positions %v, want %d", have, want)
}

// TestAcknowledgedWithoutAHole: a position moves past a message only when all before it are acknowledged, whatever the order.
func TestAcknowledgedWithoutAHole(t *testing.T) {
	r := newRig(t, 6)
	s, out := r.subscriber(pubsub.SubscriberConfig{Window: 4, Drain: time.Millisecond})
	var held []*message.Message
	for range 4 {
		held = append(held, r.next(out))
	}
	slices.SortFunc(held, func(a, b *message.Message) int { return int(a.UUID[0]) - int(b.UUID[0]) })
	held[3].Ack()
	held[1].Ack()
	more := []*message.Message{r.next(out), r.next(out)} // their places in the window are free
	time.Sleep(200 * time.Millisecond)
	held[0].Ack()
	r.committed(2) // 0 and 1; 3 stands behind 2
	for _, m := range more {
		m.Ack()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.committed(2)
	if held[2].Context().Err() == nil {
		t.Error("a message that is given back has a context that goes on")
	}
	held[2].Ack() // too late
	_, again := r.subscriber(pubsub.SubscriberConfig{})
	for want := 2; want < 6; want++ {
		m := r.next(again)
		if m.UUID != fmt.Sprint(want) {
			t.Errorf("message %s, want %d", m.UUID, want)
		}
		m.Ack()
	}
	r.committed(6)
}

// TestRefusedComesAgain: in order, before anything behind it.
func TestRefusedComesAgain(t *testing.T) {
	r := newRig(t, 2)
	_, out := r.subscriber(pubsub.SubscriberConfig{Redelivery: time.Millisecond})
	for range 3 {
		m := r.next(out)
		if m.UUID != "0" {
			t.Fatalf("message %s before 0 was acknowledged", m.UUID)
		}
		m.Nack()
		<-m.Context().Done()
	}
	r.next(out).Ack()
	if m := r.next(out); m.UUID != "1" {
		t.Errorf("message %s, want 1", m.UUID)
	}
}

// TestRevokedPartitionIsDrained: while a handler works, its partition is not given to a member that joins; the handler's
// acknowledgement counts, and the other goes on behind it.
func TestRevokedPartitionIsDrained(t *testing.T) {
	r := newRig(t, 40)
	type done struct {
		by   int
		uuid string
	}
	var mu sync.Mutex
	var all []done
	busy := map[string]int{} // messages that are out, by member
	work := func(by int, from <-chan *message.Message) {
		for m := range from {
			mu.Lock()
			busy[m.UUID]++
			if busy[m.UUID] > 1 {
				t.Errorf("message %s is out twice at once", m.UUID)
			}
			mu.Unlock()
			time.Sleep(30 * time.Millisecond)
			mu.Lock()
			busy[m.UUID]--
			if m.Context().Err() == nil { // after it, nobody hears the acknowledgement
				all = append(all, done{by, m.UUID})
			}
			m.Ack()
			mu.Unlock()
		}
	}
	first, out := r.subscriber(pubsub.SubscriberConfig{})
	go work(1, out)
	time.Sleep(300 * time.Millisecond)
	second, other := r.subscriber(pubsub.SubscriberConfig{})
	go work(2, other)
	time.Sleep(300 * time.Millisecond)
	first.Close()
	r.committed(40)
	second.Close()
	mu.Lock()
	defer mu.Unlock()
	seen := map[string]int{}
	for _, d := range all {
		seen[d.uuid]++
	}
	if len(seen) != 40 || len(all) != 40 {
		t.Errorf("%d messages handled %d times: a handover in peace repeats nothing", len(seen), len(all))
	}
}

// TestNewGroupBeginsAtTheEnd: what was there before is not handed out, and a position is there before the first record.
func TestNewGroupBeginsAtTheEnd(t *testing.T) {
	r := newRig(t, 5)
	s, _ := r.subscriber(pubsub.SubscriberConfig{AtEnd: true})
	r.committed(5)
	s.Close()
	r.publish(5, 7)
	_, out := r.subscriber(pubsub.SubscriberConfig{AtEnd: true})
	if m := r.next(out); m.UUID != "5" {
		t.Errorf("message %s, want 5: what came while nobody read is still to be done", m.UUID)
	}
}

// TestRecordsThatAskForNothing move the position, do not fill the window, and take no memory behind a message that is out.
func TestRecordsThatAskForNothing(t *testing.T) {
	r := newRig(t, 300)
	var last int64
	_, out := r.subscriber(pubsub.SubscriberConfig{Unmarshal: func(_ context.Context, _ int32, rec *eventlog.Record) (*message.Message, error) {
		if rec.Offset != 0 && rec.Offset != 299 {
			return nil, nil
		}
		last = rec.Offset
		return pubsub.FromRecord(rec), nil
	}})
	m := r.next(out)
	r.committed(-1)
	m.Ack()
	m = r.next(out)
	if m.UUID != "299" || last != 299 {
		t.Errorf("message %s", m.UUID)
	}
	r.committed(299)
	m.Ack()
	r.committed(300)
}

// TestUnmarshalIsTriedAgain: a record that cannot be judged yet holds its partition, not the subscriber.
func TestUnmarshalIsTriedAgain(t *testing.T) {
	r := newRig(t, 1)
	tries := 0
	_, out := r.subscriber(pubsub.SubscriberConfig{Redelivery: time.Millisecond, Unmarshal: func(_ context.Context, _ int32, rec *eventlog.Record) (*message.Message, error) {
		if tries++; tries < 5 {
			return nil, fmt.Errorf("try %d", tries)
		}
		return pubsub.FromRecord(rec), nil
	}})
	r.next(out).Ack()
	r.committed(1)
}
