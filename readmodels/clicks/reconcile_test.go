package clicks

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

func reconcile(t *testing.T, log *eventlog.Log, s *Store, o Options) *Report {
	t.Helper()
	r, err := Reconcile(context.Background(), runner.ClickLogOf(log), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counted is a log with 3 partitions and its clicks in a store: 90 of them, of 2 links, with repeats and 9 probes.
func counted(t *testing.T) (*eventlog.Log, *Store, *node) {
	t.Helper()
	log, s := newLog(t, 4), newStore(t)
	n := newNode(t, log, "n1")
	for p := range int32(3) {
		a, b := n.block(p, 1, every(noon, time.Minute, 20)...), n.block(p, 2, every(noon, 7*time.Hour, 10)...)
		for i, class := range []pb.ClickClass{pb.ClickClass_BOT, pb.ClickClass_PREVIEW, pb.ClickClass_PROBE, pb.ClickClass_PROBE, pb.ClickClass_PROBE} {
			a.Clicks[i].Class = class
		}
		n.send(p, a, b, a)
	}
	_, stop := startSink(t, all(log, 4), s)
	awaitTables(t, s, 90)
	stop()
	return log, s, n
}

func TestReconcileAgrees(t *testing.T) {
	log, s, _ := counted(t)
	r := reconcile(t, log, s, Options{})
	if !r.OK() || r.LogClicks != 81 || r.RawClicks != 81 || r.AggregateClicks != 81 || len(r.Offsets) != 4 || r.Offsets[2] != (Offsets{2, 0, 3}) {
		t.Errorf("%+v", r)
	}
	shown, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"from":null`, `"to":null`, `"offsets":[{"partition":0,"from":0,"to":3}`, `"log_clicks":81`, `"raw_clicks":81`, `"aggregate_clicks":81`,
		`"missing":0`, `"duplicated":0`, `"differences":[]`} {
		if !strings.Contains(string(shown), field) {
			t.Errorf("%s has no %s", shown, field)
		}
	}
	r = reconcile(t, log, s, Options{From: noon, To: noon.Add(10*time.Minute + 30*time.Second)})
	if !r.OK() || r.LogClicks != 3*(10-3+1) || r.RawClicks != r.LogClicks || r.AggregateClicks != r.LogClicks || r.From.Second() != 0 {
		t.Errorf("ten minutes: %+v", r)
	}
}

func TestReconcileFindsAndRepairs(t *testing.T) {
	long(t)
	log, s, n := counted(t)
	ctx := context.Background()
	// A sink that runs on, and clicks that come in, while everything is damaged, compared and repaired. What is damaged does
	// not lie in the last range: the sink would mend that one itself when it starts again.
	sink, _ := startSink(t, all(log, 4), s)
	for p := range int32(3) {
		n.send(p, n.block(p, 1, noon))
	}
	awaitTables(t, s, 93)
	const synced = " SETTINGS mutations_sync = 2"
	for _, damage := range []string{
		"ALTER TABLE clicks_raw DELETE WHERE log_partition = 0 AND log_offset = 0 AND log_index = 7" + synced,
		"ALTER TABLE clicks_raw DELETE WHERE log_partition = 2" + synced,
		"INSERT INTO clicks_raw SELECT * FROM clicks_raw WHERE log_partition = 1 AND log_offset = 0 AND log_index = 8",
		"ALTER TABLE clicks_raw UPDATE visitor = 5 WHERE log_partition = 1 AND log_offset = 1 AND log_index = 2" + synced,
		"INSERT INTO clicks_raw (link_id, time, log_partition, log_offset, log_index) VALUES (9, '2024-02-03 04:05:06', 1, 2, 99)",
		"INSERT INTO clicks_minute (link_id, bucket, log_partition, human) VALUES (2, '2026-10-05 12:30:00', 1, 1)",
		"ALTER TABLE clicks_hour DELETE WHERE log_partition = 1 AND link_id = 2" + synced,
		"ALTER TABLE clicks_day UPDATE visitors = arrayReduce('uniqExactState', emptyArrayUInt64()) WHERE log_partition = 0" + synced,
		"INSERT INTO clicks_minute (link_id, bucket, log_partition, human) VALUES (1, '2026-10-05 12:37:00', 0, -1), (2, '2026-10-05 12:37:00', 0, 1)",
	} {
		if err := s.exec(ctx, "damaging", "%s", damage); err != nil {
			t.Fatal(err)
		}
	}
	found := reconcile(t, log, s, Options{})
	if found.OK() || found.Missing != 1+31 || found.Duplicated != 1 {
		t.Errorf("found %+v", found)
	}
	want := []Difference{
		{Kind: DifferRaw, Partition: 0, FromOffset: 0, ToOffset: 1}, {Kind: DifferRaw, Partition: 2, FromOffset: 0, ToOffset: 2},
		{Kind: DifferRaw, Partition: 2, FromOffset: 3, ToOffset: 4}, {Kind: DifferRaw, Partition: 1, FromOffset: 0, ToOffset: 3},
		{Kind: DifferLog, Partition: 1, Table: minutes.table}, {Kind: DifferAggregate, Partition: 1, Table: hours.table, LinkID: 2},
		{Kind: DifferAggregate, Partition: 0, Table: days.table, LinkID: 1}, {Kind: DifferAggregate, Partition: 0, Table: minutes.table, LinkID: 2},
	}
	for _, w := range want {
		if !slices.ContainsFunc(found.Differences, func(d Difference) bool {
			return d.Kind == w.Kind && d.Partition == w.Partition && d.FromOffset == w.FromOffset && d.ToOffset == w.ToOffset && d.Table == w.Table && (w.LinkID == 0 || d.LinkID == w.LinkID)
		}) {
			t.Errorf("not found: %+v", w)
		}
	}
	n.send(0, n.block(0, 1, noon))
	n.send(1, n.block(1, 1, noon))
	repaired := reconcile(t, log, s, Options{Repair: true})
	if !repaired.OK() || len(repaired.Differences) < len(want) || repaired.Missing != 0 || repaired.RawClicks != repaired.LogClicks || repaired.AggregateClicks != repaired.LogClicks {
		t.Errorf("repaired %+v", repaired)
	}
	if again := reconcile(t, log, s, Options{}); len(again.Differences) > 0 || again.LogClicks != repaired.LogClicks {
		t.Errorf("afterwards %+v", again)
	}
	n.send(1, n.block(1, 1, noon))
	await(t, "the sink goes on", func() bool { return s.tables(t) == same(96) })
	if err := sink.Err(); err != nil {
		t.Error(err)
	}
}

func TestReconcileRebuildsALostDatabase(t *testing.T) {
	long(t)
	log, s, _ := counted(t)
	for _, table := range []string{"clicks_raw", "clicks_minute", "clicks_hour", "clicks_day"} {
		if err := s.exec(context.Background(), "losing", "TRUNCATE TABLE %s", table); err != nil {
			t.Fatal(err)
		}
	}
	r := reconcile(t, log, s, Options{Repair: true})
	if !r.OK() || r.RawClicks != 81 || s.tables(t) != same(90) {
		t.Errorf("%+v %+v", r, s.tables(t))
	}
}

func TestReconcileSaysThatTheSinkIsBehind(t *testing.T) {
	log, s, n := counted(t)
	n.send(2, n.block(2, 1, noon))
	r := reconcile(t, log, s, Options{Wait: 300 * time.Millisecond, Progress: func(string, int64, int64) {}})
	if r.OK() || r.Differences[0].Kind != DifferNotReached || r.Differences[0].Partition != 2 || r.Differences[0].FromOffset != 3 || r.Missing != 1 {
		t.Errorf("%+v", r)
	}
}

func TestReconcileUnreadable(t *testing.T) {
	log, s, n := counted(t)
	if err := n.appender.Append(context.Background(), 0, []eventlog.Record{{Value: []byte("?")}}, eventlog.AnyOffset); err != nil {
		t.Fatal(err)
	}
	r := reconcile(t, log, s, Options{Wait: time.Millisecond})
	kinds := map[string]bool{}
	for _, d := range r.Differences {
		kinds[d.Kind] = true
	}
	if !kinds[DifferUnreadable] || r.LogClicks != 81 || r.RawClicks != 81 || r.AggregateClicks != 81 {
		t.Errorf("%+v", r)
	}
}

// The first clicks have expired: what repeats them must not be counted as new.
func TestReconcileAfterExpiry(t *testing.T) {
	log, s, n := counted(t)
	_, stop := startSink(t, all(log, 4), s)
	n.send(0, n.sent[0][0], n.block(0, 1, noon)) // a late repeat of what has expired by now, and a new click
	awaitTables(t, s, 91)
	stop()
	r, err := Reconcile(context.Background(), trimmed{runner.ClickLogOf(log)}, s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Offsets[0] != (Offsets{0, 3, 5}) || r.LogClicks != 1+54 || r.RawClicks != r.LogClicks || r.AggregateClicks != r.LogClicks {
		t.Errorf("%+v", r)
	}
}

// trimmed is a log whose partition 0 has lost its first two records.
type trimmed struct{ runner.ClickLog }

func (l trimmed) Starts(ctx context.Context, topic string) ([]int64, error) {
	starts, err := l.ClickLog.Starts(ctx, topic)
	if err == nil && topic == eventlog.Clicks {
		starts[0] = 2
	}
	return starts, err
}
