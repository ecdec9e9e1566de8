package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// Hops is what the log alone lets a write have: a record of a create's size appended to the command topic, tailed, appended
// to the event topic in order, and tailed again; so many under way at a time. Nothing is decided, kept
// or spoken over HTTP. It is measured on an embedded broker in the load's process, with nothing else at work.
type Hops struct {
	UnderWay  int     `json:"under_way"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
}

const (
	hopsFor     = 3 * time.Second
	hopRecord   = 350 // bytes, about a create's command and envelope
	hopBacklog  = 1024
	hopPatience = 10 * time.Second
)

// hops is the measurement under way.
type hops struct {
	commands *eventlog.Appender
	events   [partitions]*eventlog.Appender
	tails    [2]*eventlog.Tail
	work     [partitions]chan []eventlog.Record
	answers  sync.Map // number → chan struct{}
	next     atomic.Uint64
	failed   chan error
}

// measureHops runs on a broker whose topics nobody else writes.
func (b *broker) measureHops(ctx context.Context, underWay int) (result Hops, err error) {
	h := &hops{failed: make(chan error, 1)}
	if err := h.open(ctx, b.log); err != nil {
		h.close()
		return Hops{}, fmt.Errorf("measuring two hops: %w", err)
	}
	life, stop := context.WithCancel(ctx)
	var parts, writers sync.WaitGroup
	for p := range h.work {
		parts.Go(func() { h.write(life, int32(p)) })
	}
	parts.Go(func() { h.tail(life, h.tails[0], h.pass) })
	parts.Go(func() { h.tail(life, h.tails[1], h.answer) })
	defer func() { stop(); parts.Wait(); h.close() }()

	var mu sync.Mutex
	var took Histogram
	began := time.Now()
	for range underWay {
		writers.Go(func() {
			for time.Since(began) < hopsFor && life.Err() == nil {
				one, err := h.hop(life)
				if err != nil {
					h.fail(err)
					stop()
					return
				}
				mu.Lock()
				took.Add(one)
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	elapsed := time.Since(began)
	select {
	case err := <-h.failed:
		return Hops{}, fmt.Errorf("measuring two hops: %w", err)
	default:
	}
	return Hops{underWay, per(float64(took.Count()), elapsed.Seconds()), ms(took.Quantile(0.5)), ms(took.Quantile(0.99))}, ctx.Err()
}

func (h *hops) open(ctx context.Context, log *eventlog.Log) (err error) {
	if h.commands, err = log.NewAppender(eventlog.CommandsLink); err != nil {
		return err
	}
	for p := range h.work {
		h.work[p] = make(chan []eventlog.Record, hopBacklog)
		if h.events[p], err = log.NewAppender(eventlog.EventsLink); err != nil {
			return err
		}
	}
	for i, topic := range []string{eventlog.CommandsLink, eventlog.EventsLink} {
		ends, err := log.Ends(ctx, topic)
		if err != nil {
			return err
		}
		from := map[int32]int64{}
		for p, end := range ends {
			from[int32(p)] = end
		}
		if h.tails[i], err = log.NewTail(topic, from); err != nil {
			return err
		}
	}
	return nil
}

func (h *hops) close() {
	if h.commands != nil {
		h.commands.Close()
	}
	for _, a := range h.events {
		if a != nil {
			a.Close()
		}
	}
	for _, t := range h.tails {
		if t != nil {
			t.Close()
		}
	}
}

func (h *hops) fail(err error) {
	select {
	case h.failed <- err:
	default:
	}
}

// hop sends one record and waits until it has come through both topics.
func (h *hops) hop(ctx context.Context) (time.Duration, error) {
	n := h.next.Add(1)
	value := make([]byte, hopRecord)
	_, _ = rand.Read(value[8:72]) // as much as hashes and ids take, which do not compress; never fails
	binary.BigEndian.PutUint64(value, n)
	answer, refused := make(chan struct{}), make(chan error, 1)
	h.answers.Store(n, answer)
	began := time.Now()
	h.commands.AppendAsync(ctx, int32(n%partitions), eventlog.Record{Key: value[6:8], Value: value}, func(_ int64, err error) {
		if err != nil {
			refused <- err
		}
	})
	late := time.NewTimer(hopPatience)
	defer late.Stop()
	select {
	case <-answer:
		return time.Since(began), nil
	case err := <-refused:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-late.C:
		return 0, errors.New("a record did not come through")
	}
}

func (h *hops) tail(ctx context.Context, tail *eventlog.Tail, take func(context.Context, eventlog.Batch)) {
	for {
		batches, err := tail.Poll(ctx, 0)
		if err != nil {
			return // the end of ctx; any other trouble shows as a record that does not come through
		}
		for _, batch := range batches {
			take(ctx, batch)
		}
	}
}

func (h *hops) pass(ctx context.Context, b eventlog.Batch) {
	select {
	case h.work[b.Partition] <- b.Records:
	case <-ctx.Done():
	}
}

func (h *hops) answer(_ context.Context, b eventlog.Batch) {
	for _, r := range b.Records {
		if answer, known := h.answers.LoadAndDelete(binary.BigEndian.Uint64(r.Value)); known {
			close(answer.(chan struct{}))
		}
	}
}

// write appends what has come meanwhile in one produce.
func (h *hops) write(ctx context.Context, partition int32) {
	work := h.work[partition]
	for {
		var records []eventlog.Record
		select {
		case <-ctx.Done():
			return
		case records = <-work:
		}
		for len(work) > 0 {
			records = append(records, <-work...)
		}
		if err := h.events[partition].Append(ctx, partition, records, eventlog.AnyOffset); err != nil {
			if ctx.Err() == nil {
				h.fail(err)
			}
			return
		}
	}
}
