package runner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

const partitions = 4

// tally is a projection that keeps per code how many events it saw, and the sum of all of a partition: what is folded twice
// or not at all shows.
type tally struct {
	fail func(a runner.Accepted) error

	mu        sync.Mutex
	committed []string // positions
}

func (*tally) Name() string { return "tally/1" }

func (t *tally) Apply(w *runner.Write, a runner.Accepted) error {
	if t.fail != nil {
		if err := t.fail(a); err != nil {
			return err
		}
	}
	for _, event := range a.GetEvents() {
		for _, key := range []string{"code " + events.LinkOf(event).GetCode(), sumKey(a.Partition)} {
			old, err := w.Get([]byte(key))
			if err != nil {
				return err
			}
			w.Set([]byte(key), append(old[:len(old):len(old)], '|'))
		}
	}
	return nil
}

func (t *tally) Committed(accepted []runner.Accepted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range accepted {
		t.committed = append(t.committed, a.Position(events.StreamLink).String())
	}
}

func (t *tally) heard() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.committed...)
}

func newRunner(tb testing.TB, source runner.Source, store runner.Store, p runner.Projection) *runner.Runner {
	tb.Helper()
	r, err := runner.New(config(source, store, p))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

func config(source runner.Source, store runner.Store, p runner.Projection) runner.Config {
	return runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: source, Store: store, Projection: p,
		Logger: slog.New(slog.DiscardHandler), MaxRecords: 64}
}

func soon(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// must ends the test on an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// logOf is a log with that many links, each created and disabled.
func logOf(links int) *runnertest.Log {
	log := runnertest.NewLog(eventlog.EventsLink, partitions)
	addTo(log, 0, links)
	return log
}

func addTo(log *runnertest.Log, from, to int) {
	for i := from; i < to; i++ {
		log.Create("acme", "s.example", code(i), &pb.LinkContent{Target: "https://a.example/"})
		log.Change("s.example", code(i), pb.StatusAction_DISABLE)
	}
}

func code(i int) string { return fmt.Sprintf("code%d", i) }

func bucket(i int) uint32 { return events.BucketOf("s.example", code(i)) }

func sumKey(partition int32) string { return fmt.Sprint("sum ", partition) }

// sum is how many events the store says were folded.
func sum(tb testing.TB, store runner.Store) (events int) {
	tb.Helper()
	for p := range int32(partitions) {
		value, _, err := store.Get(nil, []byte(sumKey(p)))
		must(tb, err)
		events += len(value)
	}
	return events
}

// wantTally checks that every link of a log of so many was folded exactly once.
func wantTally(tb testing.TB, store runner.Store, links int) {
	tb.Helper()
	if got := sum(tb, store); got != 2*links {
		tb.Errorf("%d events were folded, want %d", got, 2*links)
	}
	for i := range links {
		value, _, err := store.Get(nil, []byte("code "+code(i)))
		must(tb, err)
		if len(value) != 2 {
			tb.Fatalf("%s: %d events, want 2", code(i), len(value))
		}
	}
}

// wantAlarm checks that an error is an alarm that names its place.
func wantAlarm(tb testing.TB, err error, partition int32, offset int64, bucket uint32) {
	tb.Helper()
	var alarm *events.Alarm
	if !errors.Is(err, runner.ErrStopped) || !errors.As(err, &alarm) {
		tb.Fatalf("got %v, want an alarm", err)
	}
	want := events.Alarm{Topic: eventlog.EventsLink, Partition: partition, Offset: offset, Bucket: bucket, Reason: alarm.Reason}
	if *alarm != want {
		tb.Errorf("got %+v, want %+v", *alarm, want)
	}
}
