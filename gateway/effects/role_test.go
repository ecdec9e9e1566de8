package effects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
	"github.com/hoplog/hoplog/gateway/effects"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	host       = "s.example"
	partitions = 2
)

// rig is link events on the embedded broker, and a handler that writes down what it does.
type rig struct {
	t      *testing.T
	events *runnertest.Log
	broker *eventlog.Log
	dir    string

	mu   sync.Mutex
	done []string // code@version
	fail func(c *effects.Change) error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{t: t, events: runnertest.NewLog(eventlog.EventsLink, partitions), broker: runnertest.Broker(t, partitions), dir: t.TempDir()}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// patient is how long that may take which is to happen: the machine may be busy.
const patient = 2 * time.Minute

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) create(code string, ttl uint32) {
	r.events.Create("acme", host, code, content(1, ttl))
}

func (r *rig) update(code string, target, ttl uint32) {
	r.events.Update(host, code, content(target, ttl))
}

func content(target, ttl uint32) *pb.LinkContent {
	return &pb.LinkContent{Target: fmt.Sprintf("https://a.example/%d", target), CacheTtl: ttl}
}

func (r *rig) ship() {
	r.t.Helper()
	r.must(r.events.Ship(soon(r.t), r.broker))
}

// Do is the handler.
func (r *rig) Do(_ context.Context, c *effects.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(c); err != nil {
			return err
		}
	}
	r.done = append(r.done, fmt.Sprintf("%s@%d", c.Code, c.Version))
	return nil
}

func (r *rig) failing(f func(c *effects.Change) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// want waits until these effects were had, at least once each, and nothing else.
func (r *rig) want(list ...string) {
	r.t.Helper()
	slices.Sort(list)
	var have []string
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		have = slices.Clone(r.done)
		r.mu.Unlock()
		slices.Sort(have)
		if have = slices.Compact(have); slices.Equal(have, list) {
			return
		}
	}
	r.t.Fatalf("effects %q, want %q", have, list)
}

// settled waits until the group has done all that there is.
func (r *rig) settled() {
	r.t.Helper()
	ends, err := r.broker.Ends(soon(r.t), eventlog.EventsLink)
	r.must(err)
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if at, err := r.broker.GroupPositions(soon(r.t), effects.Group("test", eventlog.EventsLink), eventlog.EventsLink); err == nil && slices.Equal(at, ends) {
			return
		}
	}
	r.t.Fatal("the group is not done")
}

// running is a role at work.
type running struct {
	*effects.Role
	fold *effects.Fold
	stop func()
}

func (r *rig) start(giveUp time.Duration) *running {
	r.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	fold, err := effects.OpenFold(effects.FoldConfig{Dir: r.dir, Source: runner.FromLog(r.broker), Pebble: runner.PebbleOptions{Logger: logger}})
	r.must(err)
	handler := effects.Handler{Name: "test", Do: r.Do, Wants: func(c *effects.Change) bool { return c.Cached && !c.Created }}
	role, err := effects.New(effects.Config{Log: r.broker, Fold: fold, Logger: logger, Handlers: []effects.Handler{handler}, GiveUp: giveUp})
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = fold.Run(ctx) })
	work.Go(func() {
		if err := role.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		work.Wait()
		r.must(role.Close(context.Background()))
		r.must(fold.Close())
	})
	r.t.Cleanup(stop)
	// A new group begins where the topic ends when it joins.
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if at, err := r.broker.GroupPositions(soon(r.t), effects.Group("test", eventlog.EventsLink), eventlog.EventsLink); err == nil && !slices.Contains(at, -1) {
			return &running{role, fold, stop}
		}
	}
	r.t.Fatal("the group has no positions")
	return nil
}

// TestEffectsOfAcceptedChanges: what lies before the first start, what is void and what nobody can have cached has no effect;
// a link that was ever cacheable has one with each change.
func TestEffectsOfAcceptedChanges(t *testing.T) {
	r := newRig(t)
	r.create("old", 60)
	r.update("old", 2, 60)
	r.create("plain", 0)
	r.create("was", 60)
	r.update("was", 2, 0)
	r.ship()
	role := r.start(0)
	r.update("plain", 2, 0)
	r.create("new", 60)
	r.ship()
	r.settled()
	r.want()
	r.update("was", 3, 0)
	r.events.Change(host, "old", pb.StatusAction_BAN)
	r.events.AppendVoid(events.BucketOf(host, "old"))
	r.update("plain", 3, 60)
	r.update("plain", 4, 0)
	r.ship()
	r.want("was@3", "old@3", "plain@3", "plain@4")
	link, err := role.fold.Link(host, "was")
	r.must(err)
	if link.GetVersion() != 3 {
		t.Errorf("folded: %v", link)
	}
	role.stop()
	r.update("old", 4, 60) // while nobody is there
	r.ship()
	r.start(0)
	r.want("was@3", "old@3", "plain@3", "plain@4", "old@4")
}

// TestVoidsHaveNoEffect: a void envelope that says it changes a link is passed over, whichever of the two comes first.
func TestVoidsHaveNoEffect(t *testing.T) {
	r := newRig(t)
	r.create("a", 60)
	r.ship()
	r.start(0)
	r.update("a", 2, 60)
	r.ship()
	r.want("a@2")
	// The record of version 2 again, as a mirror copies it: it does not extend the chain.
	bucket := events.BucketOf(host, "a")
	tail, err := r.broker.NewTail(eventlog.EventsLink, map[int32]int64{events.PartitionOf(bucket, partitions): 1})
	r.must(err)
	defer tail.Close()
	batches, err := tail.Poll(soon(t), 1)
	r.must(err)
	r.mu.Lock()
	r.done = nil
	r.mu.Unlock()
	r.events.AppendRaw(bucket, batches[0].Records[0].Value)
	r.update("a", 3, 60)
	r.ship()
	r.want("a@3")
}

// TestFailuresAreTriedAgain: passing ones until they pass; permanent ones become dead letters at once, and can be put back.
func TestFailuresAreTriedAgain(t *testing.T) {
	r := newRig(t)
	r.create("a", 60)
	r.create("bad", 60)
	r.ship()
	role := r.start(0)
	tries := 0
	r.failing(func(c *effects.Change) error {
		if c.Code == "bad" {
			return fmt.Errorf("%w: no such zone", effects.ErrPermanent)
		}
		if tries++; tries < 3 {
			return errors.New("not now")
		}
		return nil
	})
	r.update("a", 2, 60)
	r.update("bad", 2, 60)
	r.ship()
	r.want("a@2")
	letters := effects.DeadLetters(r.broker)
	r.waiting(letters, 1)
	s := role.Status()[0]
	if s.Done != 1 || s.Dead != 1 || s.Failed != 3 {
		t.Errorf("status %+v", s)
	}
	from, to, err := letters.Bounds(soon(t))
	r.must(err)
	r.must(letters.Each(soon(t), from, to, func(l *effects.Letter) error {
		if l.Handler != "test" || l.Change.Code != "bad" || l.Change.Version != 2 || l.Reason != "it is of no use to try again: no such zone" || l.Time.IsZero() {
			t.Errorf("letter %+v", l)
		}
		return nil
	}))
	r.failing(nil)
	r.must(letters.Requeue(soon(t), from, to, func(int) {}))
	r.want("a@2", "bad@2")
	r.waiting(letters, 0)
	r.must(letters.Drop(soon(t), to)) // again changes nothing
	r.waiting(letters, 0)
}

func (r *rig) waiting(letters effects.Letters, want int64) {
	r.t.Helper()
	var have int64
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if have, err = letters.Waiting(soon(r.t)); err == nil && have == want {
			return
		}
	}
	r.t.Fatalf("%d dead letters, want %d", have, want)
}

// TestGivesUp: what fails for longer than a bound becomes a dead letter; what is stopped meanwhile is given back, not up.
func TestGivesUp(t *testing.T) {
	r := newRig(t)
	r.create("a", 60)
	r.ship()
	role := r.start(time.Hour)
	r.failing(func(*effects.Change) error { return errors.New("down") })
	r.update("a", 2, 60)
	r.ship()
	r.status(role, "it fails", func(s effects.HandlerStatus) bool { return s.Failed > 0 && !s.Failing.IsZero() && s.Last != nil })
	role.stop()
	letters := effects.DeadLetters(r.broker)
	r.waiting(letters, 0)
	role = r.start(500 * time.Millisecond)
	r.waiting(letters, 1)
	// Nothing is tried any more: the letter tells.
	r.status(role, "it does not fail any more", func(s effects.HandlerStatus) bool { return s.Dead == 1 && s.Failing.IsZero() && s.Last == nil })
}

// status waits until the handler's status is as it should be.
func (r *rig) status(role *running, what string, ok func(effects.HandlerStatus) bool) {
	r.t.Helper()
	var s effects.HandlerStatus
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s = role.Status()[0]; ok(s) {
			return
		}
	}
	r.t.Fatalf("%s: never, but %+v", what, s)
}

// TestManyLettersArePutBack: in batches that are noted, so that whoever is interrupted has not worked for nothing.
func TestManyLettersArePutBack(t *testing.T) {
	r := newRig(t)
	pub := pubsub.NewPublisher(r.broker, pubsub.PublisherConfig{})
	defer pub.Close()
	const letters = 1700
	var list []*message.Message
	for i := range letters {
		list = append(list, message.NewMessage(fmt.Sprint(i), []byte("{}")))
	}
	r.must(pub.Publish(eventlog.EffectsDead, list...))
	dead := effects.DeadLetters(r.broker)
	from, to, err := dead.Bounds(soon(t))
	r.must(err)
	ctx, cancel := context.WithCancel(soon(t))
	put := 0
	if err := dead.Requeue(ctx, from, to, func(n int) { put += n; cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if put == 0 || put == letters {
		t.Fatalf("%d of %d were put back before the interruption", put, letters)
	}
	r.waiting(dead, letters-int64(put))
	from, to, err = dead.Bounds(soon(t))
	r.must(err)
	r.must(dead.Requeue(soon(t), from, to, func(n int) { put += n }))
	r.waiting(dead, 0)
	ends, err := r.broker.Ends(soon(t), eventlog.EffectsRetry)
	r.must(err)
	if put != letters || ends[0] != letters {
		t.Errorf("%d put back, %d records, want %d", put, ends[0], letters)
	}
}

// TestClosesBeforeBrokersAnswer: a role that never got to its messages ends at once, and without a complaint.
func TestClosesBeforeBrokersAnswer(t *testing.T) {
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // its backlog accepts; nobody reads
	r.must(err)
	defer l.Close()
	logger := slog.New(slog.DiscardHandler)
	silent, err := eventlog.Open(eventlog.Config{Brokers: []string{l.Addr().String()}}, logger)
	r.must(err)
	defer silent.Close()
	fold, err := effects.OpenFold(effects.FoldConfig{Dir: r.dir, Source: runner.FromLog(silent), Pebble: runner.PebbleOptions{Logger: logger}})
	r.must(err)
	defer fold.Close()
	role, err := effects.New(effects.Config{Log: silent, Fold: fold, Logger: logger, Handlers: []effects.Handler{{Name: "test", Do: r.Do}}})
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- role.Run(ctx) }()
	time.Sleep(300 * time.Millisecond)
	cancel()
	began := time.Now()
	r.must(<-ran)
	r.must(role.Close(soon(t)))
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("closed after %s", took)
	}
}
