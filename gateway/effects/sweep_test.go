package effects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/schemas/pb"
)

// sweepRig is a rig with the control log beside the links.
type sweepRig struct {
	*rig
	control *runnertest.Log
	sweeper *effects.Sweeper
	held    chan struct{} // the fold of the links does not begin before it is closed; nil: it begins at once
}

func newSweepRig(t *testing.T) *sweepRig {
	t.Helper()
	return &sweepRig{rig: newRig(t), control: runnertest.NewLog(eventlog.EventsControl, 1)}
}

func denyHost(host string) *pb.Event {
	return &pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{
		Entry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST, Value: host}}}}
}

func (r *sweepRig) say(list ...*pb.Event) {
	r.t.Helper()
	for _, event := range list {
		r.control.Append(&pb.Envelope{Bucket: events.ControlBucket, Events: []*pb.Event{event}})
	}
	r.must(r.control.Ship(soon(r.t), r.broker))
}

// start runs a role whose handler, "test", is told of what a sweeper finds. Stop it before starting another.
func (r *sweepRig) start(settle time.Duration) (stop func()) {
	r.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	fold, err := effects.OpenFold(effects.FoldConfig{Dir: r.dir, Source: runner.FromLog(r.broker), Pebble: runner.PebbleOptions{Logger: logger}})
	r.must(err)
	state, err := control.Open(runner.FromLog(r.broker), logger)
	r.must(err)
	r.sweeper = effects.NewSweeper(effects.SweepConfig{Log: r.broker, Fold: fold, Control: state, For: "test", Settle: settle})
	handlers := []effects.Handler{{Name: "test", Do: r.Do, Wants: func(c *effects.Change) bool { return c.Cached && !c.Created }}, r.sweeper.Handler()}
	role, err := effects.New(effects.Config{Log: r.broker, Fold: fold, Logger: logger, Handlers: handlers})
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if r.held != nil {
			<-r.held
		}
		_ = fold.Run(ctx)
	})
	work.Go(func() { _ = state.Run(ctx) })
	work.Go(func() { _ = role.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		r.must(role.Close(context.Background()))
		r.must(r.sweeper.Close())
		r.must(fold.Close())
		state.Close()
	})
	r.t.Cleanup(stop)
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r.at("lists", eventlog.EventsControl) >= 0 && r.at("test", eventlog.EventsLink) >= 0 {
			return stop
		}
	}
	r.t.Fatal("the groups have no positions")
	return nil
}

// at is the lowest position of a group, -1 if it has none.
func (r *sweepRig) at(handler, topic string) int64 {
	at, err := r.broker.GroupPositions(soon(r.t), effects.Group(handler, topic), topic)
	if err != nil || len(at) == 0 {
		return -1
	}
	return slices.Min(at)
}

// swept waits until all of the control log is done.
func (r *sweepRig) swept() {
	r.t.Helper()
	ends, err := r.broker.Ends(soon(r.t), eventlog.EventsControl)
	r.must(err)
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r.at("lists", eventlog.EventsControl) == ends[0] {
			return
		}
	}
	r.t.Fatal("the control log is not done")
}

func (r *sweepRig) link(code, target string, ttl uint32) {
	r.events.Create("acme", host, code, &pb.LinkContent{Target: target, CacheTtl: ttl})
}

// TestSweepFindsWhatListsConcern: each link that is, or ever was, cacheable and leads to a denied host, and no other; with the
// version that it has, and because of what; nothing of what was denied before the first start.
func TestSweepFindsWhatListsConcern(t *testing.T) {
	r := newSweepRig(t)
	r.say(denyHost("old.example"))
	for i := range 7 {
		r.link(fmt.Sprint("evil", i), fmt.Sprintf("https://evil.example/%d", i), 60)
		r.link(fmt.Sprint("good", i), "https://good.example/", 60)
		r.link(fmt.Sprint("plain", i), "https://evil.example/", 0)
	}
	r.link("old", "https://old.example/", 60)
	r.link("was", "https://evil.example/", 60)
	r.events.Update(host, "was", &pb.LinkContent{Target: "https://evil.example/"})
	r.link("left", "https://evil.example/", 60)
	r.events.Update(host, "left", &pb.LinkContent{Target: "https://good.example/", CacheTtl: 60})
	r.ship()
	r.start(50 * time.Millisecond)
	r.say(denyHost("evil.example"))
	want := []string{"was@2"}
	for i := range 7 {
		want = append(want, fmt.Sprintf("evil%d@1", i))
	}
	r.want(want...)
	r.swept()
	r.want(want...)
	if s := r.sweeper.Status(); s.Sweeps != 1 || s.Found != 8 || s.Read != 17 {
		t.Errorf("status %+v", s)
	}
	// A code needs no reading of all links.
	r.say(&pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_CODE, Value: host + "/good3"}}}},
		&pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_CODE, Value: host + "/nothing"}}}},
		&pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_CODE, Value: host + "/plain1"}}}})
	r.want(append(want, "good3@1")...)
	r.swept()
	if s := r.sweeper.Status(); s.Found != 9 || s.Read != 19 {
		t.Errorf("status %+v", s)
	}
}

// TestSweepReadsAllPieces: more links than are looked at in one go, of which the first, the last and a few between are concerned.
func TestSweepReadsAllPieces(t *testing.T) {
	r := newSweepRig(t)
	const links = 9000
	var want []string
	for i := range links {
		target := "https://good.example/"
		if i%1000 == 0 {
			target = "https://evil.example/"
			want = append(want, fmt.Sprintf("l%d@1", i))
		}
		r.link(fmt.Sprint("l", i), target, 60)
	}
	r.ship()
	r.start(0)
	r.say(denyHost("evil.example"))
	r.want(want...)
	r.swept()
	if s := r.sweeper.Status(); s.Read != links || s.Found != 9 || s.LastSeconds <= 0 {
		t.Errorf("status %+v", s)
	}
}

// TestSweepPassesOverVoids: a void envelope says that a host is denied; nobody denied it.
func TestSweepPassesOverVoids(t *testing.T) {
	r := newSweepRig(t)
	r.link("a", "https://a.example/", 60)
	r.link("b", "https://b.example/", 60)
	r.ship()
	r.start(0)
	r.say(denyHost("a.example"))
	r.want("a@1")
	e := &pb.Envelope{SchemaVersion: events.SchemaVersion, Bucket: events.ControlBucket, Seq: 1, PrevHash: make([]byte, 32), Events: []*pb.Event{denyHost("b.example")},
		Stamp: &pb.Stamp{TimeUs: 1}, Outcome: &pb.Outcome{}, CommandId: []byte("12345678")}
	value, _, err := events.EncodeEnvelope(e)
	r.must(err)
	r.control.AppendRaw(events.ControlBucket, value)
	r.say(denyHost("c.example"))
	r.swept()
	r.want("a@1")
}

// TestManyDenialsShareReadings: a list that somebody imports is not a reading of all links for each entry, and all are done.
func TestManyDenialsShareReadings(t *testing.T) {
	r := newSweepRig(t)
	var want []string
	var list []*pb.Event
	for i := range 300 {
		r.link(fmt.Sprint("l", i), fmt.Sprintf("https://h%d.example/", i), 60)
		list = append(list, denyHost(fmt.Sprintf("h%d.example", i)))
		want = append(want, fmt.Sprintf("l%d@1", i))
	}
	r.ship()
	r.start(200 * time.Millisecond)
	r.say(list...)
	r.want(want...)
	r.swept()
	if s := r.sweeper.Status(); s.Sweeps > 60 || s.Found < 300 {
		t.Errorf("status %+v", s)
	}
}

// TestSweepSurvivesItsEnd: what is denied while nobody is there, or while the role waits for the nodes, is found later; what
// cannot be done of what was found stays with the log.
func TestSweepSurvivesItsEnd(t *testing.T) {
	r := newSweepRig(t)
	r.link("a", "https://a.example/", 60)
	r.link("b", "https://b.example/", 60)
	r.ship()
	stop := r.start(time.Hour) // longer than it lives
	r.say(denyHost("a.example"))
	time.Sleep(200 * time.Millisecond)
	stop()
	r.say(denyHost("b.example"))
	r.failing(func(*effects.Change) error { return errors.New("down") })
	stop = r.start(0)
	r.swept() // found, and not done
	stop()
	r.want()
	r.failing(nil)
	r.start(0)
	r.want("a@1", "b@1")
}

// TestSweepWaitsForTheLinks: a link that the process does not know yet is in caches all the same.
func TestSweepWaitsForTheLinks(t *testing.T) {
	r := newSweepRig(t)
	r.held = make(chan struct{})
	release := sync.OnceFunc(func() { close(r.held) })
	r.link("a", "https://a.example/", 60)
	r.ship()
	r.start(0)
	defer release() // before the role is stopped
	r.say(denyHost("a.example"))
	time.Sleep(1500 * time.Millisecond) // positions are written down every second
	if at := r.at("lists", eventlog.EventsControl); at != 0 {
		t.Errorf("the denial is done: position %d", at)
	}
	release()
	r.want("a@1")
	r.swept()
}

// TestSweptAreTriedLikeOthers: what the other side refuses for good becomes a dead letter that says why it was asked.
func TestSweptAreTriedLikeOthers(t *testing.T) {
	r := newSweepRig(t)
	r.link("a", "https://a.example/", 60)
	r.ship()
	r.failing(func(*effects.Change) error { return effects.ErrPermanent })
	r.start(0)
	r.say(denyHost("a.example"))
	letters := effects.DeadLetters(r.broker)
	r.waiting(letters, 1)
	from, to, err := letters.Bounds(soon(t))
	r.must(err)
	r.must(letters.Each(soon(t), from, to, func(l *effects.Letter) error {
		if l.Handler != "test" || l.Change.String() != host+"/a" || l.Change.By != "denylist: host a.example" || !strings.HasPrefix(l.Change.Position, "control/0/") {
			t.Errorf("letter %+v of %+v", l, l.Change)
		}
		return nil
	}))
	r.failing(nil)
	r.must(letters.Requeue(soon(t), from, to, func(int) {}))
	r.want("a@1")
}

// TestGivenUpSweepIsPutBack: what became a dead letter before any link was found says what it is of, and can be tried again.
func TestGivenUpSweepIsPutBack(t *testing.T) {
	r := newSweepRig(t)
	r.link("a", "https://a.example/", 60)
	r.ship()
	r.say(denyHost("a.example"))
	r.start(0)
	letter := message.NewMessage("control/0/1", []byte(`{"position":"control/0/1","lists":[{"list":"denylist","kind":"host","value":"a.example"},{"list":"trust","kind":"owner","value":"ann"}]}`))
	letter.Metadata.Set("handler", "lists")
	pub := pubsub.NewPublisher(r.broker, pubsub.PublisherConfig{})
	defer pub.Close()
	r.must(pub.Publish(eventlog.EffectsDead, letter))
	letters := effects.DeadLetters(r.broker)
	from, to, err := letters.Bounds(soon(t))
	r.must(err)
	r.must(letters.Each(soon(t), from, to, func(l *effects.Letter) error {
		if l.Change.String() != "denylist: host a.example, trust: owner ann" {
			t.Errorf("letter of %s", l.Change)
		}
		return nil
	}))
	r.must(letters.Requeue(soon(t), from, to, func(int) {}))
	r.want("a@1")
}

// BenchmarkSweep is one reading of so many links that may be cached, for one denied host that one link in a thousand leads to.
// The rests between pieces, as long as the pieces, are part of it.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkSweep(b, n) })
	}
}

func benchmarkSweep(b *testing.B, n int) {
	logger, links, lists := slog.New(slog.DiscardHandler), runnertest.NewLog(eventlog.EventsLink, partitions), runnertest.NewLog(eventlog.EventsControl, 1)
	for i := range n {
		target := fmt.Sprintf("https://h%d.example/a/path/of/usual/length?id=%d", i%1000, i)
		links.Create("acme", host, fmt.Sprint("c", i), &pb.LinkContent{Target: target, CacheTtl: 60})
	}
	lists.Append(&pb.Envelope{Bucket: events.ControlBucket, Events: []*pb.Event{denyHost("h7.example")}})
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	fold, err := effects.OpenFold(effects.FoldConfig{Dir: b.TempDir(), Source: links, Pebble: runner.PebbleOptions{Logger: logger}})
	must(err)
	defer fold.Close()
	state, err := control.Open(lists, logger)
	must(err)
	defer state.Close()
	must(fold.RunToEnd(b.Context()))
	must(state.RunToEnd(b.Context()))
	s := effects.NewSweeper(effects.SweepConfig{Log: runnertest.Broker(b, partitions), Fold: fold, Control: state, For: "nobody"})
	defer s.Close()
	change := &effects.Change{Position: "control/0/1", Lists: []effects.Concern{{List: "denylist", Kind: "host", Value: "h7.example"}}}
	for b.Loop() {
		must(s.Do(b.Context(), change))
	}
	if found := s.Status(); found.Found != uint64(n/1000)*found.Sweeps {
		b.Errorf("%+v", found)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "links/s")
}
