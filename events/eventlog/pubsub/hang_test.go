package pubsub_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
)

// TestNobodyWaitsForASubscribe: while brokers do not answer one that subscribes, others learn how the subscriber is, and it can
// be closed.
func TestNobodyWaitsForASubscribe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its backlog accepts; nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{l.Addr().String()}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s, err := pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: "g", AtEnd: true}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	pub := pubsub.NewPublisher(log, pubsub.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	go func() {
		_, err := s.Subscribe(ctx, "numbers")
		ended <- err
	}()
	go func() {
		m := message.NewMessage("1", nil)
		m.SetContext(ctx)
		ended <- pub.Publish("numbers", m)
	}()
	time.Sleep(200 * time.Millisecond)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		_ = s.LastError()
		_ = s.Close()
		_ = pub.Close()
	}()
	select {
	case <-looked:
	case err := <-ended:
		t.Fatalf("ended first: %v", err)
	case <-time.After(patient):
		t.Fatal("who only looks waits for the brokers")
	}
	cancel()
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("success without a broker")
			}
		case <-time.After(patient):
			t.Fatal("it outlives its context")
		}
	}
	if _, err := s.Subscribe(t.Context(), "numbers"); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("subscribing after Close: %v", err)
	}
}

// TestClosesWhileBrokersHang: a subscriber whose broker stops answering gives back what is out and ends within seconds.
func TestClosesWhileBrokersHang(t *testing.T) {
	addr, kill := restartable(t)
	r := &rig{t, open(t, addr), "numbers"}
	if err := newTopics(t, addr).make(r.topic); err != nil {
		t.Fatal(err)
	}
	r.publish(0, 3)
	s, out := r.subscriber(pubsub.SubscriberConfig{CommitEvery: time.Hour, Drain: 500 * time.Millisecond})
	r.next(out).Ack()
	held := r.next(out)
	signal := func(name string) {
		if err := exec.Command(kill[0], kill[1], strings.Replace(kill[2], "-9", name, 1)).Run(); err != nil {
			t.Fatal(err)
		}
	}
	signal("-STOP")
	defer signal("-CONT")
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("closed after %s", took)
	}
	if held.Context().Err() == nil {
		t.Error("what was out was not given back")
	}
}
