package runner_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// borrower is a tally that keeps nothing of an envelope.
type borrower struct {
	tally
	writes int // per partition
}

func (b *borrower) Fork() runner.Projection { return &tally{fail: b.fail} }

func (b *borrower) Written(*runner.Write) { b.writes++ }

// openTables opens a store that takes up every commit as tables, or every one that is not small.
func openTables(tb testing.TB, fs vfs.FS, bulkBytes int) *runner.Pebble {
	tb.Helper()
	store, err := runner.OpenPebble("data", runner.PebbleOptions{FS: fs, MemTableBytes: 256 << 10, BulkBytes: bulkBytes})
	must(tb, err)
	return store
}

func TestFarBehindManyBatchesAreOneCommit(t *testing.T) {
	const links = 800
	log, p := logOf(links), &borrower{}
	store := openTables(t, vfs.NewMem(), 1)
	defer store.Close()
	r := newRunner(t, log, store, p)
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, links)
	// 1,600 records in batches of 64; a commit for each of the last that are not far behind, and one for all before them.
	if p.writes < 2 || p.writes > 12*partitions {
		t.Errorf("%d writes", p.writes)
	}
	if got := r.Status(); got.Applied != 2*links || got.Voids != 0 {
		t.Errorf("status %+v", got)
	}
	for i := range links {
		if got, want := r.Head(bucket(i)), log.Head(bucket(i)).Seq; got != want {
			t.Fatalf("head of bucket %d is %d, want %d", bucket(i), got, want)
		}
	}
	if heard := p.heard(); len(heard) > 0 {
		t.Errorf("it was shown %d envelopes after they were lent", len(heard))
	}
	// What comes one by one is committed one by one.
	before := p.writes
	for i := range 3 {
		addTo(log, links+i, links+i+1)
		must(t, r.RunToEnd(soon(t)))
	}
	if got := p.writes - before; got < 3 || got > 6 { // of six records, of which the runner may have met one alone
		t.Errorf("%d writes for three appends of two records", got)
	}
}

// TestFarBehind: whoever would read the whole store hears when that is too early, and is never left waiting.
func TestFarBehind(t *testing.T) {
	log := logOf(800)
	r := newRunner(t, log, openTables(t, vfs.NewMem(), 1), &borrower{})
	if r.FarBehind() {
		t.Error("far behind before it knows of a log")
	}
	half := make([]int64, partitions)
	ends, err := log.Ends(context.Background(), "")
	must(t, err)
	for i := range half {
		half[i] = ends[i] / 2
	}
	far := 0
	must(t, r.RunTo(soon(t), half, func(int64) {
		if r.FarBehind() {
			far++
		}
	}))
	if far == 0 {
		t.Error("never far behind")
	}
	if r.FarBehind() {
		t.Error("far behind after the run")
	}
	must(t, r.RunToEnd(soon(t)))
	if r.FarBehind() {
		t.Error("far behind at the end")
	}
	log.AppendRaw(bucket(3), []byte("no envelope"))
	addTo(log, 800, 1600)
	if r.RunToEnd(soon(t)) == nil || r.FarBehind() {
		t.Errorf("far behind after an alarm: %v", r.FarBehind())
	}
}

// TestSpanStopsBeforePoison: a commit of many batches is dropped whole, and the store stands for what its positions say.
func TestSpanStopsBeforePoison(t *testing.T) {
	const links, bad = 800, 400
	boom := errors.New("boom")
	log, fs := logOf(links), vfs.NewMem()
	store := openTables(t, fs, 1)
	r := newRunner(t, log, store, &borrower{tally: tally{fail: func(a runner.Accepted) error {
		if events.LinkOf(a.GetEvents()[0]).GetCode() == code(bad) {
			return boom
		}
		return nil
	}}})
	err := r.RunToEnd(soon(t))
	var p *runner.Poison
	if !errors.Is(err, boom) || !errors.As(err, &p) || p.Bucket != bucket(bad) {
		t.Fatal(err)
	}
	if got := folded(r); got != sum(t, store) || r.Positions()[p.Partition] > p.Offset {
		t.Errorf("%d events are in the store, the positions %v stand for %d", sum(t, store), r.Positions(), got)
	}
	r.Pause() // nothing is left locked
	r.Resume()
	must(t, store.Close())
	store = openTables(t, fs, 1)
	defer store.Close()
	must(t, newRunner(t, log, store, &borrower{}).RunToEnd(soon(t)))
	wantTally(t, store, links)
}

// TestSpanEndsAtAnAlarm: what came before it counts and is committed.
func TestSpanEndsAtAnAlarm(t *testing.T) {
	log := logOf(600)
	partition := events.PartitionOf(bucket(3), partitions)
	ends, _ := log.Ends(context.Background(), "")
	log.AppendRaw(bucket(3), []byte("no envelope"))
	addTo(log, 600, 1200)
	store := openTables(t, vfs.NewMem(), 1)
	defer store.Close()
	r := newRunner(t, log, store, &borrower{})
	wantAlarm(t, r.RunToEnd(soon(t)), partition, ends[partition], events.NoBucket)
	if got := r.Positions()[partition]; got != ends[partition] {
		t.Errorf("stands at %d, want just before the alarm at %d", got, ends[partition])
	}
	if got := folded(r); got != sum(t, store) {
		t.Errorf("%d events are in the store, the positions stand for %d", sum(t, store), got)
	}
}

// TestSpanDoesNotWaitForALogThatStandsStill: a log that says there is more and gives nothing does not hold up what was read.
func TestSpanDoesNotWaitForALogThatStandsStill(t *testing.T) {
	log := logOf(1000)
	store := openTables(t, vfs.NewMem(), 1)
	defer store.Close()
	r := newRunner(t, boaster{log}, store, &borrower{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	must(t, r.WaitFor(soon(t), events.Position{Stream: events.StreamLink, Bucket: bucket(999), Seq: log.Head(bucket(999)).Seq}))
	cancel()
	must(t, <-ended)
	wantTally(t, store, 1000)
}

// boaster is a log that always says it has a million records more.
type boaster struct{ runner.Source }

func (b boaster) NewTail(topic string, from map[int32]int64) (runner.Tail, error) {
	t, err := b.Source.NewTail(topic, from)
	return boastingTail{t}, err
}

type boastingTail struct{ runner.Tail }

func (t boastingTail) Poll(ctx context.Context, most int) ([]eventlog.Batch, error) {
	out, err := t.Tail.Poll(ctx, most)
	for i := range out {
		out[i].Behind = 1_000_000
	}
	return out, err
}

// TestCrashBetweenTables crashes the machine between and in commits, some of which are tables and some are not.
func TestCrashBetweenTables(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	log, links := logOf(0), 0
	fs := vfs.NewCrashableMem()
	for range 12 {
		more := 1 + random.IntN(300) // up to 600 records: sometimes far behind
		addTo(log, links, links+more)
		links += more
		store := openTables(t, fs, 1+random.IntN(20_000))
		r := newRunner(t, log, store, &borrower{})
		if got := sum(t, store); got != folded(r) {
			t.Fatalf("the store holds %d events, its positions stand for %d", got, folded(r))
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Duration(random.IntN(15_000)) * time.Microsecond)
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
		cancel()
		must(t, <-ended)
		must(t, store.Close())
		fs = after
	}
	store := openTables(t, fs, 1)
	defer store.Close()
	must(t, newRunner(t, log, store, &borrower{}).RunToEnd(soon(t)))
	wantTally(t, store, links)
}

// TestLentAndKeptFoldTheSame: of a log with all that a log may have.
func TestLentAndKeptFoldTheSame(t *testing.T) {
	log := logOf(500)
	first := log.Fork(bucket(3), nil)
	log.Fork(bucket(3), first)
	log.Update("s.example", code(4), &pb.LinkContent{Target: "https://b.example/", Tags: []string{"x"}})
	lentStore, keptStore := runner.NewMemory(), runner.NewMemory()
	lent, kept := newRunner(t, log, lentStore, &borrower{}), newRunner(t, log, keptStore, &tally{})
	must(t, lent.RunToEnd(soon(t)))
	must(t, kept.RunToEnd(soon(t)))
	a, b := lent.Status(), kept.Status()
	if a.Applied != b.Applied || a.Voids != 2 || b.Voids != 2 || a.LastStamp != b.LastStamp || sum(t, lentStore) != sum(t, keptStore) {
		t.Errorf("lent %+v\nkept %+v", a, b)
	}
}

// TestSpanEndsWithTheTail: a tail that is over while a commit waits for more ends the commit, and then the run.
func TestSpanEndsWithTheTail(t *testing.T) {
	log := logOf(50)
	lost := &eventlog.OutOfRangeError{Topic: eventlog.EventsLink, Partition: 2, Want: 1}
	r := newRunner(t, breaker{log, lost}, runner.NewMemory(), &borrower{})
	wantAlarm(t, r.Run(soon(t)), 2, 1, events.NoBucket)
	if r.Status().Applied == 0 {
		t.Error("what came before was not committed")
	}
	r.Pause() // nothing is left locked
	r.Resume()
}

// breaker is a log whose tail gives one batch, says that there is much more, and is over.
type breaker struct {
	runner.Source
	err error
}

func (b breaker) NewTail(topic string, from map[int32]int64) (runner.Tail, error) {
	t, err := b.Source.NewTail(topic, from)
	return &breakingTail{Tail: boastingTail{t}, err: b.err}, err
}

type breakingTail struct {
	runner.Tail
	err   error
	given bool
}

func (t *breakingTail) Poll(ctx context.Context, most int) ([]eventlog.Batch, error) {
	if t.given {
		return nil, t.err
	}
	t.given = true
	return t.Tail.Poll(ctx, most)
}
