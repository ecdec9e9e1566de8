package handler

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"testing"

	"pgregory.net/rapid"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// The histories below drive the product's own writer steps (fold, decideAll, merge) over a log in memory that delays,
// reorders between sessions, loses and never acknowledges appends, which no real broker does on demand. The same steps
// run against real brokers in the other tests.

// tally is a ledger that remembers, per bucket, the commands applied, and stamps what it decided on into the outcome.
type tally struct{ applied map[uint32][]string }

func (l *tally) begin() overlay { return &tallyOverlay{l, map[uint32][]string{}} }

type tallyOverlay struct {
	*tally
	added map[uint32][]string
}

func (o *tallyOverlay) seen(bucket uint32) string {
	return fmt.Sprint(append(append([]string{}, o.applied[bucket]...), o.added[bucket]...))
}

func (o *tallyOverlay) stamp(_ context.Context, r eventlog.Record, bucket uint32, _ error, _ events.Head) (*pb.Envelope, decision, error) {
	id := idOf(r.Value)
	return &pb.Envelope{CommandId: id[:], Stamp: &pb.Stamp{CandidateId: rand.Uint64()}},
		func() commands.Decision { return commands.Decision{Outcome: &pb.Outcome{Detail: o.seen(bucket)}} }, nil
}

func (o *tallyOverlay) apply(e *pb.Envelope) error {
	o.added[e.GetBucket()] = append(o.added[e.GetBucket()], fmt.Sprintf("%x", e.GetCommandId()))
	return nil
}

func (o *tallyOverlay) commit(*place) error {
	for bucket, list := range o.added {
		o.applied[bucket] = append(o.applied[bucket], list...)
	}
	return nil
}

func (o *tallyOverlay) drop() {}

// world is a command log, an event log, and appends that the network still holds.
type world struct {
	commands []eventlog.Record
	events   []eventlog.Record
	late     []*sending
}

// sending is an append on its way: base is where it landed, -1 while it has not.
type sending struct {
	records []eventlog.Record
	base    int64
}

func (w *world) deliver(s *sending) {
	if s.base < 0 {
		s.base = int64(len(w.events))
		w.events = append(w.events, s.records...)
	}
}

func (w *world) command(bucket uint32) {
	id := sha256.Sum256([]byte{byte(len(w.commands)), byte(bucket)})
	value, err := (&pb.ControlCommand{SchemaVersion: 1, CommandId: id[:16]}).MarshalVT()
	if err != nil {
		panic(err)
	}
	w.commands = append(w.commands, eventlog.Record{Offset: int64(len(w.commands)), Key: events.BucketKey(bucket), Value: value})
}

// life is one writer's life in a world.
type life struct {
	*writer
	world *world
	open  overlay
	sent  *sending
	// decided is what was sent, as merge takes it.
	decided outgoing
}

func (w *world) begin(t rapid.TB) *life {
	p := &partition{stream: events.StreamLink, eventTopic: "events", commandTopic: "commands", count: 1, ledger: &tally{map[uint32][]string{}}, place: newPlace("events", 0, 1)}
	l := &life{writer: &writer{partition: p}, world: w}
	l.replay(t)
	return l
}

// replay is what live does at its begin, on the log in memory.
func (l *life) replay(t rapid.TB) {
	if err := l.fold(l.world.read(l.checker.Next())); err != nil {
		t.Fatalf("a legal log raised %v", err)
	}
	if err := l.resume(0, int64(len(l.world.commands))); err != nil {
		t.Fatalf("a legal log raised %v", err)
	}
	l.open, l.sent = nil, nil
}

func (w *world) read(from int64) (out []eventlog.Record) {
	for i, r := range w.events[from:] {
		r.Offset = from + int64(i)
		out = append(out, r)
	}
	return out
}

// send decides up to n commands and gives their envelopes to the network.
func (l *life) send(t rapid.TB, n int) bool {
	for l.sent == nil && l.next < int64(len(l.world.commands)) {
		until := min(l.next+int64(n), int64(len(l.world.commands)))
		l.open = l.ledger.begin()
		out, err := l.decideAll(context.Background(), l.open, l.world.commands[l.next:until])
		if err != nil {
			t.Fatalf("deciding: %v", err)
		}
		if len(out.records) > 0 {
			l.sent, l.decided = &sending{out.records, -1}, out
		}
	}
	return l.sent != nil
}

// answer is the broker's answer to a delivered append: sentences 6 and 7.
func (l *life) answer(t rapid.TB) {
	l.session = landed(l.sent.base)
	if err := l.append(context.Background(), l.sent.records); errors.Is(err, errUnconfirmed) {
		l.replay(t)
		return
	}
	if err := l.merge(l.open, l.decided); err != nil {
		t.Fatalf("merging: %v", err)
	}
	l.sent, l.open = nil, nil
}

// landed is a producer session whose append landed at an offset.
type landed int64

func (base landed) Append(_ context.Context, _ int32, _ []eventlog.Record, expect int64) error {
	if expect != eventlog.AnyOffset && expect != int64(base) {
		return eventlog.ErrForeignOffset
	}
	return nil
}

func (landed) Close() {}

// finish lets a healthy writer run alone to the end.
func (w *world) finish(t rapid.TB) {
	l := w.begin(t)
	for l.send(t, 3) {
		w.deliver(l.sent)
		l.answer(t)
	}
}

// verify folds the whole log as any reader does and checks what must hold of it.
func (w *world) verify(t rapid.TB) (voids uint64) {
	checker := events.NewChecker("events", 0, 1)
	state := (&tally{map[uint32][]string{}}).begin().(*tallyOverlay)
	answered := map[int64]int{}
	for i, r := range w.events {
		e, accepted, err := checker.Check(int64(i), r.Key, r.Value)
		if err != nil {
			t.Fatalf("a legal log raised %v", err)
		}
		if !accepted {
			continue
		}
		if seen := state.seen(e.GetBucket()); e.GetOutcome().GetDetail() != seen {
			t.Fatalf("command %d was decided on %s, the truth was %s", e.GetCommandOffset(), e.GetOutcome().GetDetail(), seen)
		}
		if err := state.apply(e.Envelope); err != nil {
			t.Fatal(err)
		}
		answered[e.GetCommandOffset()]++
	}
	for offset := range w.commands {
		if n := answered[int64(offset)]; n != 1 {
			t.Fatalf("command %d has %d accepted envelopes", offset, n)
		}
	}
	return checker.Voids()
}

// Three writers, lost, late and unanswered appends, any order: every command is answered once, on the true state.
func TestAnyHistory(t *testing.T) {
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		t.Fatal(err)
	}
	voids := uint64(0)
	defer func() {
		if t.Logf("%d void envelopes", voids); voids == 0 {
			t.Error("no history had a void envelope: the test proves nothing")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{}
		for range rapid.IntRange(1, 10).Draw(t, "commands") {
			w.command(uint32(rapid.IntRange(0, 3).Draw(t, "bucket")))
		}
		var lives []*life
		pick := func() *life { return lives[rapid.IntRange(0, len(lives)-1).Draw(t, "writer")] }
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			action := rapid.SampledFrom([]string{"begin", "send", "deliver", "answer", "timeout", "crash", "late", "command"}).Draw(t, "action")
			if len(lives) == 0 && action != "late" && action != "command" {
				action = "begin"
			}
			switch action {
			case "begin":
				if len(lives) < 3 {
					lives = append(lives, w.begin(t))
				}
			case "send":
				pick().send(t, rapid.IntRange(1, 3).Draw(t, "batch"))
			case "deliver":
				if l := pick(); l.sent != nil {
					w.deliver(l.sent)
				}
			case "answer":
				if l := pick(); l.sent != nil && l.sent.base >= 0 {
					l.answer(t)
				}
			case "timeout":
				if l := pick(); l.sent != nil {
					w.late = append(w.late, l.sent)
					l.replay(t)
				}
			case "crash":
				i := rapid.IntRange(0, len(lives)-1).Draw(t, "victim")
				if lives[i].sent != nil {
					w.late = append(w.late, lives[i].sent)
				}
				lives = append(lives[:i], lives[i+1:]...)
			case "late":
				if len(w.late) > 0 {
					w.deliver(w.late[rapid.IntRange(0, len(w.late)-1).Draw(t, "which")])
				}
			case "command":
				w.command(uint32(rapid.IntRange(0, 3).Draw(t, "bucket")))
			}
		}
		w.finish(t)
		w.verify(t)
		for _, s := range w.late {
			w.deliver(s)
		}
		voids += w.verify(t)
	})
}

// The history that the first draft of the rule lost a command in: c0:A c1:A c2:B; one writer sends [c0], another
// [c0 c1 c2], the first lands before the second. c1 must be found again.
func TestSentence2ScanStartsAtTheLowWatermark(t *testing.T) {
	w := &world{}
	for _, bucket := range []uint32{0, 0, 1} {
		w.command(bucket)
	}
	one, two := w.begin(t), w.begin(t)
	one.send(t, 1)
	two.send(t, 3)
	w.deliver(one.sent)
	w.deliver(two.sent)
	if next := w.begin(t); next.start != 0 || next.checker.Voids() != 2 {
		t.Fatalf("the scan starts at %d after %d voids", next.start, next.checker.Voids())
	}
	w.finish(t)
	w.verify(t)
}

func TestSentence5LowWatermarkComesFromTheConfirmedState(t *testing.T) {
	w := &world{}
	for range 4 {
		w.command(0)
	}
	l := w.begin(t)
	lows := func() (list []int64) {
		for _, r := range l.sent.records {
			e, err := events.DecodeEnvelope(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e.GetLowWatermark())
		}
		return list
	}
	l.send(t, 2)
	if got := fmt.Sprint(lows()); got != "[0 0]" {
		t.Fatalf("first batch claims %s", got)
	}
	w.deliver(l.sent)
	l.answer(t)
	l.send(t, 2)
	if got := fmt.Sprint(lows()); got != "[2 2]" {
		t.Fatalf("second batch claims %s", got)
	}
	w.deliver(l.sent)
	l.answer(t)
	w.command(0)
	l.send(t, 1)
	if got := fmt.Sprint(lows()); got != "[4]" {
		t.Fatalf("third batch claims %s", got)
	}
	if len(l.covered) != 2 {
		t.Fatalf("%d covered commands kept, no scan begins below 2", len(l.covered))
	}
	if l = w.begin(t); l.start != 2 {
		t.Fatalf("a new life scans from %d", l.start)
	}
	l.send(t, 3)
	if got := fmt.Sprint(lows()); got != "[4]" {
		t.Fatalf("its first batch claims %s", got)
	}
}

func TestSentence3CoveredCommandsAreSkipped(t *testing.T) {
	w := &world{}
	w.command(0)
	w.finish(t)
	l := w.begin(t)
	if l.send(t, 3) {
		t.Fatal("a covered command was decided again")
	}
	w.verify(t)
}

func TestSentence8AlarmsOfCommands(t *testing.T) {
	fresh := func() (*world, *life) {
		w := &world{}
		for _, bucket := range []uint32{0, 1, 0} {
			w.command(bucket)
		}
		w.finish(t)
		return w, w.begin(t)
	}
	want := func(name string, offset int64, err error) {
		t.Helper()
		var alarm *events.Alarm
		if !errors.As(err, &alarm) || alarm.Topic != "commands" || alarm.Offset != offset {
			t.Errorf("%s: %v, wanted an alarm at offset %d", name, err, offset)
		}
	}
	_, l := fresh()
	want("the log ends before a covered command", 2, l.checkCommandLog(0, 2))
	if err := l.resume(3, 3); err != nil || l.next != 3 {
		t.Errorf("a log that begins after covered commands: scan at %d, %v", l.next, err)
	}
	l.start = 9
	want("the log ends before the low watermark", 9, l.checkCommandLog(0, 3))
	_, l = fresh()
	delete(l.covered, 1)
	want("the log begins after a command that nobody answered", 1, l.checkCommandLog(2, 3))

	w, l := fresh()
	w.commands[1].Value = w.commands[0].Value
	_, err := l.decideAll(context.Background(), l.ledger.begin(), w.commands)
	want("another command at a covered offset", 1, err)
	w, l = fresh()
	delete(l.covered, 0)
	_, err = l.decideAll(context.Background(), l.ledger.begin(), w.commands)
	want("a later command is answered, this one is not", 0, err)
	w, l = fresh()
	w.command(3)
	w.command(3)
	_, err = l.decideAll(context.Background(), l.ledger.begin(), w.commands[4:])
	want("a gap in the commands", 4, err)
}

func TestSentence6ForeignOffsetIsNotMerged(t *testing.T) {
	w := &world{}
	w.command(0)
	w.command(0)
	one, two := w.begin(t), w.begin(t)
	one.send(t, 1)
	two.send(t, 2)
	w.deliver(two.sent)
	w.deliver(one.sent)
	one.answer(t) // its record lies at offset 2, where 0 was expected
	if got := len(one.ledger.(*tally).applied[0]); got != 2 || one.checker.Voids() != 1 {
		t.Fatalf("%d commands applied, %d voids", got, one.checker.Voids())
	}
	w.verify(t)
}

func TestSentence4TooLargeEnvelopeIsRefused(t *testing.T) {
	big := &pb.Envelope{Stamp: &pb.Stamp{TimeUs: 5}, Outcome: &pb.Outcome{}, Request: &pb.RequestRef{Owner: "ann", Key: "k"},
		Events: []*pb.Event{{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Content: &pb.LinkContent{Title: string(make([]byte, maxEnvelope))}}}}}}
	record, _, err := seal(events.StreamLink, big, 3, events.Head{}, 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := events.DecodeEnvelope(record.Value)
	if err != nil || e.GetOutcome().GetError() != "too_large" || len(e.GetEvents()) != 0 || e.GetCommandOffset() != 7 || len(record.Value) > 1000 {
		t.Fatalf("%v %v", e, err)
	}
	if e.GetRequest().GetKey() != "k" {
		t.Fatal("a repeat would not meet this outcome")
	}
	big = &pb.Envelope{Stamp: &pb.Stamp{TimeUs: 1 << 60}, Request: &pb.RequestRef{Owner: "ann", Key: string(make([]byte, maxEnvelope))},
		Outcome: &pb.Outcome{Error: events.ErrorCommandExpired}}
	record, next, err := seal(events.StreamLink, big, 3, events.Head{TimeUS: 9}, 8, 0)
	if err != nil || len(record.Value) > 1000 || next.TimeUS != 9 || big.GetStamp().GetTimeUs() != 9 {
		t.Fatalf("an expired command that is too large leaves its bucket at %d: %v", next.TimeUS, err)
	}
}

// The next command of a bucket in the same batch is stamped after the one before it, which is not confirmed yet.
func TestSealCarriesTimeAndControlPosition(t *testing.T) {
	head := events.Head{Seq: 4, TimeUS: 9, ControlSeq: 3}
	for name, c := range map[string]struct {
		stamp *pb.Stamp
		code  string
		want  events.Head
	}{
		"later":             {&pb.Stamp{TimeUs: 12, ControlSeq: 5}, "", events.Head{TimeUS: 12, ControlSeq: 5}},
		"never back":        {&pb.Stamp{TimeUs: 1, ControlSeq: 1}, "", events.Head{TimeUS: 9, ControlSeq: 3}},
		"of an expired one": {&pb.Stamp{TimeUs: 99, ControlSeq: 3}, "command_expired", events.Head{TimeUS: 9, ControlSeq: 3}},
		"of a refused one":  {&pb.Stamp{TimeUs: 99, ControlSeq: 3}, "code_taken", events.Head{TimeUS: 99, ControlSeq: 3}},
	} {
		_, next, err := seal(events.StreamLink, &pb.Envelope{Stamp: c.stamp, Outcome: &pb.Outcome{Error: c.code}}, 3, head, 7, 0)
		if err != nil || next.Seq != 5 || next.TimeUS != c.want.TimeUS || next.ControlSeq != c.want.ControlSeq {
			t.Errorf("%s: %+v, %v", name, next, err)
		}
	}
}

// patient is a producer session that tells whether its append was cancelled.
type patient struct{ cancelled bool }

func (p *patient) Append(ctx context.Context, _ int32, _ []eventlog.Record, _ int64) error {
	p.cancelled = ctx.Err() != nil
	return ctx.Err()
}

func (*patient) Close() {}

// A turn that ends finishes the append at hand: a drain leaves no outcome unknown.
func TestAppendOutlivesItsTurn(t *testing.T) {
	w := &world{}
	w.command(0)
	l := w.begin(t)
	session := &patient{}
	l.session = session
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.append(ctx, nil); err != nil || session.cancelled {
		t.Fatalf("%v", err)
	}
}

// A confirmed envelope is the writer's own, on its own head: if the chain rule says otherwise, something is broken.
func TestSentence7ConfirmedEnvelopesAreNeverVoid(t *testing.T) {
	w := &world{}
	w.command(0)
	w.command(0)
	l := w.begin(t)
	l.send(t, 2)
	twice := outgoing{append(l.decided.envelopes[:1:1], l.decided.envelopes...), append(l.decided.records[:1:1], l.decided.records...)}
	var alarm *events.Alarm
	if err := l.merge(l.open, twice); !errors.As(err, &alarm) || alarm.Offset != 1 {
		t.Fatalf("%v", err)
	}
}
