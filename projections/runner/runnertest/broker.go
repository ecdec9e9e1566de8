package runnertest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// Broker starts an embedded broker with its topics and returns a handle on it. Both end with the test.
func Broker(tb testing.TB, partitions int) *eventlog.Log {
	tb.Helper()
	quiet := slog.New(slog.DiscardHandler)
	broker, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: tb.TempDir(), Addr: "127.0.0.1:0"}, quiet)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = broker.Close() })
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{broker.Addr()}}, quiet)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(log.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := log.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	return log
}
