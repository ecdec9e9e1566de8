package app

import (
	"context"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// logEnds knows where topics end, from questions at most endsAge old: metrics and status must not load the broker. After a
// question without an answer nobody waits for the next.
type logEnds struct {
	log *eventlog.Log
	mu  sync.Mutex
	of  map[string]*endsOf
}

type endsOf struct {
	asked  time.Time
	ends   []int64       // nil: the log did not say
	asking chan struct{} // closed with the answer; nil when nobody asks
}

const (
	endsAge  = time.Second
	endsWait = time.Second
)

func newLogEnds(log *eventlog.Log) *logEnds { return &logEnds{log: log, of: map[string]*endsOf{}} }

// behind returns how many records of each partition lie between the positions and the topic's end; nil when the log does
// not say where that is.
func (e *logEnds) behind(ctx context.Context, topic string, positions []int64) []int64 {
	ends := e.ends(ctx, topic)
	if len(ends) != len(positions) {
		return nil
	}
	out := make([]int64, len(positions))
	for i, end := range ends {
		out[i] = max(0, end-positions[i])
	}
	return out
}

func (e *logEnds) ends(ctx context.Context, topic string) []int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.of[topic]
	if last == nil {
		last = &endsOf{}
		e.of[topic] = last
	}
	if last.asking == nil && time.Since(last.asked) > endsAge {
		last.asking = make(chan struct{})
		go e.ask(topic, last)
	}
	if answered := last.asking; answered != nil && (last.ends != nil || last.asked.IsZero()) {
		e.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
	return last.ends
}

func (e *logEnds) ask(topic string, last *endsOf) {
	ctx, cancel := context.WithTimeout(context.Background(), endsWait)
	defer cancel()
	ends, _ := e.log.Ends(ctx, topic) // nil after an error
	e.mu.Lock()
	defer e.mu.Unlock()
	last.asked, last.ends = time.Now(), ends
	close(last.asking)
	last.asking = nil
}
