package handler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// bench is one partition's ledger without a log: what is decided on it needs none.
type bench struct {
	*linkLedger
	t     *testing.T
	clock time.Time
}

func newBench(t *testing.T, reserved ...string) *bench {
	s, err := openStore("", 1, &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	b := &bench{t: t, clock: time.Now().Truncate(time.Microsecond)}
	now := func() time.Time { return b.clock }
	control := newControl(nil, quiet(), now)
	control.advance(knowing(t, reserved), nil)
	b.linkLedger = &linkLedger{store: s, count: 1, control: control, now: now}
	return b
}

// knowing is a control state with the site, a permutation key and reserved words.
func knowing(t *testing.T, reserved []string) (c *commands.Control) {
	for i, command := range []*pb.ControlCommand{
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: site}}},
		{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}},
		{Kind: &pb.ControlCommand_SetReservedWords{SetReservedWords: &pb.ReservedWords{Words: reserved}}},
	} {
		d := commands.DecideControl(c, command)
		if d.Outcome.GetError() != "" {
			t.Fatal(d.Outcome)
		}
		c = commands.EvolveControl(c, &pb.Envelope{Seq: uint64(i + 1), Events: d.Events})
	}
	return c
}

// drawing gives the ledger a minter whose ids and codes are the same in every test.
func (b *bench) drawing() *bench {
	m, err := mint.New(mint.Config{Partitions: 1, Leaser: endless{}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(m.Close)
	b.mint = m
	return b
}

type endless struct{}

func (endless) Lease(_ context.Context, space uint32, size uint64) (mint.Segment, error) {
	return mint.Segment{Space: space, From: 1, To: 1 + size}, nil
}

func (b *bench) decide(value []byte, sent time.Time, bucket uint32, head events.Head) *pb.Envelope {
	b.t.Helper()
	o := b.begin()
	defer o.drop()
	e, err := o.decide(b.t.Context(), eventlog.Record{Value: value, Time: sent}, bucket, nil, head)
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
			s, err := o.stamp(t.Context(), c, events.Head{})
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
		o := b.begin().(*linkOverlay)
		if err := save(o.changes, linkKey(commands.BucketFor(c), events.RouteKey(site, first)), &pb.Link{Deleted: true}); err != nil {
			t.Fatal(err)
		}
		at := newPlace("events", 0, partitions)
		if err := o.changes.commit(0, &at); err != nil {
			t.Fatal(err)
		}
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
	if err := b.store.db.Set(linkKey(commands.BucketFor(c), events.RouteKey(site, "abc")), []byte("\xff"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	value, err := c.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	o := b.begin()
	defer o.drop()
	_, err = o.decide(t.Context(), eventlog.Record{Value: value}, commands.BucketFor(c), nil, events.Head{})
	if err == nil || !final(err) || !strings.Contains(err.Error(), "decoding state") {
		t.Fatalf("%v", err)
	}
}
