package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events/eventlog"
)

// SubscriberConfig says how a group reads.
type SubscriberConfig struct {
	// Group names the subscriber. Each topic has a consumer group of its own, GroupOf: members that read different topics would
	// disturb each other.
	Group string
	// AtEnd: a group that is new begins at the topic's end; else at its beginning.
	AtEnd bool
	// Unmarshal turns a record into a message; nil: the record asks for nothing and counts as done. It is called in offset order
	// within a partition, and may wait as long as ctx lasts. After an error it is called again. Default: what a Publisher wrote.
	Unmarshal func(ctx context.Context, partition int32, r *eventlog.Record) (*message.Message, error)
	// Window is how many messages of a partition may be out at once; default 1, and only then order is kept.
	Window int
	// Redelivery is the pause before a refused message comes again; default 100 ms.
	Redelivery time.Duration
	// Drain is how long messages that are out may take when their partition is lost or the subscriber closed; default 2 s, at
	// most a few seconds: others wait meanwhile.
	Drain time.Duration
	// CommitEvery is how often positions are written down; default 1 s. What a killed process has done since comes again.
	CommitEvery time.Duration
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	if c.Unmarshal == nil {
		c.Unmarshal = func(_ context.Context, _ int32, r *eventlog.Record) (*message.Message, error) {
			return FromRecord(r), nil
		}
	}
	c.Window = max(1, c.Window)
	for setting, to := range map[*time.Duration]time.Duration{&c.Redelivery: 100 * time.Millisecond, &c.Drain: 2 * time.Second, &c.CommitEvery: time.Second} {
		if *setting == 0 {
			*setting = to
		}
	}
	return c
}

// GroupOf returns the consumer group in which a subscriber of this name reads a topic.
func GroupOf(name, topic string) string { return name + ":" + topic }

// Subscriber reads topics. Every Subscribe joins the topic's group as another member. Safe for concurrent use.
type Subscriber struct {
	log    *eventlog.Log
	cfg    SubscriberConfig
	logger *slog.Logger

	mu     sync.Mutex // guards what follows; never held while brokers are asked
	open   map[*subscription]struct{}
	closed bool
	ends   sync.WaitGroup // of subscriptions
}

// NewSubscriber makes a Subscriber. The log outlives it.
func NewSubscriber(log *eventlog.Log, cfg SubscriberConfig, logger *slog.Logger) (*Subscriber, error) {
	if cfg.Group == "" {
		return nil, errors.New("pubsub: a subscriber needs a group")
	}
	return &Subscriber{log: log, cfg: cfg.withDefaults(), logger: logger, open: map[*subscription]struct{}{}}, nil
}

// Subscribe implements message.Subscriber. The channel is closed when ctx is done or after Close; until then what is out may
// still be acknowledged.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if s.isClosed() {
		return nil, fmt.Errorf("subscribing to %s: %w", topic, eventlog.ErrClosed)
	}
	sub := newSubscription(ctx, s.cfg, s.logger.With("group", GroupOf(s.cfg.Group, topic)))
	consumer, err := s.log.Consume(ctx, eventlog.ConsumerConfig{Group: GroupOf(s.cfg.Group, topic), Topic: topic, AtEnd: s.cfg.AtEnd,
		OnAssigned: sub.assigned, OnLost: sub.lost})
	if err != nil {
		sub.stop()
		return nil, fmt.Errorf("subscribing to %s: %w", topic, err)
	}
	if !s.start(sub, consumer) { // closed while brokers were asked
		sub.stop()
		sub.run(consumer)
		return nil, fmt.Errorf("subscribing to %s: %w", topic, eventlog.ErrClosed)
	}
	return sub.out, nil
}

func (s *Subscriber) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// start runs a subscription, unless the subscriber is closed.
func (s *Subscriber) start(sub *subscription, consumer *eventlog.Consumer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[sub] = struct{}{}
	s.ends.Go(func() {
		sub.run(consumer)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, sub)
	})
	return true
}

// LastError is the latest trouble of any open subscription with the brokers, nil if there is none.
func (s *Subscriber) LastError() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.open {
		err = errors.Join(err, sub.lastError())
	}
	return err
}

// Close implements message.Subscriber: it gives back what is out, leaves the groups and waits for all of that, Drain and a few
// seconds at most. A Subscribe that is under way fails. Idempotent.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	for sub := range s.open {
		sub.stop()
	}
	s.mu.Unlock()
	s.ends.Wait()
	return nil
}
