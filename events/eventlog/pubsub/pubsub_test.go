package pubsub_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// long asks for Watermill's suite in its long form: HOPLOG_PUBSUB=long.
var long = os.Getenv("HOPLOG_PUBSUB") == "long"

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// embedded starts the embedded broker; it is spoken to over TCP like any other.
func embedded(t *testing.T) (addr string) {
	t.Helper()
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.Addr()
}

func open(t *testing.T, addr string) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{addr}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	if err := log.WaitReady(soon(t), 1); err != nil {
		t.Fatal(err)
	}
	return log
}

// patient is how long that may take which is to happen: the machine may be busy.
const patient = 2 * time.Minute

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	return ctx
}

// topics makes topics of four partitions.
type topics struct {
	t     *testing.T
	admin *kadm.Client
}

func newTopics(t *testing.T, addr string) topics {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return topics{t, kadm.NewClient(client)}
}

func (m topics) make(name string) error {
	_, err := m.admin.CreateTopic(soon(m.t), 4, 1, nil, name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // the suite asks for some of them again
		return err
	}
	for { // a broker answers for a new topic a moment after it has made it
		found, err := m.admin.ListTopics(soon(m.t), name)
		if err != nil || (found.Error() == nil && len(found[name].Partitions) == 4) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// initialized makes the topics that the suite asks for.
type initialized struct {
	*pubsub.Subscriber
	topics topics
}

// SubscribeInitialize implements message.SubscribeInitializer.
func (s initialized) SubscribeInitialize(topic string) error { return s.topics.make(topic) }

// byPayload keeps messages of the same payload, which the suite calls their type, in one partition.
func byPayload(m *message.Message, n int) int32 {
	return int32(xxhash.Sum64(m.Payload) % uint64(n))
}

// TestConformance runs Watermill's own suite: once with a window of one, which keeps the order of a partition, and once
// with a wide one, which does not.
func TestConformance(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		if long {
			addr, restart := restartable(t)
			conform(t, addr, restart...)
			return
		}
		conform(t, embedded(t))
	})
	t.Run("kafka", func(t *testing.T) {
		if !long {
			t.Skip("SKIPPED: the short form runs on the embedded broker only; `make conformance` runs all")
		}
		conform(t, realkafka.Start(t).Addr())
	})
}

// conform runs the suite. The restart command, if any, kills the broker, which is then started again.
func conform(t *testing.T, addr string, restart ...string) {
	made := newTopics(t, addr)
	for name, form := range map[string]struct {
		window  int
		ordered bool
	}{"ordered": {1, true}, "wide": {64, false}} {
		t.Run(name, func(t *testing.T) {
			inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				log := open(t, addr)
				sub, err := pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: group, Window: form.window}, quiet())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sub.Close() }) // the suite leaves some open
				return pubsub.NewPublisher(log, pubsub.PublisherConfig{Partition: byPayload}), initialized{sub, made}
			}
			// A group receives what was published before it, and its members nothing that is done: no
			// NewSubscriberReceivesOldMessages. A message's context does not go through a log.
			features := tests.Features{ConsumerGroups: true, GuaranteedOrder: form.ordered, Persistent: true, ForceShort: !long, RestartServiceCommand: restart}
			tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) { return inGroup(t, "suite-"+name) }, inGroup)
		})
	}
}
