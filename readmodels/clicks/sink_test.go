package clicks

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ungrouped is a log that gives every sink all partitions, so that two can own the same.
type ungrouped struct {
	runner.ClickLog
	partitions []int32
	// append, if set, stands before every append of an intent.
	append func(do func() error) error
}

type noMembership struct{}

func (noMembership) Close() {}

func (u *ungrouped) Join(_ context.Context, _ string, topics []string, onAssigned, _ func(string, []int32)) (runner.ClickMembership, error) {
	onAssigned(topics[0], u.partitions)
	return noMembership{}, nil
}

type hookedAppender struct {
	runner.ClickAppender
	u *ungrouped
}

func (u *ungrouped) NewAppender(topic string) (runner.ClickAppender, error) {
	a, err := u.ClickLog.NewAppender(topic)
	return hookedAppender{a, u}, err
}

func (a hookedAppender) Append(ctx context.Context, partition int32, recs []eventlog.Record, expect int64) error {
	do := func() error { return a.ClickAppender.Append(ctx, partition, recs, expect) }
	if a.u.append == nil {
		return do()
	}
	return a.u.append(do)
}

// hookedStore is a store with something before every insert.
type hookedStore struct {
	*Store
	insert func(b *projections.ClickBatch, do func() error) error
}

func (h *hookedStore) Insert(ctx context.Context, b *projections.ClickBatch, token string) error {
	do := func() error { return h.Store.Insert(ctx, b, token) }
	if h.insert == nil {
		return do()
	}
	return h.insert(b, do)
}

func all(log *eventlog.Log, partitions int) *ungrouped {
	u := &ungrouped{ClickLog: runner.ClickLogOf(log)}
	for p := range partitions {
		u.partitions = append(u.partitions, int32(p))
	}
	return u
}

var errKilled = errors.New("killed here")

func TestSinkCountsOnceWhereverItIsKilled(t *testing.T) {
	log := newLog(t, 4)
	n := newNode(t, log, "n1")
	once := func(f func()) func() {
		var o sync.Once
		return func() { o.Do(f) }
	}
	steps := map[string]func(l *ungrouped, s *hookedStore, kill func()){
		"before the intent": func(l *ungrouped, _ *hookedStore, kill func()) {
			l.append = func(func() error) error { kill(); return errKilled }
		},
		"after the intent": func(l *ungrouped, _ *hookedStore, kill func()) {
			l.append = func(do func() error) error { defer kill(); return do() }
		},
		"the intent's answer is lost": func(l *ungrouped, _ *hookedStore, kill func()) {
			l.append = func(do func() error) error { _ = do(); kill(); return eventlog.ErrUnknownOutcome }
		},
		"before the insert": func(_ *ungrouped, s *hookedStore, kill func()) {
			s.insert = func(*projections.ClickBatch, func() error) error { kill(); return errKilled }
		},
		"the insert's answer is lost": func(_ *ungrouped, s *hookedStore, kill func()) {
			s.insert = func(_ *projections.ClickBatch, do func() error) error { _ = do(); kill(); return errKilled }
		},
		"after the insert": func(_ *ungrouped, s *hookedStore, kill func()) {
			s.insert = func(_ *projections.ClickBatch, do func() error) error { defer kill(); return do() }
		},
	}
	var sent uint64
	store := newStore(t)
	for name, set := range steps {
		t.Run(name, func(t *testing.T) {
			killed := make(chan struct{})
			l, s := all(log, 4), &hookedStore{Store: store}
			set(l, s, once(func() { close(killed) }))
			_, stop := startSink(t, l, s)
			n.send(1, n.block(1, 7, every(noon, time.Second, 20)...), n.block(1, 8, every(noon, time.Hour, 20)...))
			sent += 40
			<-killed
			stop()
			n.send(1, n.block(1, 7, noon))
			sent++
			_, stop = startSink(t, all(log, 4), store)
			awaitTables(t, store, sent)
			stop()
		})
	}
	if report, err := Reconcile(context.Background(), runner.ClickLogOf(log), store, Options{}); err != nil || !report.OK() || report.LogClicks != sent {
		t.Errorf("%+v %v", report, err)
	}
}

// Two sinks that both believe to be the writer, one of them frozen at random places for longer than the other needs to take
// over, under load.
func TestSinkZombies(t *testing.T) {
	long(t)
	log, store := newLog(t, 2), newStore(t)
	var frozen, foreign atomic.Int32
	for range 2 {
		l := all(log, 2)
		freeze := func() {
			if rand.IntN(4) == 0 {
				frozen.Add(1)
				time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
			}
		}
		l.append = func(do func() error) error {
			freeze()
			err := do()
			if errors.Is(err, eventlog.ErrForeignOffset) {
				foreign.Add(1)
			}
			freeze()
			return err
		}
		s := &hookedStore{Store: store, insert: func(_ *projections.ClickBatch, do func() error) error {
			freeze()
			defer freeze()
			return do()
		}}
		startSink(t, l, s)
	}
	n := newNode(t, log, "n1")
	var sent uint64
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n.send(0, n.block(0, 1, every(noon, time.Second, 5)...))
		n.send(1, n.block(1, 2, every(noon, time.Second, 5)...))
		sent += 10
	}
	awaitTables(t, store, sent)
	t.Logf("%d clicks, %d times frozen, %d intents of a writer that was not the only one", sent, frozen.Load(), foreign.Load())
	if foreign.Load() == 0 {
		t.Error("the sinks never met")
	}
}

func TestSinkEngineKilledUnderLoad(t *testing.T) {
	long(t)
	child := enginetest.Start(t, t.TempDir())
	store := storeAt(t, child.Addr(), "hoplog")
	log := newLog(t, 4)
	sink, _ := startSink(t, all(log, 4), store)
	n := newNode(t, log, "n1")
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	var sent uint64
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p := int32(i % 4)
			n.send(p, n.block(p, uint64(i%50), every(noon, time.Minute, 10)...))
			sent += 10
			time.Sleep(time.Millisecond)
		}
	})
	const kills = 4
	for range kills {
		time.Sleep(time.Duration(200+rand.IntN(800)) * time.Millisecond)
		await(t, "the engine lives", child.Ready)
		if err := syscall.Kill(child.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	load.Wait()
	await(t, "the engine lives", child.Ready)
	await(t, "the sink is done", func() bool {
		lag, err := sink.Lag(context.Background())
		return err == nil && lag == 0 && !slices.ContainsFunc(sink.Status().Partitions, func(p runner.ClickPartitionStatus) bool { return p.Waiting != nil })
	})
	awaitTables(t, store, sent)
	t.Logf("%d clicks, %d kills of the engine", sent, kills)
}

func TestSinkDropsRepeatsAndCountsGaps(t *testing.T) {
	log, store := newLog(t, 1), newStore(t)
	n := newNode(t, log, "n1")
	first, second := n.block(0, 1, every(noon, time.Second, 10)...), n.block(0, 1, every(noon, time.Second, 10)...)
	_, stop := startSink(t, all(log, 1), store)
	n.send(0, first, second, first)
	awaitTables(t, store, 20)
	stop()
	// Another sink knows from the sink topic what was seen.
	sink, _ := startSink(t, all(log, 1), store)
	lost := n.block(0, 1, every(noon, time.Second, 7)...)
	third := n.block(0, 1, every(noon, time.Second, 3)...)
	third.Clicks[1].Sequence++ // 29: one more is lost within the block
	third.Clicks[2].Sequence++
	n.send(0, second, third, lost)
	other := newNode(t, log, "n1") // another boot of the node begins at 1 again
	other.send(0, other.block(0, 1, noon))
	awaitTables(t, store, 24)
	got := sink.Status().Partitions[0]
	if got.Rows != 24 || got.Repeats != 10+10+7 || got.Gaps != 7+1 || got.LastInsert.IsZero() || got.Waiting != nil {
		t.Errorf("%+v", got)
	}
}

func TestSinkStopsAtWhatItCannotRead(t *testing.T) {
	log, store := newLog(t, 2), newStore(t)
	n := newNode(t, log, "n1")
	sink, _ := startSink(t, all(log, 2), store)
	n.send(0, n.block(0, 1, noon), n.block(0, 1, noon))
	if err := n.appender.Append(context.Background(), 0, []eventlog.Record{{Value: []byte("no block")}}, eventlog.AnyOffset); err != nil {
		t.Fatal(err)
	}
	n.send(0, n.block(0, 1, noon))
	await(t, "the sink stops", func() bool { return sink.Err() != nil })
	var alarm *events.Alarm
	if err := sink.Err(); !errors.As(err, &alarm) || alarm.Topic != eventlog.Clicks || alarm.Partition != 0 || alarm.Offset != 2 {
		t.Errorf("%v", err)
	}
	n.send(1, n.block(1, 1, noon))
	awaitTables(t, store, 3) // what came before, and the other partition
}

func TestSinkAlarms(t *testing.T) {
	intent := func(i *pb.SinkIntent) []byte {
		value, err := i.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, given := range map[string]struct {
		sink [][]byte
		want string // topic
	}{
		"position beyond the end":  {[][]byte{intent(&pb.SinkIntent{SchemaVersion: 1, From: 0, To: 9})}, eventlog.Clicks},
		"intents are missing":      {[][]byte{intent(&pb.SinkIntent{SchemaVersion: 1, From: 3, To: 9})}, eventlog.Sink},
		"newer intent":             {[][]byte{intent(&pb.SinkIntent{SchemaVersion: 2, From: 0, To: 1})}, eventlog.Sink},
		"intent of another":        {[][]byte{intent(&pb.SinkIntent{SchemaVersion: 1, Partition: 1, From: 0, To: 1})}, eventlog.Sink},
		"no intent":                {[][]byte{{0xff}}, eventlog.Sink},
		"the log says another sum": {[][]byte{intent(&pb.SinkIntent{SchemaVersion: 1, From: 0, To: 1, Rows: 7})}, eventlog.Clicks},
	} {
		t.Run(name, func(t *testing.T) {
			log, store := newLog(t, 1), newStore(t)
			n := newNode(t, log, "n1")
			n.send(0, n.block(0, 1, noon))
			a, err := log.NewAppender(eventlog.Sink)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for i, value := range given.sink {
				if err := a.Append(context.Background(), 0, []eventlog.Record{{Value: value}}, int64(i)); err != nil {
					t.Fatal(err)
				}
			}
			sink, _ := startSink(t, all(log, 1), store)
			await(t, "the sink stops", func() bool { return sink.Err() != nil })
			var alarm *events.Alarm
			if err := sink.Err(); !errors.As(err, &alarm) || alarm.Topic != given.want {
				t.Errorf("%v", err)
			}
			if got := store.tables(t); got.raw != 0 {
				t.Errorf("%d rows", got.raw)
			}
		})
	}
}

// A store that was thrown away is filled again from the log, in blocks of many old ranges.
func TestSinkFillsALostStoreAgain(t *testing.T) {
	log, store := newLog(t, 2), newStore(t)
	n := newNode(t, log, "n1")
	first := n.block(0, 1, every(noon, time.Minute, 10)...)
	_, stop := startSink(t, all(log, 2), store)
	var sent uint64
	for range 8 {
		n.send(0, n.block(0, 1, every(noon, time.Minute, 10)...), first)
		n.send(1, n.block(1, 1, noon))
		sent += 11
		time.Sleep(100 * time.Millisecond)
	}
	awaitTables(t, store, sent)
	lose := func() {
		if err := store.exec(context.Background(), "losing", "DROP DATABASE %s", store.cfg.Database); err != nil {
			t.Fatal(err)
		}
	}
	// While it runs, the sink notices with its next insert.
	lose()
	n.send(0, n.block(0, 2, noon))
	n.send(1, n.block(1, 2, noon))
	sent += 2
	awaitTables(t, store, sent)
	stop()
	lose()
	var blocks atomic.Int32
	startSink(t, all(log, 2), &hookedStore{Store: store, insert: func(_ *projections.ClickBatch, do func() error) error {
		blocks.Add(1)
		return do()
	}})
	awaitTables(t, store, sent)
	if got := blocks.Load(); got != 4 { // all closed ranges in one, and the open one, of two partitions
		t.Errorf("%d blocks", got)
	}
}

// The broker dies and comes back under load, and the sinks with it change places.
func TestSinkOnRealKafka(t *testing.T) {
	long(t)
	broker := realkafka.Start(t)
	log, store := logAt(t, broker.Addr(), 4), newStore(t)
	n := newNode(t, log, "n1")
	var sent uint64
	send := func() {
		for p := range int32(4) {
			n.send(p, n.block(p, 1, every(noon, time.Second, 10)...))
			sent += 10
		}
	}
	_, stop := startSink(t, runner.ClickLogOf(log), store)
	send()
	awaitTables(t, store, sent)
	send()
	stop()
	sink, _ := startSink(t, runner.ClickLogOf(log), store)
	awaitTables(t, store, sent)
	broker.Kill()
	broker.Restart()
	send()
	awaitTables(t, store, sent)
	if report := reconcile(t, log, store, Options{}); !report.OK() || report.LogClicks != sent || sink.Err() != nil {
		t.Errorf("%+v %v", report, sink.Err())
	}
}

// An old open range is not inserted by its token, which the store may have forgotten: the store is asked.
func TestSinkSettlesOldRanges(t *testing.T) {
	long(t)
	for name, damage := range map[string]string{
		"nothing is there":          "DROP DATABASE IF EXISTS %s",
		"everything is there":       "SELECT 1",
		"some rows are there":       "ALTER TABLE clicks_raw DELETE WHERE log_index > 3 SETTINGS mutations_sync = 2",
		"an aggregate is not there": "TRUNCATE TABLE clicks_hour",
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			log, store := newLog(t, 1), newStore(t)
			n := newNode(t, log, "n1")
			block := n.block(0, 1, every(noon, time.Minute, 10)...)
			n.send(0, block)
			batch := batchOf(t, 0, 0, block)
			intent := batch.Intent()
			intent.TimeUs = time.Now().Add(-time.Hour).UnixMicro()
			value, err := intent.MarshalVT()
			if err != nil {
				t.Fatal(err)
			}
			a, err := log.NewAppender(eventlog.Sink)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if err := a.Append(ctx, 0, []eventlog.Record{{Value: value}}, 0); err != nil {
				t.Fatal(err)
			}
			insert(t, store, batch, "forgotten")
			if err := store.exec(ctx, "damaging", "%s", strings.ReplaceAll(damage, "%s", store.cfg.Database)); err != nil {
				t.Fatal(err)
			}
			var inserts atomic.Int32
			startSink(t, all(log, 1), &hookedStore{Store: store, insert: func(_ *projections.ClickBatch, do func() error) error {
				inserts.Add(1)
				return do()
			}})
			awaitTables(t, store, 10)
			if want := map[bool]int32{true: 1}[name == "nothing is there"]; inserts.Load() != want {
				t.Errorf("%d inserts by the token, want %d", inserts.Load(), want)
			}
		})
	}
}

func TestHoldKeepsTheSinkWaiting(t *testing.T) {
	long(t)
	log, store := newLog(t, 1), newStore(t)
	n := newNode(t, log, "n1")
	sink, _ := startSink(t, all(log, 1), store)
	n.send(0, n.block(0, 1, noon))
	awaitTables(t, store, 1)
	cfg := runner.ClickSinkConfig{Log: runner.ClickLogOf(log), Store: store, Logger: quiet()}
	err := runner.HoldClicks(context.Background(), cfg, 0, func(ctx context.Context, hold *runner.ClickHold) error {
		n.send(0, n.block(0, 1, noon))
		time.Sleep(time.Second)
		if got := store.tables(t); got != same(1) {
			t.Errorf("the sink went on: %+v", got)
		}
		return hold.Do(ctx, func(context.Context) error { return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitTables(t, store, 2)
	if got := sink.Status().Partitions[0]; got.Rows != 2 {
		t.Errorf("%+v", got)
	}
}

// Members of the group share the partitions, and a member that leaves loses nothing.
func TestSinksShareThePartitions(t *testing.T) {
	const partitions = 4
	log, store := newLog(t, partitions), newStore(t)
	a, stopA := startSink(t, runner.ClickLogOf(log), store)
	b, _ := startSink(t, runner.ClickLogOf(log), store)
	owned := func(s *runner.ClickSink) int { return len(s.Status().Partitions) }
	await(t, "two partitions each", func() bool { return owned(a) == 2 && owned(b) == 2 })
	n := newNode(t, log, "n1")
	var sent uint64
	for i := range 100 {
		p := int32(i % partitions)
		n.send(p, n.block(p, 1, every(noon, time.Second, 10)...))
		sent += 10
		if i == 50 {
			stopA()
		}
	}
	await(t, "all partitions are the other's", func() bool { return owned(b) == partitions })
	awaitTables(t, store, sent)
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}
