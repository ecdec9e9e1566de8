package events_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

func hash(n int) (h events.Hash) {
	copy(h[:], fmt.Sprintf("envelope %d", n))
	return h
}

// step is one envelope offered to a chain: seq, the envelope it follows (0: none) and its own number.
type step struct {
	seq        uint64
	prev, own  int
	accepted   bool
	alarmed    bool
	checkpoint bool // the reader is restarted before this step
}

func at(n int) events.Hash {
	if n == 0 {
		return events.Hash{}
	}
	return hash(n)
}

func run(t *testing.T, steps []step) {
	t.Helper()
	var c events.Chain
	for i, s := range steps {
		accepted, err := c.Next(s.seq, at(s.prev), at(s.own))
		if accepted != s.accepted || (err != nil) != s.alarmed {
			t.Fatalf("step %d %+v: accepted %v, error %v", i, s, accepted, err)
		}
	}
}

func TestSentence1AcceptsWhatExtendsTheHead(t *testing.T) {
	run(t, []step{{1, 0, 1, true, false, false}, {2, 1, 2, true, false, false}, {3, 2, 3, true, false, false}})
}

func TestSentence1VoidsTheRest(t *testing.T) {
	for name, steps := range map[string][]step{
		"a stale writer's first envelope":         {{1, 0, 1, true, false, false}, {1, 0, 9, false, false, false}},
		"what a stale writer chained to it":       {{1, 0, 1, true, false, false}, {1, 0, 8, false, false, false}, {2, 8, 9, false, false, false}, {3, 9, 10, false, false, false}},
		"a second copy":                           {{1, 0, 1, true, false, false}, {2, 1, 2, true, false, false}, {1, 0, 1, false, false, false}, {2, 1, 2, false, false, false}},
		"a stale writer goes on, the chain too":   {{1, 0, 1, true, false, false}, {1, 0, 8, false, false, false}, {2, 1, 2, true, false, false}, {2, 8, 9, false, false, false}, {3, 2, 3, true, false, false}},
		"right hash, wrong sequence":              {{1, 0, 1, true, false, false}, {1, 0, 7, false, false, false}, {3, 1, 2, false, true, false}},
		"right sequence, hash from nowhere":       {{1, 0, 1, true, false, false}, {2, 5, 6, false, true, false}},
		"a void one's hash, another sequence":     {{1, 0, 1, true, false, false}, {1, 0, 8, false, false, false}, {3, 8, 9, false, true, false}},
		"an accepted envelope went missing":       {{1, 0, 1, true, false, false}, {3, 2, 3, false, true, false}},
		"the first envelope went missing":         {{2, 1, 2, false, true, false}},
		"a fork that the reader never saw before": {{1, 0, 1, true, false, false}, {2, 1, 2, true, false, false}, {2, 7, 8, false, true, false}},
	} {
		t.Run(name, func(t *testing.T) { run(t, steps) })
	}
}

// Beyond its memory a reader cannot tell a stale writer from a hole, and must not cry wolf.
func TestSentence8ForgetsOnlyThat(t *testing.T) {
	t.Run("an old fork is plain void", func(t *testing.T) {
		steps := []step{}
		for n := 1; n <= 100; n++ {
			steps = append(steps, step{uint64(n), n - 1, n, true, false, false})
		}
		known := step{seq: 40, prev: 39, own: 900}
		old := step{seq: 3, prev: 777, own: 901}
		recent := step{seq: 90, prev: 778, own: 902, alarmed: true}
		run(t, append(steps, known, old, recent))
	})
	voids := func(n int) []step {
		steps := []step{{1, 0, 1, true, false, false}}
		for i := range n {
			steps = append(steps, step{seq: 1, prev: 0, own: 100 + i})
		}
		return steps
	}
	t.Run("not 64 voids", func(t *testing.T) {
		run(t, append(voids(64), step{seq: 2, prev: 100, own: 300}))
		run(t, append(voids(64), step{seq: 2, prev: 999, own: 300, alarmed: true}))
	})
	t.Run("the oldest void first", func(t *testing.T) {
		moved := append(voids(65), step{2, 1, 2, true, false, false})
		run(t, append(moved, step{seq: 2, prev: 164, own: 300}))
		run(t, append(moved, step{seq: 2, prev: 101, own: 300}))
		run(t, append(moved, step{seq: 2, prev: 100, own: 300, alarmed: true}))
	})
	t.Run("not 63 accepted", func(t *testing.T) {
		steps := []step{}
		for n := 1; n <= 100; n++ {
			steps = append(steps, step{uint64(n), n - 1, n, true, false, false})
		}
		run(t, append(steps, step{seq: 37, prev: 777, own: 900}, step{seq: 38, prev: 37, own: 901}, step{seq: 38, prev: 777, own: 902, alarmed: true}))
	})
	t.Run("after 64 voids an unknown predecessor is plain void until the head moves", func(t *testing.T) {
		steps := append(voids(65), step{seq: 2, prev: 100, own: 300}, step{2, 1, 2, true, false, false}, step{seq: 3, prev: 999, own: 301, alarmed: true})
		run(t, steps)
	})
}

// build makes the records of a partition: every call of add appends one envelope.
type build struct {
	t       *testing.T
	records [][2][]byte
}

func (b *build) add(bucket uint32, seq uint64, prev events.Hash, change func(*pb.Envelope)) events.Hash {
	e := &pb.Envelope{SchemaVersion: events.SchemaVersion, Bucket: bucket, Seq: seq, PrevHash: prev[:], CommandId: make([]byte, 16),
		CommandOffset: int64(len(b.records)), Stamp: &pb.Stamp{TimeUs: int64(1000 + len(b.records))}, Outcome: &pb.Outcome{}}
	if change != nil {
		change(e)
	}
	value, h, err := events.EncodeEnvelope(e)
	if err != nil {
		b.t.Fatal(err)
	}
	b.records = append(b.records, [2][]byte{events.BucketKey(bucket), value})
	return h
}

func check(c *events.Checker, records [][2][]byte) (accepted int, err error) {
	for _, r := range records {
		_, ok, err := c.Check(c.Next(), r[0], r[1])
		if err != nil {
			return accepted, err
		}
		if ok {
			accepted++
		}
	}
	return accepted, nil
}

func wantAlarm(t *testing.T, err error, offset int64, bucket uint32, words string) {
	t.Helper()
	var alarm *events.Alarm
	if !errors.As(err, &alarm) || alarm.Topic != "events" || alarm.Partition != 1 || alarm.Offset != offset || alarm.Bucket != bucket || !strings.Contains(alarm.Reason, words) {
		t.Fatalf("wanted an alarm at offset %d, bucket %d about %q, got %v", offset, bucket, words, err)
	}
}

func TestSentence8AlarmsOfEvents(t *testing.T) {
	own := uint32(1024) // the first bucket of partition 1 of 4
	for name, c := range map[string]struct {
		change func(r [][2][]byte) [][2][]byte
		bucket uint32
		words  string
	}{
		"not an envelope":      {func(r [][2][]byte) [][2][]byte { r[1][1] = []byte("nonsense"); return r }, events.NoBucket, "not an envelope"},
		"empty record":         {func(r [][2][]byte) [][2][]byte { r[1][1] = nil; return r }, events.NoBucket, "not an envelope"},
		"key of another":       {func(r [][2][]byte) [][2][]byte { r[1][0] = events.BucketKey(1025); return r }, own, "record key"},
		"no key":               {func(r [][2][]byte) [][2][]byte { r[1][0] = nil; return r }, own, "record key"},
		"predecessor unknown":  {func(r [][2][]byte) [][2][]byte { return append(r[:1:1], r[2:]...) }, own, "nowhere in the log"},
		"newer than we are":    {func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.SchemaVersion = 99 }) }, events.NoBucket, "newer schema"},
		"foreign partition":    {func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.Bucket = 5 }) }, 5, "does not belong"},
		"another's bad bucket": {func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.Bucket = 4096 }) }, 4096, "does not belong"},
		"an unknown event": {func(r [][2][]byte) [][2][]byte {
			return rewrite(t, r, func(e *pb.Envelope) { e.Events = []*pb.Event{{}} })
		}, events.NoBucket, "unknown kind"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &build{t: t}
			h := b.add(own, 1, events.Hash{}, nil)
			h = b.add(own, 2, h, nil)
			b.add(own, 3, h, nil)
			checker := events.NewChecker("events", 1, 4)
			accepted, err := check(checker, c.change(b.records))
			wantAlarm(t, err, 1, c.bucket, c.words)
			if accepted != 1 || checker.Next() != 1 {
				t.Fatalf("%d accepted, next offset %d", accepted, checker.Next())
			}
			if _, _, again := checker.Check(1, b.records[0][0], b.records[0][1]); !errors.Is(again, err) {
				t.Fatalf("after the alarm the checker went on: %v", again)
			}
		})
	}
}

// rewrite changes the second record's envelope and gives it the key of its new bucket.
func rewrite(t *testing.T, records [][2][]byte, change func(*pb.Envelope)) [][2][]byte {
	e := &pb.Envelope{}
	if err := e.UnmarshalVT(records[1][1]); err != nil {
		t.Fatal(err)
	}
	change(e)
	value, err := e.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	records[1] = [2][]byte{events.BucketKey(e.GetBucket()), value}
	return records
}

func TestSentence8AlarmsAtAGap(t *testing.T) {
	b := &build{t: t}
	b.add(1024, 1, events.Hash{}, nil)
	checker := events.NewChecker("events", 1, 4)
	_, _, err := checker.Check(1, b.records[0][0], b.records[0][1])
	wantAlarm(t, err, 1, events.NoBucket, "gap in offsets")
	checker = events.NewChecker("events", 1, 4)
	if _, err := check(checker, b.records); err != nil {
		t.Fatal(err)
	}
	_, _, err = checker.Check(0, b.records[0][0], b.records[0][1])
	wantAlarm(t, err, 0, events.NoBucket, "gap in offsets")
}

func TestCheckerGoesOnFromWhatItSaved(t *testing.T) {
	b := &build{t: t}
	h1 := b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) { e.LowWatermark, e.Stamp.ControlSeq = 7, 3 })
	b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) { e.CommandOffset, e.LowWatermark = 50, 9 }) // void, its L counts
	first := events.NewChecker("events", 1, 4)
	if accepted, err := check(first, b.records); accepted != 1 || err != nil {
		t.Fatal(accepted, err)
	}
	again := reopened(t, first)
	if first.Head(1024).ControlSeq != 3 || again.Head(1024) != first.Head(1024) || again.MaxLowWatermark() != 9 {
		t.Fatalf("restored %+v, was %+v", again.Head(1024), first.Head(1024))
	}
	lost, err := events.DecodeEnvelope(b.records[1][1])
	if err != nil {
		t.Fatal(err)
	}
	rest := &build{t: t}
	rest.add(1024, 2, lost.Hash, nil) // chained to a void one: known, so void
	rest.add(1024, 2, h1, nil)
	if accepted, err := check(again, rest.records); accepted != 1 || err != nil {
		t.Fatalf("%d accepted, %v", accepted, err)
	}
}

// A stale writer's envelope may arrive after one that knows more: the scan begins at the largest low watermark.
func TestSentence2LargestLowWatermarkCounts(t *testing.T) {
	b := &build{t: t}
	h := b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) { e.LowWatermark = 7 })
	b.add(1024, 2, h, func(e *pb.Envelope) { e.LowWatermark = 3 })
	c := events.NewChecker("events", 1, 4)
	if accepted, err := check(c, b.records); accepted != 2 || err != nil || c.MaxLowWatermark() != 7 {
		t.Fatalf("%d accepted, low watermark %d, %v", accepted, c.MaxLowWatermark(), err)
	}
}

// What a reader forgot before its restart is no hole after it.
func TestCheckerSavesThatItForgot(t *testing.T) {
	b := &build{t: t}
	b.add(1024, 1, events.Hash{}, nil)
	for range 65 {
		b.add(1024, 1, events.Hash{}, nil) // void, each a little different
	}
	b.add(1024, 2, events.Hash{9}, nil)
	first := events.NewChecker("events", 1, 4)
	if _, err := check(first, b.records[:1]); err != nil {
		t.Fatal(err)
	}
	save := saver(t, first)
	save() // what came after it is saved too
	if _, err := check(first, b.records[1:66]); err != nil {
		t.Fatal(err)
	}
	if accepted, err := check(save(), b.records[66:]); accepted != 0 || err != nil {
		t.Fatalf("%d accepted, %v", accepted, err)
	}
}

// reopened is a checker made from what another saves.
func reopened(t *testing.T, from *events.Checker) *events.Checker { return saver(t, from)() }

// saver keeps what a checker saves, as a store does, and makes another checker of it.
func saver(t *testing.T, from *events.Checker) func() *events.Checker {
	saved := map[uint32]*pb.BucketHead{}
	return func() *events.Checker {
		t.Helper()
		err := from.Saved(func(bucket uint32, head *pb.BucketHead) error {
			raw, err := head.MarshalVT()
			saved[bucket] = &pb.BucketHead{}
			return errors.Join(err, saved[bucket].UnmarshalVT(raw))
		})
		if err != nil {
			t.Fatal(err)
		}
		to := events.NewChecker("events", 1, 4)
		to.Restore(from.Next(), from.MaxLowWatermark())
		for bucket, head := range saved {
			if err := to.RestoreHead(bucket, head); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
}

// A clock that is far off must not push a bucket's time.
func TestExpiredCommandsDoNotMoveTime(t *testing.T) {
	b := &build{t: t}
	h := b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) { e.Stamp.TimeUs = 100 })
	h = b.add(1024, 2, h, func(e *pb.Envelope) {
		e.Stamp.TimeUs, e.Outcome.Error = 1<<60, events.ErrorCommandExpired
	})
	c := events.NewChecker("events", 1, 4)
	if _, err := check(c, b.records); err != nil || c.Head(1024).TimeUS != 100 || c.Head(1024).Hash != h {
		t.Fatalf("%+v %v", c.Head(1024), err)
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	b := &build{}
	b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) {
		e.Events = []*pb.Event{{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{LinkId: 1, Namespace: "s.example", Code: "a"}}}}}
	})
	f.Add(b.records[0][1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := events.DecodeEnvelope(value)
		if err != nil {
			if !errors.Is(err, events.ErrMalformed) && !errors.Is(err, events.ErrNewer) {
				t.Fatalf("an error without a name: %v", err)
			}
			return
		}
		if len(e.GetPrevHash()) != 32 || e.GetSeq() == 0 || e.GetSchemaVersion() == 0 || e.GetSchemaVersion() > events.SchemaVersion {
			t.Fatalf("accepted the form of %v", e.Envelope)
		}
		again, _, err := events.EncodeEnvelope(e.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := events.DecodeEnvelope(again); err != nil || !proto.Equal(second.Envelope, e.Envelope) {
			t.Fatalf("decoded, encoded and decoded it differs: %v", err)
		}
	})
}
