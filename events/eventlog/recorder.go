package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/segments"
)

// recordEvery is how old the record of what the embedded broker acknowledged may be.
const recordEvery = time.Second

// recordFile stands beside the broker's own files.
const recordFile = "acknowledged.json"

// recorder writes down, every second, where every partition of the embedded broker begins and ends. The broker moves an end
// after the record is synced, so what lies below a recorded end was acknowledged, and a start that finds less refuses. The
// record is the only witness against a log that was cut cleanly after kill -9 and whose readers have not kept a position.
type recorder struct {
	log    *Log
	path   string
	logger *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards what follows
	written segments.Acknowledged
	failing bool
}

func startRecorder(log *Log, dir string, before segments.Acknowledged, logger *slog.Logger) *recorder {
	r := &recorder{log: log, path: filepath.Join(dir, recordFile), logger: logger, written: before, done: make(chan struct{})}
	if r.written == nil {
		r.written = segments.Acknowledged{}
	}
	var life context.Context
	life, r.stop = context.WithCancel(context.Background())
	go r.run(life)
	return r
}

// close records once more; the broker must still be there.
func (r *recorder) close() {
	r.stop()
	<-r.done
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.record(ctx)
}

func (r *recorder) run(life context.Context) {
	defer close(r.done)
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(recordEvery):
			r.record(life)
		}
	}
}

// record asks and writes. A failure is told once: the next second tries again.
func (r *recorder) record(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.ask(ctx)
	if err == nil {
		err = r.write(now)
	}
	if err != nil && ctx.Err() == nil && !r.failing {
		r.logger.Warn("what the log acknowledged cannot be recorded", "error", err)
	}
	r.failing = err != nil
}

// ask returns what the broker holds now; the caller holds mu. A start that was allowed stays, for the trimmer may be on its way.
func (r *recorder) ask(ctx context.Context) (segments.Acknowledged, error) {
	details, err := r.log.admin.ListTopics(ctx, TopicNames()...)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	now := segments.Acknowledged{}
	for _, topic := range TopicNames() {
		if !details.Has(topic) {
			continue
		}
		ends, err := r.log.Ends(ctx, topic)
		if err != nil {
			return nil, err
		}
		starts, err := r.log.Starts(ctx, topic)
		if err != nil {
			return nil, err
		}
		for p := range min(len(ends), len(starts)) {
			span := segments.Span{Start: starts[p], End: ends[p]}
			if before := r.written[topic]; p < len(before) {
				span.Start = max(span.Start, before[p].Start)
			}
			now[topic] = append(now[topic], span)
		}
	}
	return now, nil
}

// write replaces the record if it changed; the caller holds mu.
func (r *recorder) write(now segments.Acknowledged) error {
	if maps.EqualFunc(now, r.written, slices.Equal[[]segments.Span]) {
		return nil
	}
	if err := segments.WriteAcknowledged(r.path, now); err != nil {
		return err
	}
	r.written = now
	return nil
}

// allow records that a topic may begin at these offsets (partition → offset), before it is trimmed to them.
func (r *recorder) allow(topic string, starts map[int32]int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := maps.Clone(r.written)
	spans := slices.Clone(now[topic])
	for p, start := range starts {
		if int(p) < len(spans) {
			spans[p].Start = max(spans[p].Start, start)
		}
	}
	now[topic] = spans
	return r.write(now)
}
