package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hoplog/hoplog/events/eventlog"
)

// broker is an embedded broker in this process, as in `hoplog dev`, with its topics.
type broker struct {
	embedded *eventlog.Embedded
	log      *eventlog.Log
}

// partitions is what `hoplog dev` makes the link topics with.
const partitions = 2

func startBroker(ctx context.Context, dir string) (*broker, error) {
	quiet := slog.New(slog.DiscardHandler)
	embedded, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0"}, quiet)
	if err != nil {
		return nil, err
	}
	b := &broker{embedded: embedded}
	if b.log, err = eventlog.Open(eventlog.Config{Brokers: []string{embedded.Addr()}}, quiet); err != nil {
		return nil, errors.Join(err, embedded.Close())
	}
	if err := b.log.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: partitions}); err != nil {
		return nil, errors.Join(fmt.Errorf("making topics: %w", err), b.close())
	}
	return b, nil
}

func (b *broker) close() error {
	b.log.Close()
	return b.embedded.Close()
}
