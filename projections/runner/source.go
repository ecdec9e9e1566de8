package runner

import (
	"context"

	"github.com/hoplog/hoplog/events/eventlog"
)

// Source is a log of topics. Ends and Starts are indexed by partition: the offset after the last record, and the first
// that is still there.
type Source interface {
	NewTail(topic string, from map[int32]int64) (Tail, error)
	Ends(ctx context.Context, topic string) ([]int64, error)
	Starts(ctx context.Context, topic string) ([]int64, error)
}

// Tail hands out records in offset order per partition, without gaps that are not the log's own. Poll waits until there is
// at least one, and retries passing trouble itself; after an error that is not ctx's, the tail is over.
type Tail interface {
	Poll(ctx context.Context, max int) ([]eventlog.Batch, error)
	Close()
}

// FromLog makes a Source of a Kafka log.
func FromLog(log *eventlog.Log) Source { return kafka{log} }

type kafka struct{ *eventlog.Log }

func (k kafka) NewTail(topic string, from map[int32]int64) (Tail, error) {
	return k.Log.NewTail(topic, from, eventlog.Bare())
}
