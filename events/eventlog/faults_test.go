package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// restart: positions and offsets mean the same after the broker was killed and started again.
func restart(t *testing.T, l *eventlog.Log, b broker) {
	ctx := soon(t)
	from := end(t, l, eventlog.EventsLink, 2)
	if err := appender(t, l, eventlog.EventsLink).Append(ctx, 2, values("before", 10), from); err != nil {
		t.Fatal(err)
	}
	old := tail(t, l, eventlog.EventsLink, map[int32]int64{2: from})
	read(t, old, 2, 10)
	b.Kill()
	b.Restart()
	if err := l.WaitReady(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if got := end(t, l, eventlog.EventsLink, 2); got != from+10 {
		t.Fatalf("after the restart the log ends at %d, want %d", got, from+10)
	}
	if err := appender(t, l, eventlog.EventsLink).Append(ctx, 2, values("after", 5), from+10); err != nil {
		t.Fatal(err)
	}
	// a tail that lived through it goes on; a new one starts in the middle
	if got := read(t, old, 2, 5); got[0].Offset != from+10 || string(got[0].Value) != "after0" {
		t.Errorf("old tail got %s at %d", got[0].Value, got[0].Offset)
	}
	if got := read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{2: from + 7}), 2, 8); string(got[0].Value) != "before7" {
		t.Errorf("new tail starts with %s", got[0].Value)
	}
	if err := l.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Errorf("topics after the restart: %v", err)
	}
}

// frozenBroker: appends to a broker that holds the connection and says nothing end in time, with an unknown outcome; what
// then arrives late is found by the next append.
func frozenBroker(t *testing.T, l *eventlog.Log, b broker) {
	ctx := soon(t)
	a, async := appender(t, l, eventlog.EventsLink), appender(t, l, eventlog.CommandsLink)
	expect := end(t, l, eventlog.EventsLink, 1)
	if err := a.Append(ctx, 1, values("before", 1), expect); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	async.AppendAsync(ctx, 1, values("before", 1)[0], func(_ int64, err error) { answer <- err })
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	b.Pause()
	defer b.Resume()
	began := time.Now()
	const n = 10
	answers := make(chan error, n)
	for i := range n {
		async.AppendAsync(ctx, 1, values("z", n)[i], func(_ int64, err error) { answers <- err })
	}
	if err := a.Append(within(t, time.Second), 1, values("lost", 1), expect+1); !errors.Is(err, eventlog.ErrUnknownOutcome) {
		t.Errorf("append to a frozen broker: %v", err)
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("append took %v, its time was 1s", took)
	}
	for i := range n {
		if err := <-answers; !errors.Is(err, eventlog.ErrUnknownOutcome) && !errors.Is(err, eventlog.ErrNotSent) {
			t.Errorf("async append %d to a frozen broker: %v", i, err)
		}
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the last async append was answered after %v", took)
	}
	b.Resume()
	now := end(t, l, eventlog.EventsLink, 1)
	t.Logf("the append whose outcome was unknown is in the log: %v", now == expect+2)
	err := appender(t, l, eventlog.EventsLink).Append(ctx, 1, values("next", 1), expect+1)
	if late := end(t, l, eventlog.EventsLink, 1) > expect+2; late != errors.Is(err, eventlog.ErrForeignOffset) {
		t.Errorf("the log has the late record: %v, and the next append says %v", late, err)
	}
	if err := async.Flush(ctx); err != nil {
		t.Error(err)
	}
}

// brokerAway: nothing hangs, and nothing is confirmed, while the broker is gone.
func brokerAway(t *testing.T, l *eventlog.Log, b broker) {
	a, async := appender(t, l, eventlog.EventsLink), appender(t, l, eventlog.CommandsLink)
	ctx := soon(t)
	expect := end(t, l, eventlog.EventsLink, 0)
	if err := a.Append(ctx, 0, values("x", 1), expect); err != nil {
		t.Fatal(err)
	}
	tl := tail(t, l, eventlog.EventsLink, map[int32]int64{0: expect + 1})
	b.Kill()
	began := time.Now()
	if err := a.Append(within(t, time.Second), 0, values("y", 1), expect+1); !errors.Is(err, eventlog.ErrUnknownOutcome) {
		t.Errorf("append without a broker: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("append took %v after its second", took)
	}
	answer := make(chan error, 1)
	async.AppendAsync(ctx, 0, values("z", 1)[0], func(_ int64, err error) { answer <- err })
	select {
	case err := <-answer:
		if !errors.Is(err, eventlog.ErrUnknownOutcome) && !errors.Is(err, eventlog.ErrNotSent) {
			t.Errorf("async append without a broker: %v", err)
		}
	case <-time.After(patient):
		t.Error("async append was never answered")
	}
	if _, err := l.Ends(within(t, time.Second), eventlog.EventsLink); err == nil {
		t.Error("ends were listed without a broker")
	}
	if _, err := tl.Poll(within(t, time.Second), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("poll without a broker: %v", err)
	}
	if tl.LastError() == nil {
		t.Error("a tail without a broker shows no trouble")
	}
	b.Restart()
	if err := l.WaitReady(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := appender(t, l, eventlog.EventsLink).Append(ctx, 0, values("back", 1), end(t, l, eventlog.EventsLink, 0)); err != nil {
		t.Errorf("append after the broker came back: %v", err)
	}
	read(t, tl, 0, 1)
	if err := tl.LastError(); err != nil {
		t.Errorf("trouble is still shown: %v", err)
	}
}
