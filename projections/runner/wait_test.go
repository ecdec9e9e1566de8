package runner_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// running starts a runner and ends it with the test.
func running(t *testing.T, r *runner.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestThousandsWaitAndReadTheirWrites(t *testing.T) {
	log, store := runnertest.NewLog(eventlog.EventsLink, partitions), runner.NewMemory()
	r := newRunner(t, log, store, &tally{})
	running(t, r)
	var all sync.WaitGroup
	for i := range 3000 {
		all.Go(func() {
			log.Create("acme", "s.example", code(i), &pb.LinkContent{Target: "https://a.example/"})
			if err := r.WaitFor(soon(t), log.Head(bucket(i))); err != nil {
				t.Error(err)
			}
			if value, _, _ := store.Get(nil, []byte("code "+code(i))); len(value) != 1 {
				t.Errorf("%s cannot be read after its position was reached", code(i))
			}
		})
	}
	all.Wait()
}

func TestWaitEnds(t *testing.T) {
	log := logOf(1)
	r := newRunner(t, log, runner.NewMemory(), &tally{})
	must(t, r.RunToEnd(soon(t)))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	next := log.Head(bucket(0))
	next.Seq++
	if err := r.WaitFor(ctx, next); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	control := events.Position{Stream: events.StreamControl, Seq: 1}
	if err := r.WaitFor(soon(t), control); !errors.Is(err, runner.ErrForeignStream) {
		t.Errorf("got %v", err)
	}
}

func TestPauseHoldsStateAndPositions(t *testing.T) {
	log, store := logOf(10), runner.NewMemory()
	r := newRunner(t, log, store, &tally{})
	running(t, r)
	must(t, r.WaitFor(soon(t), log.Head(bucket(9))))
	r.Pause()
	before, folded := r.Positions(), sum(t, store)
	addTo(log, 10, 20)
	time.Sleep(20 * time.Millisecond)
	if got := sum(t, store); got != folded {
		t.Errorf("%d events folded in the pause", got-folded)
	}
	for i, p := range r.Positions() {
		if p != before[i] {
			t.Errorf("position of partition %d moved in the pause", i)
		}
	}
	r.Resume()
	must(t, r.WaitFor(soon(t), log.Head(bucket(19))))
	wantTally(t, store, 20)
}
