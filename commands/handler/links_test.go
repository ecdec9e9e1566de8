package handler

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// bench is one partition's ledger without a log: what is decided on it needs none.
type bench struct {
	*linkLedger
	t     testing.TB
	clock time.Time
}

func newBench(t testing.TB, reserved ...string) *bench {
	s, err := openStore("", 1, &pebble.Options{FS: vfs.NewMem()}, disk.Reports{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	b := &bench{t: t, clock: time.Now().Truncate(time.Microsecond)}
	now := func() time.Time { return b.clock }
	control := newControl(nil, quiet(), now)
	control.advance(knowing(t, reserved), nil)
	b.linkLedger = &linkLedger{store: s, count: 1, control: control, now: now}
	if err := b.filter.load(context.Background(), s, 0, events.Buckets-1); err != nil {
		t.Fatal(err)
	}
	return b
}

// knowing is a control state with the site, a permutation key and reserved words.
func knowing(t testing.TB, reserved []string) (c *commands.Control) {
	for i, command := range []*pb.ControlCommand{
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: site}}},
		{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}},
		{Kind: &pb.ControlCommand_SetReservedWords{SetReservedWords: &pb.ReservedWords{Words: reserved}}},
	} {
		d := commands.DecideControl(c, command, 0)
		if d.Outcome.GetError() != "" {
			t.Fatal(d.Outcome)
		}
		c = commands.EvolveControl(c, &pb.Envelope{Seq: uint64(i + 1), Events: d.Events})
	}
	return c
}

// drawing gives the ledger a minter whose ids and codes are the same in every test.
func (b *bench) drawing() *bench {
	m, err := mint.New(mint.Config{Partitions: 1, Leaser: &endless{}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(m.Close)
	b.mint = m
	return b
}

// endless leases one segment after the other.
type endless struct{ leased atomic.Uint64 }

func (l *endless) Lease(_ context.Context, space uint32, size uint64) (mint.Segment, error) {
	to := 1 + l.leased.Add(size)
	return mint.Segment{Space: space, From: to - size, To: to}, nil
}

func (b *bench) decide(value []byte, sent time.Time, bucket uint32, head events.Head) *pb.Envelope {
	b.t.Helper()
	o := b.begin()
	defer o.drop()
	e, err := propose(b.t.Context(), o, eventlog.Record{Value: value, Time: sent}, bucket, nil, head)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bench) decideCommand(c *pb.LinkCommand, head events.Head) *pb.Envelope {
	b.t.Helper()
	value, err := c.MarshalVT()
	if err != nil {
		b.t.Fatal(err)
	}
	return b.decide(value, b.clock, commands.BucketFor(c), head)
}

// fold applies accepted envelopes, in one commit.
func (b *bench) fold(accepted ...*pb.Envelope) {
	b.t.Helper()
	at, o := newPlace("events", 0, 1), b.begin()
	defer o.drop()
	for _, e := range accepted {
		if err := o.apply(e); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := o.commit(&at); err != nil {
		b.t.Fatal(err)
	}
}

// do decides a command and folds its envelope.
func (b *bench) do(c *pb.LinkCommand) *pb.Outcome {
	b.t.Helper()
	e := b.decideCommand(c, events.Head{})
	e.Bucket = commands.BucketFor(c)
	b.fold(e)
	return e.GetOutcome()
}

func TestStampedTime(t *testing.T) {
	b := newBench(t)
	sent := b.clock
	for _, c := range []struct {
		name   string
		ahead  time.Duration // of the writer's clock
		head   time.Duration // the bucket's last time, after the command's
		want   time.Duration
		failed string
	}{
		{"the writer's clock", time.Second, 0, time.Second, ""},
		{"never below the bucket's last", time.Second, time.Hour, time.Hour, ""},
		{"24 hours after the command", maxAge, 0, maxAge, ""},
		{"more", maxAge + time.Microsecond, 0, maxAge + time.Microsecond, "command_expired"},
		{"60 seconds before the command", -maxLead, 0, 0, ""},
		{"earlier", -maxLead - time.Microsecond, 0, -maxLead - time.Microsecond, "command_expired"},
	} {
		command := create("ann", "k", "abc")
		command.TimeUs = sent.UnixMicro()
		b.clock = sent.Add(c.ahead)
		e := b.decideCommand(command, events.Head{TimeUS: sent.Add(c.head).UnixMicro()})
		if got := e.GetStamp(); got.GetTimeUs() != sent.Add(c.want).UnixMicro() || got.GetFailed() != c.failed || c.failed != "" && e.GetOutcome().GetError() != c.failed {
			t.Errorf("%s: %v, %v", c.name, got, e.GetOutcome())
		}
	}
}

// A repeat is answered although the clocks are too far apart, and does not push its bucket's time.
func TestStampedTimeOfRepeatsThatExpired(t *testing.T) {
	b := newBench(t).drawing()
	first := create("ann", "k", "abc")
	first.TimeUs = b.clock.UnixMicro()
	if o := b.do(first); o.GetError() != "" {
		t.Fatal(o)
	}
	last := b.clock.Add(time.Minute)
	for _, ahead := range []time.Duration{25 * time.Hour, -2 * time.Hour} {
		again := create("ann", "k", "abc")
		again.TimeUs = b.clock.Add(-ahead).UnixMicro()
		e := b.decideCommand(again, events.Head{TimeUS: last.UnixMicro()})
		if s := e.GetStamp(); s.GetTimeUs() != last.UnixMicro() || s.GetFailed() != "command_expired" || !e.GetOutcome().GetReplayed() {
			t.Errorf("%v: %v, %v", ahead, s, e.GetOutcome())
		}
	}
}

// What is no command names no time to compare clocks by; a writer whose clock is wrong must not push its bucket's.
func TestStampedTimeOfWhatIsNoCommand(t *testing.T) {
	b := newBench(t)
	last := b.clock.Add(-time.Hour)
	for name, c := range map[string]struct{ sent, want time.Time }{
		"clocks agree":            {b.clock, b.clock},
		"the writer's is far off": {b.clock.Add(-25 * time.Hour), last},
		"the sender's is far off": {b.clock.Add(2 * time.Minute), last},
	} {
		e := b.decide([]byte("nonsense"), c.sent, 7, events.Head{TimeUS: last.UnixMicro(), ControlSeq: 2})
		if s := e.GetStamp(); s.GetTimeUs() != c.want.UnixMicro() || s.GetControlSeq() != 2 || e.GetOutcome().GetError() != "invalid_request" {
			t.Errorf("%s: %v, %v", name, s, e.GetOutcome())
		}
	}
}

// A control position that never comes holds up a batch once, not once per command.
func TestControlIsWaitedForOncePerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := newControl(nil, quiet(), time.Now)
		o := &linkOverlay{linkLedger: &linkLedger{control: control, now: time.Now}}
		began := time.Now()
		for range commandBatch {
			c := commands.LinkCommand{LinkCommand: &pb.LinkCommand{TimeUs: time.Now().UnixMicro(), ControlSeq: 1 << 40}}
			s, err := o.judge(t.Context(), c, events.Head{})
			if err != nil || s.GetFailed() != commands.CodeUnavailable {
				t.Fatalf("%v, %v", s, err)
			}
		}
		if took := time.Since(began); took != controlWait {
			t.Fatalf("a batch waited %v", took)
		}
	})
}

func TestControlPositionNeverRunsBack(t *testing.T) {
	b := newBench(t)
	if s := b.decideCommand(create("ann", "k", "abc"), events.Head{ControlSeq: 2}).GetStamp(); s.GetControlSeq() != 3 {
		t.Errorf("%v, wanted the state at hand, 3", s)
	}
	if s := b.decideCommand(create("ann", "k", "abc"), events.Head{ControlSeq: 4}).GetStamp(); s.GetControlSeq() != 4 || s.GetFailed() != "unavailable" {
		t.Errorf("%v, wanted to be unavailable at the bucket's last position, 4", s)
	}
}

func TestDrawnAgain(t *testing.T) {
	c := create("ann", "k", "")
	first := newBench(t).drawing().decideCommand(c, events.Head{}).GetOutcome().GetCode()
	if first == "" {
		t.Fatal("no code drawn")
	}
	t.Run("when the code is taken in the bucket", func(t *testing.T) {
		b := newBench(t).drawing()
		b.fold(&pb.Envelope{Bucket: commands.BucketFor(c), Outcome: &pb.Outcome{}, Events: []*pb.Event{{Kind: &pb.Event_LinkCreated{
			LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{Namespace: site, Code: first}}}}}})
		if out := b.decideCommand(c, events.Head{}).GetOutcome(); out.GetCode() == first || out.GetError() != "" {
			t.Fatalf("%v", out)
		}
	})
	t.Run("when the code is a reserved word", func(t *testing.T) {
		if out := newBench(t, first).drawing().decideCommand(c, events.Head{}).GetOutcome(); out.GetCode() == first || out.GetError() != "" {
			t.Fatalf("%v", out)
		}
	})
}

// Damage in the confirmed state stops the partition; the same decision would fail for ever.
func TestDamagedStateStopsThePartition(t *testing.T) {
	b := newBench(t)
	c := create("ann", "k", "abc")
	key := linkKey(commands.BucketFor(c), events.RouteKey(site, "abc"))
	b.filter.add(key)
	if err := b.store.db.Set(key, []byte("\xff"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	value, err := c.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	o := b.begin()
	defer o.drop()
	_, err = propose(t.Context(), o, eventlog.Record{Value: value}, commands.BucketFor(c), nil, events.Head{})
	if err == nil || !final(err) || !strings.Contains(err.Error(), "decoding state") {
		t.Fatalf("%v", err)
	}
}

// A fingerprint leads to the link that was created last with it, whatever becomes of older ones.
func TestFingerprintsLeadToTheNewestLink(t *testing.T) {
	b, n := newBench(t).drawing(), 0
	again := func() *pb.LinkCommand {
		n++
		c := create("ann", fmt.Sprint("k", n), "")
		c.GetCreate().Content.Target, c.GetCreate().Dedupe = "https://example.com/", true
		c.Request.BodyHash = commands.BodyHash(c)
		return c
	}
	change := func(code string, action pb.StatusAction) {
		n++
		c := create("ann", fmt.Sprint("k", n), code)
		c.Kind = &pb.LinkCommand_ChangeStatus{ChangeStatus: &pb.ChangeLinkStatus{Action: action}}
		c.Request.BodyHash = commands.BodyHash(c)
		if out := b.do(c); out.GetError() != "" {
			t.Fatal(out)
		}
	}
	first := b.do(again())
	if out := b.do(again()); first.GetExisting() || !out.GetExisting() || out.GetCode() != first.GetCode() {
		t.Fatalf("the second create was answered %v, the first %v", out, first)
	}
	change(first.GetCode(), pb.StatusAction_DISABLE)
	second := b.do(again())
	if second.GetExisting() || second.GetError() != "" || second.GetCode() == first.GetCode() {
		t.Fatalf("beside a disabled link: %v", second)
	}
	change(first.GetCode(), pb.StatusAction_ENABLE)
	if out := b.do(again()); !out.GetExisting() || out.GetCode() != second.GetCode() {
		t.Fatalf("after the first link is back: %v, wanted %v", out, second)
	}
}

func TestRequestKeysAreOfTheirOwner(t *testing.T) {
	b := newBench(t).drawing()
	if out := b.do(create("ann", "k", "abc")); out.GetError() != "" {
		t.Fatal(out)
	}
	if out := b.do(create("bob", "k", "abc")); out.GetError() != "code_taken" {
		t.Fatalf("%v", out)
	}
	if out := b.do(create("ann", "k", "abc")); !out.GetReplayed() {
		t.Fatalf("%v", out)
	}
}

func TestSweepTakesWhatNoLongerCounts(t *testing.T) {
	b := newBench(t)
	type kept struct {
		bucket uint32
		key    string
		timeUS int64
		want   bool
	}
	list := []kept{{7, "old", 5, false}, {7, "at the limit", 10, false}, {7, "young", 11, true}, {6, "before", 5, true}, {8, "after", 5, true}}
	var accepted []*pb.Envelope
	for _, k := range list {
		accepted = append(accepted, &pb.Envelope{Bucket: k.bucket, Request: &pb.RequestRef{Owner: "ann", Key: k.key}, Outcome: &pb.Outcome{}, Stamp: &pb.Stamp{TimeUs: k.timeUS}})
	}
	b.swept = b.clock // not by itself
	b.fold(accepted...)
	if err := b.store.sweep(7, 10+commands.KeyTTL); err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		found, err := b.store.get(requestKey(k.bucket, &pb.RequestRef{Owner: "ann", Key: k.key}))
		if err != nil || (found != nil) != k.want {
			t.Errorf("%s: found %v, %v", k.key, found != nil, err)
		}
	}
}
