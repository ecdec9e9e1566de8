package clicks

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// TestMain lets this binary be the engine's process too. Tests that do not kill the engine share one, each with a database
// of its own.
func TestMain(m *testing.M) {
	if engine.IsChild() {
		os.Exit(engine.Main())
	}
	code := m.Run()
	if shared.child != nil {
		if err := shared.child.Stop(context.Background()); err != nil {
			fmt.Println("stopping the shared engine:", err)
		}
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

var shared struct {
	once  sync.Once
	child *engine.Child
	dir   string
	err   error
}

func sharedEngine(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "hoplog-clicks-"); shared.err != nil {
			return
		}
		o := enginetest.Options(t, shared.dir)
		o.Log = quiet()
		shared.child, shared.err = engine.Start(context.Background(), o)
	})
	enginetest.Library(t) // skips
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.child.Addr()
}

var databases atomic.Int32

// newStore opens a prepared store with an empty database of its own.
func newStore(t testing.TB) *Store {
	t.Helper()
	return storeAt(t, sharedEngine(t), fmt.Sprintf("test_%d", databases.Add(1)))
}

func storeAt(t testing.TB, addr, database string) *Store {
	t.Helper()
	s, err := Open(Config{Addr: addr, Database: database, Timeout: 20 * time.Second}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Prepare(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// long marks a test that takes seconds.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED with -short: it takes seconds")
	}
}

func quiet() *slog.Logger {
	if os.Getenv("HOPLOG_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// newLog starts an embedded broker with the topics.
func newLog(t testing.TB, partitions int) *eventlog.Log {
	t.Helper()
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return logAt(t, b.Addr(), partitions)
}

func logAt(t testing.TB, addr string, partitions int) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{addr}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	if err := log.EnsureTopics(context.Background(), eventlog.TopicPlan{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	return log
}

// node is a redirect node that writes blocks of clicks.
type node struct {
	t        testing.TB
	appender *eventlog.Appender
	name     string
	boot     []byte
	sequence map[int32]uint64
	sent     map[int32][]*pb.ClickBlock
}

func newNode(t testing.TB, log *eventlog.Log, name string) *node {
	t.Helper()
	boot := make([]byte, 16)
	_, _ = rand.Read(boot)
	n := &node{t: t, name: name, boot: boot, sequence: map[int32]uint64{}, sent: map[int32][]*pb.ClickBlock{}}
	if log != nil {
		var err error
		if n.appender, err = log.NewAppender(eventlog.Clicks); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.appender.Close)
	}
	return n
}

// block makes the next block of a partition: one click per time, on this link.
func (n *node) block(partition int32, link uint64, times ...time.Time) *pb.ClickBlock {
	b := &pb.ClickBlock{SchemaVersion: 1, Node: n.name, Boot: n.boot, Partition: uint32(partition), Region: "eu"}
	for i, at := range times {
		n.sequence[partition]++
		b.Clicks = append(b.Clicks, &pb.Click{Sequence: n.sequence[partition], LinkId: link, Namespace: "s.example", Code: fmt.Sprintf("c%d", link),
			Version: 1, TimeUs: at.UnixMicro(), Status: 302, Country: "DE", RegionCode: "DE-BE", ReferrerHost: "news.example", Device: "mobile",
			Os: "Android", Browser: "Firefox", UtmSource: "mail", Visitor: uint64(i%3) + link*1000, Ip: []byte{192, 0, 2, 0}})
	}
	n.sent[partition] = append(n.sent[partition], b)
	return b
}

func (n *node) send(partition int32, blocks ...*pb.ClickBlock) {
	n.t.Helper()
	recs := make([]eventlog.Record, len(blocks))
	for i, b := range blocks {
		recs[i].Value = encode(n.t, b)
	}
	if err := n.appender.Append(context.Background(), partition, recs, eventlog.AnyOffset); err != nil {
		n.t.Fatal(err)
	}
}

func encode(t testing.TB, b *pb.ClickBlock) []byte {
	t.Helper()
	value, err := b.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// noon is about the middle of a day.
var noon = time.Date(2026, 10, 5, 12, 30, 15, 123_456_000, time.UTC)

func every(from time.Time, step time.Duration, n int) []time.Time {
	out := make([]time.Time, n)
	for i := range out {
		out[i] = from.Add(time.Duration(i) * step)
	}
	return out
}

// startSink runs a sink until the returned function is called or the test ends.
func startSink(t testing.TB, log runner.ClickLog, store runner.ClickStore) (*runner.ClickSink, func()) {
	t.Helper()
	sink := runner.NewClickSink(runner.ClickSinkConfig{Log: log, Store: store, Logger: quiet(), Gather: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sink.Run(ctx)
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return sink, stop
}

// tables are the sums of all tables: rows of raw, clicks of each aggregate, and the distinct places in the log.
type tables struct{ raw, distinct, minute, hour, day uint64 }

func (s *Store) tables(t testing.TB) tables {
	t.Helper()
	out, err := s.tablesNow()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *Store) tablesNow() (out tables, err error) {
	const all = "sum(human) + sum(bot) + sum(preview) + sum(probe)"
	query := "SELECT (SELECT count() FROM clicks_raw), (SELECT uniqExact(log_partition, log_offset, log_index) FROM clicks_raw), " +
		"(SELECT " + all + " FROM clicks_minute), (SELECT " + all + " FROM clicks_hour), (SELECT " + all + " FROM clicks_day)"
	err = s.conn.QueryRow(context.Background(), query).Scan(&out.raw, &out.distinct, &out.minute, &out.hour, &out.day)
	return out, err
}

func same(n uint64) tables { return tables{n, n, n, n, n} }

// patient is how long that may take which is to happen: the machine may be busy.
const patient = 2 * time.Minute

// await asks until the condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patient, what)
		}
	}
}

func awaitTables(t testing.TB, s *Store, want uint64) {
	t.Helper()
	end := time.Now().Add(patient)
	var got tables
	var err error
	for time.Now().Before(end) {
		if got, err = s.tablesNow(); got == same(want) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("tables hold %+v, want %d everywhere, %v", got, want, err)
}
