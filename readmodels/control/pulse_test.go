package control_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/schemas/pb"
)

// pulseTopic is the topic of pulses as a reader sees it: what was appended, what it says of its end, and what it hands out.
type pulseTopic struct {
	mu      sync.Mutex
	end     int64
	control int64 // where the control log ends
	asked   int   // how often the end was told
	broken  bool
	out     chan eventlog.Record
}

var errPulseTopic = errors.New("no broker")

func (p *pulseTopic) Ends(_ context.Context, topic string) ([]int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return nil, errPulseTopic
	}
	if topic != eventlog.Pulse {
		return []int64{p.control}, nil
	}
	p.asked++
	return []int64{p.end}, nil
}

func (p *pulseTopic) Starts(context.Context, string) ([]int64, error) { return []int64{0}, nil }

func (p *pulseTopic) NewTail(string, map[int32]int64) (runner.Tail, error) { return p, nil }

func (p *pulseTopic) Close() {}

func (p *pulseTopic) Poll(ctx context.Context, _ int) ([]eventlog.Batch, error) {
	select {
	case r := <-p.out:
		return []eventlog.Batch{{Topic: eventlog.Pulse, Records: []eventlog.Record{r}}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pulse is a record at an offset. Its writer's clock is of another century: nobody may look at it.
func pulse(t *testing.T, offset int64, seq uint64) eventlog.Record {
	value, err := (&pb.Pulse{SchemaVersion: 1, TimeUs: math.MaxInt64, ControlSeq: seq}).MarshalVT()
	must(t, err)
	return eventlog.Record{Offset: offset, Value: value}
}

// timesAsked waits until the end was told n times.
func (p *pulseTopic) timesAsked(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the end is asked for", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.asked >= n
	})
}

func eventually(t *testing.T, what string, probe func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if probe() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}

func TestPulseSaysHowOldTheListsAre(t *testing.T) {
	log := runnertest.NewLog(eventlog.EventsControl, 1)
	store, err := control.Open(log, slog.New(slog.DiscardHandler))
	must(t, err)
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	topic := &pulseTopic{end: 7, out: make(chan eventlog.Record)}
	var clock atomic.Int64 // seconds
	began := time.Now()
	at := func() time.Time { return began.Add(time.Duration(clock.Load()) * time.Second) }
	p := control.NewPulse(topic, store, slog.New(slog.DiscardHandler), at)
	if p.Age() != math.MaxInt64 {
		t.Fatalf("before the first pulse the age is %v", p.Age())
	}
	running.Go(func() { p.Run(ctx) })
	running.Go(func() { _ = store.Run(ctx) })

	topic.timesAsked(t, 1) // at 0: the topic ends at 7
	clock.Store(3)
	topic.out <- pulse(t, 6, 0) // was there before: how old it is nobody knows
	topic.out <- pulse(t, 6, 0) // taken only once the first was looked at
	if p.Age() != math.MaxInt64 {
		t.Fatalf("a pulse that was there before counts: %v", p.Age())
	}
	topic.out <- pulse(t, 7, 0) // was appended after 0
	topic.timesAsked(t, 2)
	if p.Age() != 3*time.Second {
		t.Fatalf("a pulse from after 0, read at 3: age %v", p.Age())
	}
	clock.Store(5)
	if p.Age() != 5*time.Second {
		t.Fatalf("two seconds later the age is %v", p.Age())
	}

	// The lists must be where the pulse says.
	topic.out <- pulse(t, 8, 1) // asked for at 3
	clock.Store(9)
	if p.Age() != 9*time.Second {
		t.Fatalf("lists that lack position 1 pass for fresh: %v", p.Age())
	}
	log.Append(domain("s.example"))
	topic.timesAsked(t, 3) // at 9
	if p.Age() != 6*time.Second {
		t.Fatalf("caught up with a pulse from after 3: age %v at 9", p.Age())
	}

	// They must hold what the control log held at the instant, whatever the pulse says.
	topic.mu.Lock()
	topic.control = 2
	topic.mu.Unlock()
	clock.Store(11)
	topic.out <- pulse(t, 9, 1) // asked for at 9, when nobody knew of a second envelope
	topic.timesAsked(t, 4)      // at 11
	topic.out <- pulse(t, 10, 1)
	clock.Store(14)
	if p.Age() != 5*time.Second {
		t.Fatalf("lists that lack the last envelope pass for fresh: %v", p.Age())
	}
	log.Append(domain("b.example"))
	topic.timesAsked(t, 5) // at 14
	if p.Age() != 3*time.Second {
		t.Fatalf("age %v", p.Age())
	}

	// A clock that is set back does not make them younger than the monotonic one says; one that jumps makes them older.
	clock.Store(41)
	if p.Age() != 30*time.Second {
		t.Fatalf("age %v", p.Age())
	}
}

// What is no pulse, or one of a newer version, says nothing; an end that cannot be asked for is asked for again.
func TestPulseOverlooksWhatItCannotRead(t *testing.T) {
	store, err := control.Open(runnertest.NewLog(eventlog.EventsControl, 1), slog.New(slog.DiscardHandler))
	must(t, err)
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	topic := &pulseTopic{broken: true, out: make(chan eventlog.Record)}
	p := control.NewPulse(topic, store, slog.New(slog.DiscardHandler), time.Now)
	running.Go(func() { p.Run(ctx) })
	running.Go(func() { _ = store.Run(ctx) })
	topic.mu.Lock()
	topic.broken = false
	topic.mu.Unlock()
	newer, err := (&pb.Pulse{SchemaVersion: 99}).MarshalVT()
	must(t, err)
	topic.out <- eventlog.Record{Offset: 3, Value: []byte("nonsense")}
	topic.out <- eventlog.Record{Offset: 4, Value: newer}
	topic.out <- eventlog.Record{Offset: 5}
	if p.Age() != math.MaxInt64 {
		t.Error("it believes what it cannot read")
	}
	topic.out <- pulse(t, 6, 0)
	eventually(t, "a pulse counts", func() bool { return p.Age() < time.Minute })
}
