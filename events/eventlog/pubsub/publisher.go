package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cespare/xxhash/v2"

	"github.com/hoplog/hoplog/events/eventlog"
)

// PublisherConfig says how messages become records.
type PublisherConfig struct {
	// Partition chooses one of n partitions; default: by the hash of the message's UUID.
	Partition func(m *message.Message, n int) int32
}

// Publisher appends messages to topics, which must exist. Safe for concurrent use.
type Publisher struct {
	log *eventlog.Log
	cfg PublisherConfig

	mu     sync.Mutex // guards what follows; never held while brokers are asked
	topics map[string]*publishing
	closed bool
}

// publishing is a topic that something was published to.
type publishing struct {
	appender   *eventlog.Appender
	partitions int
}

// NewPublisher makes a Publisher. The log outlives it.
func NewPublisher(log *eventlog.Log, cfg PublisherConfig) *Publisher {
	if cfg.Partition == nil {
		cfg.Partition = func(m *message.Message, n int) int32 { return int32(xxhash.Sum64String(m.UUID) % uint64(n)) }
	}
	return &Publisher{log: log, cfg: cfg, topics: map[string]*publishing{}}
}

// Publish implements message.Publisher: it returns when the log has all of the messages, or a message's context is done. After
// an error some may be there, and one whose outcome is unknown (eventlog.ErrUnknownOutcome) may still arrive: whoever publishes
// again may publish twice.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	t, err := p.topic(messages[0].Context(), topic)
	if err != nil {
		return fmt.Errorf("publishing to %s: %w", topic, err)
	}
	records := make([]eventlog.Record, len(messages))
	for i, m := range messages {
		if records[i], err = toRecord(m); err != nil {
			return fmt.Errorf("publishing to %s: %w", topic, err)
		}
	}
	answers := make([]chan error, len(messages))
	for i, m := range messages {
		answer := make(chan error, 1)
		answers[i] = answer
		t.appender.AppendAsync(m.Context(), p.cfg.Partition(m, t.partitions), records[i], func(_ int64, err error) { answer <- err })
	}
	var all error
	for i, m := range messages {
		select {
		case err := <-answers[i]:
			all = errors.Join(all, err)
		case <-m.Context().Done():
			all = errors.Join(all, fmt.Errorf("publishing to %s: %w: %w", topic, eventlog.ErrUnknownOutcome, m.Context().Err()))
		}
	}
	return all
}

// topic returns what publishes to a topic. Whoever asks first asks the brokers, and ctx bounds that.
func (p *Publisher) topic(ctx context.Context, name string) (*publishing, error) {
	if t, err := p.known(name); t != nil || err != nil {
		return t, err
	}
	n, err := p.log.Partitions(ctx, name)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, err := p.knownLocked(name); t != nil || err != nil {
		return t, err
	}
	appender, err := p.log.NewAppender(name)
	if err != nil {
		return nil, err
	}
	t := &publishing{appender, n}
	p.topics[name] = t
	return t, nil
}

func (p *Publisher) known(name string) (*publishing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knownLocked(name)
}

func (p *Publisher) knownLocked(name string) (*publishing, error) {
	if p.closed {
		return nil, eventlog.ErrClosed
	}
	return p.topics[name], nil
}

// Close implements message.Publisher. What Publish has not returned for yet may be lost or not. Idempotent.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, t := range p.topics {
		t.appender.Close()
	}
	clear(p.topics)
	return nil
}

// headerUUID is the header that carries a message's UUID. All other headers are its metadata.
const headerUUID = "watermill-uuid"

var errReserved = errors.New("metadata " + headerUUID + " is reserved")

// toRecord makes the record of a message.
func toRecord(m *message.Message) (eventlog.Record, error) {
	headers := make([]eventlog.Header, 0, len(m.Metadata)+1)
	headers = append(headers, eventlog.Header{Key: headerUUID, Value: []byte(m.UUID)})
	for key, value := range m.Metadata {
		if key == headerUUID {
			return eventlog.Record{}, errReserved
		}
		headers = append(headers, eventlog.Header{Key: key, Value: []byte(value)})
	}
	return eventlog.Record{Value: m.Payload, Headers: headers}, nil
}

// FromRecord makes the message of a record that a Publisher wrote; of any other record, one without a UUID.
func FromRecord(r *eventlog.Record) *message.Message {
	m := message.NewMessage("", r.Value)
	for _, h := range r.Headers {
		if h.Key == headerUUID {
			m.UUID = string(h.Value)
		} else {
			m.Metadata.Set(h.Key, string(h.Value))
		}
	}
	return m
}
