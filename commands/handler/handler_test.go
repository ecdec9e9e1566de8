package handler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
	"github.com/hoplog/hoplog/schemas/pb"
)

// scenarios run one after the other on one log; each has partitions of its own, in which its records are the first.
var scenarios = []struct {
	name string
	run  func(r *rig)
}{
	{"every command gets one envelope", everyCommandGetsOneEnvelope},
	{"two writers and a standby agree", twoWritersAndAStandbyAgree},
	{"unknown outcomes are found out", unknownOutcomesAreFoundOut},
	{"a restart on the same store", restartOnTheSameStore},
	{"control before links", controlBeforeLinks},
	{"handlers share the work", handlersShareTheWork},
	{"alarms stop the partition", alarmsStopThePartition},
}

func TestOnTheEmbeddedBroker(t *testing.T) {
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	play(t, b.Addr())
}

func TestOnKafka(t *testing.T) { play(t, realkafka.Start(t).Addr()) }

func play(t *testing.T, addr string) {
	r := newRig(t, addr)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			own := *r
			own.t = t
			s.run(&own)
		})
	}
}

func everyCommandGetsOneEnvelope(r *rig) {
	const p = 1
	r.write(r.process(p))
	key := keyed(p, 1)
	first := create("ann", key, "")
	_, _ = r.command(first)
	_, _ = r.command(create("ann", key, "")) // a repeat
	reused := create("ann", key, "")
	reused.GetCreate().Content.Target = "https://example.com/other"
	reused.Request.BodyHash = commands.BodyHash(reused)
	_, _ = r.command(reused)
	refused := create("ann", keyed(p, 2), "")
	refused.GetCreate().CodeLength = 4
	_, _ = r.command(refused)
	old := create("ann", keyed(p, 3), "")
	old.TimeUs -= (25 * time.Hour).Microseconds()
	_, _ = r.command(old)
	early := create("ann", keyed(p, 4), "")
	early.TimeUs += (2 * time.Minute).Microseconds()
	_, _ = r.command(early)
	own, _ := events.BucketsOf(p, partitions)
	bucket := events.BucketKey(own)
	value, _ := first.MarshalVT()
	r.send(p, bucket, []byte("nonsense"))
	r.send(p, bucket, nil)
	r.send(p, nil, value)
	r.send(p, []byte{1, 2, 3}, value)
	r.send(p, events.BucketKey(5000), value)
	r.send(p, events.BucketKey(0), value)       // another partition's
	r.send(p, events.BucketKey(own+300), value) // routes elsewhere
	list, _ := r.accepted(p, 13)
	want := []string{"", "", "idempotency_key_reused", "invalid_request", "command_expired", "command_expired",
		"invalid_request", "invalid_request", "invalid_request", "invalid_request", "invalid_request", "invalid_request", "invalid_request"}
	for i, e := range list {
		if e.GetCommandOffset() != int64(i) || e.GetOutcome().GetError() != want[i] {
			r.t.Errorf("envelope %d answers command %d with %v, wanted %q", i, e.GetCommandOffset(), e.GetOutcome(), want[i])
		}
		if bad := i >= 8 && i <= 11; bad != (e.GetBucket() == events.BadKeyBucket(p)) {
			r.t.Errorf("envelope %d is in bucket %d", i, e.GetBucket())
		}
		if i >= 6 && e.GetRequest() != nil {
			r.t.Errorf("envelope %d keeps a request key", i)
		}
	}
	if out := list[1].GetOutcome(); !out.GetReplayed() || out.GetCode() != list[0].GetOutcome().GetCode() {
		r.t.Errorf("the repeat was answered %v", out)
	}
}

func twoWritersAndAStandbyAgree(r *rig) {
	const p, n = 2, 300
	a, b := r.process(p), r.process(p)
	stopA, stopB := r.write(a), r.write(b) // both believe that the partition is theirs
	for i := range n {
		_, _ = r.command(create("ann", keyed(p, i), ""))
	}
	list, checker := r.accepted(p, n)
	answered := map[int64]bool{}
	codes := map[string]bool{}
	for _, e := range list {
		answered[e.GetCommandOffset()] = true
		codes[e.GetOutcome().GetCode()] = true
		if e.GetOutcome().GetError() != "" {
			r.t.Errorf("command %d: %v", e.GetCommandOffset(), e.GetOutcome())
		}
	}
	if len(answered) != n || len(codes) != n {
		r.t.Fatalf("%d commands answered, %d codes, wanted %d", len(answered), len(codes), n)
	}
	r.t.Logf("%d envelopes accepted, %d void", len(list), checker.Voids())
	if err := errors.Join(stopA(), stopB()); err != nil {
		r.t.Fatal(err)
	}
	standby := r.process(p)
	ends, err := r.log.Ends(r.t.Context(), eventlog.EventsLink)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, w := range []*worker{a, b, standby} {
		if err := w.follow(r.t.Context(), ends[p]); err != nil {
			r.t.Fatal(err)
		}
	}
	if dump(r.t, a) != dump(r.t, standby) || dump(r.t, b) != dump(r.t, standby) {
		r.t.Fatal("the writers' states differ from a standby's")
	}
}

// faulty is a producer session that loses appends, or their answers, as told.
type faulty struct {
	appender
	verdicts chan string
	closed   *int
}

func (f *faulty) Close() {
	*f.closed++
	f.appender.Close()
}

func (f *faulty) Append(ctx context.Context, p int32, records []eventlog.Record, expect int64) error {
	select {
	case verdict := <-f.verdicts:
		if verdict == "lost answer" {
			_ = f.appender.Append(ctx, p, records, expect)
		}
		return fmt.Errorf("%s: %w", verdict, eventlog.ErrUnknownOutcome)
	default:
		return f.appender.Append(ctx, p, records, expect)
	}
}

func unknownOutcomesAreFoundOut(r *rig) {
	const p, n = 3, 10
	w := r.process(p)
	verdicts, sessions, closed := make(chan string, n), 0, 0
	mints := map[*mint.Minter]bool{}
	open := w.open
	w.open = func(topic string) (appender, error) {
		sessions++
		mints[w.ledger.(*linkLedger).mint] = true
		session, err := open(topic)
		return &faulty{session, verdicts, &closed}, err
	}
	for range 3 {
		verdicts <- "lost answer"
		verdicts <- "lost append"
	}
	stop := r.write(w)
	for i := range n {
		_, _ = r.command(create("ann", keyed(p, i), ""))
		r.accepted(p, i+1)
	}
	list, checker := r.accepted(p, n)
	for i, e := range list {
		if e.GetCommandOffset() != int64(i) || e.GetOutcome().GetError() != "" {
			r.t.Fatalf("envelope %d answers command %d: %v", i, e.GetCommandOffset(), e.GetOutcome())
		}
	}
	if err := stop(); err != nil {
		r.t.Fatal(err)
	}
	if len(mints) != sessions {
		r.t.Errorf("%d minters for %d lives: ids belong to one", len(mints), sessions)
	}
	if sessions < 7 || closed != sessions || checker.Voids() != 0 {
		r.t.Fatalf("%d producer sessions, %d closed, %d voids; a failed append must end its session", sessions, closed, checker.Voids())
	}
}

func alarmsStopThePartition(r *rig) {
	const p = 0
	_, _ = r.command(create("ann", keyed(p, 1), ""))
	w := r.process(p)
	stop := r.write(w)
	r.accepted(p, 1)
	_ = stop()
	far := func() *worker {
		w := r.process(p)
		w.checker.Restore(100, 0)
		return w
	}
	want := func(w *worker, ours bool, topic string, offset int64) {
		r.t.Helper()
		ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
		defer cancel()
		w.set(ours)
		var alarm *events.Alarm
		if err := w.run(ctx); !errors.As(err, &alarm) || alarm.Topic != topic || alarm.Offset != offset || *w.mode.Load() != ModeStopped {
			r.t.Errorf("wanted an alarm at %s offset %d, got %v", topic, offset, err)
		}
	}
	want(far(), true, eventlog.EventsLink, 100) // a stored position beyond the log's end
	want(far(), false, eventlog.EventsLink, 100)
	session, err := r.log.NewAppender(eventlog.EventsLink)
	if err != nil {
		r.t.Fatal(err)
	}
	defer session.Close()
	if err := session.Append(r.t.Context(), p, []eventlog.Record{{Key: events.BucketKey(1), Value: []byte("nonsense")}}, eventlog.AnyOffset); err != nil {
		r.t.Fatal(err)
	}
	want(r.process(p), true, eventlog.EventsLink, 1)
	want(r.process(p), false, eventlog.EventsLink, 1)
}

// A restart on the store that was left behind goes on where it stood, and repeats meet their stored outcome.
func restartOnTheSameStore(r *rig) {
	const p = 5
	fs := vfs.NewMem()
	key := keyed(p, 1)
	for round := range 3 {
		w, closed := r.processOn(fs, p)
		if round > 0 && (w.checker.Next() != int64(round) || w.standing.next.Load() != int64(round) || len(w.covered) == 0) {
			r.t.Fatalf("round %d begins at offset %d, %d covered", round, w.checker.Next(), len(w.covered))
		}
		stop := r.write(w)
		_, _ = r.command(create("ann", key, ""))
		list, _ := r.accepted(p, round+1)
		if out := list[round].GetOutcome(); out.GetReplayed() != (round > 0) || out.GetCode() != list[0].GetOutcome().GetCode() {
			r.t.Fatalf("round %d: %v", round, out)
		}
		if err := stop(); err != nil {
			r.t.Fatal(err)
		}
		closed()
	}
}

// A writer stamps at the control position that a command names, or says after two seconds that it cannot.
func controlBeforeLinks(r *rig) {
	const p = 4
	r.write(r.process(p))
	seq := r.control.State().Seq
	c := create("ann", keyed(p, 1), "")
	c.ControlSeq = seq + 1
	_, _ = r.command(c)
	reply, err := r.control.Propose(r.t.Context(), &pb.ControlCommand{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: "b.example"}}})
	if err != nil || reply.GetSeq() <= seq {
		r.t.Fatal(reply, err)
	}
	never := create("ann", keyed(p, 2), "")
	never.ControlSeq = 1 << 40
	_, _ = r.command(never)
	list, _ := r.accepted(p, 2)
	if got := list[0].GetStamp().GetControlSeq(); got < seq+1 || list[0].GetOutcome().GetError() != "" {
		r.t.Errorf("stamped at %d, wanted %d or later: %v", got, seq+1, list[0].GetOutcome())
	}
	if out := list[1].GetOutcome(); out.GetError() != "unavailable" {
		r.t.Errorf("a position that never comes: %v", out)
	}
}

// Group assignment: the second process takes over when the first one goes.
func handlersShareTheWork(r *rig) {
	const p, q = 6, 7
	begin := func() (*Handler, func()) {
		h, err := Open(Config{Log: r.log, Logger: quiet(), Dir: "", Options: &pebble.Options{FS: vfs.NewMem()}, Partitions: partitions, Now: time.Now})
		if err != nil {
			r.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(r.t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		return h, func() {
			cancel()
			if err := errors.Join(<-done, h.Close()); err != nil {
				r.t.Error(err)
			}
		}
	}
	one, stopOne := begin()
	<-one.Joined()
	_, stopTwo := begin()
	burst := func(n int) {
		for i := range 10 {
			_, _ = r.command(create("ann", keyed(p, n+i), ""))
			_, _ = r.command(create("ann", keyed(q, n+i), ""))
		}
		r.accepted(p, n+10)
		r.accepted(q, n+10)
	}
	burst(0)
	stopOne()
	burst(10)
	stopTwo()
}
