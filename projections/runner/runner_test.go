package runner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

func TestRunToEndFoldsEverythingOnce(t *testing.T) {
	for name, source := range map[string]func(t *testing.T, log *runnertest.Log) runner.Source{
		"memory": func(_ *testing.T, log *runnertest.Log) runner.Source { return log },
		"broker": func(t *testing.T, log *runnertest.Log) runner.Source {
			broker := runnertest.Broker(t, partitions)
			must(t, log.Ship(soon(t), broker))
			return runner.FromLog(broker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := logOf(500)
			p, store := &tally{}, runner.NewMemory()
			r := newRunner(t, source(t, log), store, p)
			must(t, r.RunToEnd(soon(t)))
			wantTally(t, store, 500)
			ends, _ := log.Ends(context.Background(), "")
			if got := r.Positions(); !slices.Equal(got, ends) {
				t.Errorf("positions %v, want %v", got, ends)
			}
			if got := len(p.heard()); got != 1000 {
				t.Errorf("%d envelopes were committed, want 1000", got)
			}
		})
	}
}

func TestRunOnceFoldsOneBatch(t *testing.T) {
	log, store := logOf(500), runner.NewMemory()
	r := newRunner(t, log, store, &tally{})
	n, err := r.RunOnce(soon(t))
	must(t, err)
	if n == 0 || n > 64 || int64(sum(t, store)) != n {
		t.Errorf("%d records, %d folded", n, sum(t, store))
	}
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, 500)
}

func TestRunToStopsExactly(t *testing.T) {
	log, store := logOf(500), runner.NewMemory()
	r := newRunner(t, log, store, &tally{})
	for _, to := range [][]int64{{1, 0, 7, 100}, {1, 0, 7, 100}, {0, 0, 0, 0}, {90, 3, 7, 100}} {
		var done int64
		must(t, r.RunTo(soon(t), to, func(records int64) { done = records }))
		if slices.Max(to) > 0 {
			if got := r.Positions(); !slices.Equal(got, to) {
				t.Fatalf("positions %v, want %v (%d done)", got, to, done)
			}
		}
	}
	if got := sum(t, store); got != 200 {
		t.Errorf("%d events were folded, want 200", got)
	}
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, 500)
}

func TestVoidIsSkippedAndCounted(t *testing.T) {
	log, store, p := logOf(50), runner.NewMemory(), &tally{}
	log.AppendVoid(bucket(3))
	log.AppendVoid(bucket(4))
	addTo(log, 50, 60)
	r := newRunner(t, log, store, p)
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, 60)
	if s := r.Status(); s.Voids != 2 || s.Applied != 120 || len(p.heard()) != 120 {
		t.Errorf("%d void, %d applied, %d heard", s.Voids, s.Applied, len(p.heard()))
	}
}

func TestBucketsWithoutLinksAreHeardNotApplied(t *testing.T) {
	log, store := logOf(1), runner.NewMemory()
	p := &tally{fail: func(a runner.Accepted) error {
		if a.GetBucket() >= events.Buckets {
			return errors.New("shown")
		}
		return nil
	}}
	log.Append(&pb.Envelope{Bucket: events.BadKeyBucket(2), Outcome: &pb.Outcome{Error: "invalid_request"}})
	r := newRunner(t, log, store, p)
	must(t, r.RunToEnd(soon(t)))
	if !slices.Contains(p.heard(), "link/4098/1") || r.Head(4098) != 1 {
		t.Errorf("heard %q, head %d", p.heard(), r.Head(4098))
	}
}

func TestPoisonStops(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(){"error": nil, "panic": func() { panic(boom) }} {
		t.Run(name, func(t *testing.T) {
			log, store := logOf(20), runner.NewMemory()
			poison := &tally{fail: func(a runner.Accepted) error {
				if events.LinkOf(a.GetEvents()[0]).GetCode() != code(7) {
					return nil
				}
				if fail != nil {
					fail()
				}
				return boom
			}}
			r := newRunner(t, log, store, poison)
			err := r.RunToEnd(soon(t))
			var p *runner.Poison
			if !errors.Is(err, runner.ErrStopped) || !errors.As(err, &p) {
				t.Fatalf("got %v", err)
			}
			if p.Topic != eventlog.EventsLink || p.Bucket != bucket(7) || p.Partition != events.PartitionOf(bucket(7), partitions) || p.Seq == 0 {
				t.Errorf("it names %+v", p)
			}
			if !strings.Contains(err.Error(), "boom") || !strings.Contains(err.Error(), "tally/1") {
				t.Errorf("it says %q", err)
			}
			if at := r.Positions()[p.Partition]; at > p.Offset {
				t.Errorf("the position %d lies behind the poison at %d", at, p.Offset)
			}
			select {
			case <-r.Stopped():
			default:
				t.Error("not stopped")
			}
			if again := r.Run(soon(t)); !errors.Is(again, runner.ErrStopped) || r.Err() == nil {
				t.Errorf("runs again: %v", again)
			}
			// A binary that can fold it goes on where this one stopped.
			must(t, newRunner(t, log, store, &tally{}).RunToEnd(soon(t)))
			wantTally(t, store, 20)
		})
	}
}

func TestAlarmStopsAndNamesThePlace(t *testing.T) {
	log, store, p := logOf(20), runner.NewMemory(), &tally{}
	at := log.Head(bucket(3)).Seq
	broken, _, err := events.EncodeEnvelope(&pb.Envelope{SchemaVersion: 1, Bucket: bucket(3), Seq: at + 2, PrevHash: make([]byte, 32),
		Stamp: &pb.Stamp{}, Outcome: &pb.Outcome{}})
	must(t, err)
	partition := events.PartitionOf(bucket(3), partitions)
	ends, _ := log.Ends(context.Background(), "")
	log.AppendRaw(bucket(3), broken)
	addTo(log, 20, 30)
	r := newRunner(t, log, store, p)
	wantAlarm(t, r.RunToEnd(soon(t)), partition, ends[partition], bucket(3))
	wantAlarm(t, r.Err(), partition, ends[partition], bucket(3))
	if got := r.Positions()[partition]; got != ends[partition] {
		t.Errorf("stands at %d, want just before the alarm at %d", got, ends[partition])
	}
	must(t, r.WaitFor(soon(t), events.Position{Stream: events.StreamLink, Bucket: bucket(3), Seq: at}))
	if err := r.WaitFor(soon(t), events.Position{Stream: events.StreamLink, Bucket: bucket(3), Seq: at + 1}); !errors.Is(err, runner.ErrStopped) {
		t.Errorf("waiting for what will not come: %v", err)
	}
	wantAlarm(t, newRunner(t, log, store, p).RunToEnd(soon(t)), partition, ends[partition], bucket(3))
}

func TestUndecodableRecordIsAnAlarm(t *testing.T) {
	log := logOf(1)
	partition := events.PartitionOf(bucket(0), partitions)
	log.AppendRaw(bucket(0), []byte("not an envelope"))
	wantAlarm(t, newRunner(t, log, runner.NewMemory(), &tally{}).RunToEnd(soon(t)), partition, 2, events.NoBucket)
}

func TestStoreAheadOfTheLogIsAnAlarm(t *testing.T) {
	log, store := logOf(50), runner.NewMemory()
	must(t, newRunner(t, log, store, &tally{}).RunToEnd(soon(t)))
	ends, _ := log.Ends(context.Background(), "")
	log.Truncate(2, ends[2]-1)
	wantAlarm(t, newRunner(t, log, store, &tally{}).Run(soon(t)), 2, ends[2], events.NoBucket)
}

func TestLogThatBeginsAfterThePositionIsAnAlarm(t *testing.T) {
	log, store := logOf(50), runner.NewMemory()
	must(t, newRunner(t, log, store, &tally{}).RunTo(soon(t), []int64{9, 9, 9, 9}, nil))
	log.Trim(1, 9)
	must(t, newRunner(t, log, store, &tally{}).RunTo(soon(t), []int64{9, 9, 9, 9}, nil))
	log.Trim(1, 10)
	wantAlarm(t, newRunner(t, log, store, &tally{}).Run(soon(t)), 1, 9, events.NoBucket)
}

func TestLogLostUnderTheTailIsAnAlarm(t *testing.T) {
	log := logOf(50)
	r := newRunner(t, log, runner.NewMemory(), &tally{})
	must(t, r.RunTo(soon(t), []int64{5, 5, 5, 5}, nil))
	ends, _ := log.Ends(context.Background(), "")
	must(t, r.RunTo(soon(t), ends, nil))
	log.Truncate(3, 4)
	wantAlarm(t, r.Run(soon(t)), 3, ends[3], events.NoBucket)
}

func TestAnotherProjectionsStoreIsRefused(t *testing.T) {
	log, store := logOf(5), runner.NewMemory()
	must(t, newRunner(t, log, store, &tally{}).RunToEnd(soon(t)))
	if _, err := runner.New(config(log, store, renamed{&tally{}})); !errors.Is(err, runner.ErrOtherStore) {
		t.Errorf("another projection: %v", err)
	}
	wider := runnertest.NewLog(eventlog.EventsLink, 2*partitions)
	if err := newRunner(t, wider, store, &tally{}).Run(soon(t)); !errors.Is(err, runner.ErrOtherStore) {
		t.Errorf("another number of partitions: %v", err)
	}
}

type renamed struct{ *tally }

func (renamed) Name() string { return "tally/2" }

// late is a log that cannot be asked for a while.
type late struct {
	*runnertest.Log
	from time.Time
}

func (l late) Ends(ctx context.Context, topic string) ([]int64, error) {
	if time.Now().Before(l.from) {
		return nil, eventlog.ErrNoTopic
	}
	return l.Log.Ends(ctx, topic)
}

func TestRunWaitsForTheLog(t *testing.T) {
	log, store := logOf(20), runner.NewMemory()
	r := newRunner(t, late{log, time.Now().Add(100 * time.Millisecond)}, store, &tally{})
	if err := r.RunToEnd(soon(t)); !errors.Is(err, eventlog.ErrNoTopic) {
		t.Errorf("RunToEnd: %v", err)
	}
	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	must(t, r.WaitFor(ctx, log.Head(bucket(19))))
	addTo(log, 20, 30)
	must(t, r.WaitFor(ctx, log.Head(bucket(29))))
	cancel()
	must(t, <-ended)
}
