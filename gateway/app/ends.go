package app

import (
	"context"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// logEnds knows where topics end, from questions at most endsAge old: metrics and status must not load the broker.
type logEnds struct {
	log *eventlog.Log
	mu  sync.Mutex
	of  map[string]endsOf
}

type endsOf struct {
	asked time.Time
	ends  []int64
}

const (
	endsAge  = time.Second
	endsWait = time.Second
)

func newLogEnds(log *eventlog.Log) *logEnds { return &logEnds{log: log, of: map[string]endsOf{}} }

// behind returns how many records of each partition lie between the positions and the topic's end; nil when the log does
// not say where that is.
func (e *logEnds) behind(ctx context.Context, topic string, positions []int64) []int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.of[topic]
	if time.Since(last.asked) > endsAge {
		ctx, cancel := context.WithTimeout(ctx, endsWait)
		defer cancel()
		ends, _ := e.log.Ends(ctx, topic) // nil after an error
		last = endsOf{time.Now(), ends}
		e.of[topic] = last
	}
	if len(last.ends) != len(positions) {
		return nil
	}
	out := make([]int64, len(positions))
	for i, end := range last.ends {
		out[i] = max(0, end-positions[i])
	}
	return out
}
