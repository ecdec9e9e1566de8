package clicks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// batchOf folds blocks as consecutive records from an offset.
func batchOf(t testing.TB, partition int32, from int64, blocks ...*pb.ClickBlock) *projections.ClickBatch {
	t.Helper()
	fold := projections.NewClicks(partition)
	b := fold.Begin(from)
	for i, block := range blocks {
		if err := fold.Add(b, from+int64(i), encode(t, block)); err != nil {
			t.Fatal(err)
		}
	}
	return fold.End(b)
}

func insert(t testing.TB, s *Store, b *projections.ClickBatch, token string) {
	t.Helper()
	if err := s.Insert(context.Background(), b, token); err != nil {
		t.Fatal(err)
	}
}

func TestInsertKeepsEveryField(t *testing.T) {
	s, n := newStore(t), newNode(t, nil, "n1")
	block := n.block(3, 7, noon)
	c := block.Clicks[0]
	c.Class, c.Channel, c.Visitor, c.Version, c.UtmTerm, c.UtmContent, c.UtmMedium, c.UtmCampaign = pb.ClickClass_PREVIEW, pb.Channel_QR, 1<<63+1, 9, "t", "c", "m", "Ümlaut'"
	c.Ip = append([]byte{0x20, 1, 0xd, 0xb8, 0, 1}, make([]byte, 10)...)
	insert(t, s, batchOf(t, 3, 41, block), "a")
	var got string
	query := "SELECT toString(tuple(*)) FROM (SELECT * EXCEPT boot, hex(boot) FROM clicks_raw)"
	if err := s.conn.QueryRow(context.Background(), query).Scan(&got); err != nil {
		t.Fatal(err)
	}
	want := "(7,'2026-10-05 12:30:15.123456','preview',9223372036854775809,'s.example','c7',9,302,'qr','DE','DE-BE','news.example','mobile','Android','Firefox'," +
		`'mail','m','Ümlaut\'','t','c','2001:db8:1::','eu','n1',3,1,3,41,0,` + fmt.Sprintf("'%X')", n.boot)
	if got != want {
		t.Errorf("row\n%s\nwant\n%s", got, want)
	}
}

func TestRepeatedInsertCountsOnce(t *testing.T) {
	s, n := newStore(t), newNode(t, nil, "n1")
	ctx := context.Background()
	b := batchOf(t, 0, 0, n.block(0, 1, every(noon.AddDate(0, -7, 0), 24*time.Hour, 300)...)) // eleven months: as many parts
	insert(t, s, b, "a")
	insert(t, s, b, "a")
	if got := s.tables(t); got != same(300) {
		t.Errorf("after a repeat: %+v", got)
	}

	t.Run("equal rows under another token are other clicks", func(t *testing.T) {
		insert(t, s, b, "b")
		if got := s.tables(t); got != (tables{600, 300, 600, 600, 600}) {
			t.Errorf("%+v", got)
		}
	})

	t.Run("a try that was cut between raw rows and aggregates is completed", func(t *testing.T) {
		s := newStore(t)
		for _, statement := range []string{
			"CREATE TABLE trap (x UInt8) ENGINE = MergeTree ORDER BY x",
			"CREATE MATERIALIZED VIEW clicks_to_i TO trap AS SELECT throwIf(1) AS x FROM clicks_raw",
		} {
			if err := s.exec(ctx, "setting the trap", "%s", statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Insert(ctx, b, "a"); err == nil {
			t.Fatal("the trap did not spring")
		}
		if got := s.tables(t); got == same(300) {
			t.Fatalf("nothing was cut: %+v", got)
		}
		if err := s.exec(ctx, "removing the trap", "DROP TABLE clicks_to_i"); err != nil {
			t.Fatal(err)
		}
		insert(t, s, b, "a")
		if got := s.tables(t); got != same(300) {
			t.Errorf("%+v", got)
		}
	})
}

// A block with more keys than ClickHouse puts into one block by default must stay one block all the way.
func TestLargeInsertRepeats(t *testing.T) {
	long(t)
	s, n := newStore(t), newNode(t, nil, "n1")
	const rows = 150_000
	block := n.block(0, 0, every(noon, 3*time.Millisecond, rows)...)
	for i, c := range block.Clicks {
		c.LinkId = uint64(i)
	}
	b := batchOf(t, 0, 0, block)
	began := time.Now()
	insert(t, s, b, "a")
	t.Logf("%d rows of as many links in %s", rows, time.Since(began))
	insert(t, s, b, "a")
	var blocks uint64
	query := "SELECT max(n) FROM (SELECT uniqExact(name) AS n FROM system.parts WHERE database = currentDatabase() AND table LIKE 'clicks_%' GROUP BY table)"
	if err := s.conn.QueryRow(context.Background(), query).Scan(&blocks); err != nil || blocks != 1 {
		t.Errorf("a table got %d blocks, %v", blocks, err)
	}
	if got := s.tables(t); got != same(rows) {
		t.Errorf("%+v", got)
	}
}

func TestCheckAndMend(t *testing.T) {
	long(t)
	ctx := context.Background()
	s, n := newStore(t), newNode(t, nil, "n1")
	b := batchOf(t, 2, 10, n.block(2, 5, every(noon, time.Minute, 100)...), n.block(2, 6, every(noon, time.Hour, 100)...))
	other := batchOf(t, 1, 10, newNode(t, nil, "n2").block(1, 5, every(noon, time.Minute, 50)...))
	insert(t, s, other, "other")
	check := func(want runner.ClickState) {
		t.Helper()
		if got, err := s.Check(ctx, b); err != nil || got != want {
			t.Fatalf("state %v, %v, want %v", got, err, want)
		}
	}
	exec := func(statement string) {
		t.Helper()
		if err := s.exec(ctx, "damaging", "%s", statement); err != nil {
			t.Fatal(err)
		}
	}
	check(runner.ClicksMissing)
	insert(t, s, b, "a")
	check(runner.ClicksComplete)
	for _, damage := range []string{
		"ALTER TABLE clicks_minute DELETE WHERE link_id = 6 SETTINGS mutations_sync = 2",
		"INSERT INTO clicks_hour (link_id, bucket, log_partition, bot) VALUES (5, '2026-10-05 12:00:00', 2, 3)",
		"INSERT INTO clicks_day (link_id, bucket, log_partition, human, visitors) SELECT 5, toDateTime('2026-10-05 00:00:00', 'UTC'), 2, 0, uniqExactState(toUInt64(77))",
	} {
		exec(damage)
		check(runner.ClicksMiscounted)
		if err := s.Rebuild(ctx, b); err != nil {
			t.Fatal(err)
		}
		check(runner.ClicksComplete)
	}
	if err := s.Rebuild(ctx, b); err != nil { // the same block as before: not a repeat
		t.Fatal(err)
	}
	check(runner.ClicksComplete)
	for _, damage := range []string{
		"ALTER TABLE clicks_raw DELETE WHERE log_partition = 2 AND log_offset = 11 AND log_index % 7 = 3 SETTINGS mutations_sync = 2",
		"INSERT INTO clicks_raw SELECT * FROM clicks_raw WHERE log_partition = 2 AND log_index = 4 SETTINGS insert_deduplicate = 0",
		"ALTER TABLE clicks_raw UPDATE visitor = 1 WHERE log_partition = 2 AND log_index = 4 SETTINGS mutations_sync = 2",
		"INSERT INTO clicks_raw (link_id, time, log_partition, log_offset, log_index) VALUES (99, '2020-01-01 00:00:00', 2, 10, 5000)",
	} {
		exec(damage)
		check(runner.ClicksDamaged)
		if err := s.Replace(ctx, b); err != nil {
			t.Fatal(err)
		}
		check(runner.ClicksComplete)
		if got := s.tables(t); got != same(250) {
			t.Fatalf("after %s: %+v", damage, got)
		}
	}
	if wrong, err := s.wrongAggregates(ctx, scopeOf(other)); err != nil || wrong != 0 {
		t.Errorf("the other partition: %d wrong, %v", wrong, err)
	}
}

func TestPrepare(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	again := storeAt(t, s.cfg.Addr, s.cfg.Database)
	if err := again.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	var applied uint64
	if err := s.conn.QueryRow(ctx, "SELECT count() FROM schema_migrations").Scan(&applied); err != nil || applied != 2 {
		t.Errorf("%d migrations noted, %v", applied, err)
	}

	t.Run("half of a migration is completed", func(t *testing.T) {
		half := newStore(t)
		for _, statement := range []string{"DROP TABLE clicks_to_day", "DROP TABLE clicks_day", "TRUNCATE TABLE schema_migrations"} {
			if err := half.exec(ctx, "damaging", "%s", statement); err != nil {
				t.Fatal(err)
			}
		}
		insertAfter := storeAt(t, half.cfg.Addr, half.cfg.Database)
		insert(t, insertAfter, batchOf(t, 0, 0, newNode(t, nil, "n").block(0, 1, noon)), "a")
		if got := insertAfter.tables(t); got != same(1) {
			t.Errorf("%+v", got)
		}
	})

	t.Run("a newer schema is refused", func(t *testing.T) {
		if err := s.exec(ctx, "noting", "INSERT INTO schema_migrations (version, name) VALUES (9999, 'later')"); err != nil {
			t.Fatal(err)
		}
		if err := s.Prepare(ctx); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("%v", err)
		}
	})

	t.Run("numbers have no holes", func(t *testing.T) {
		_, err := migrations(fstest.MapFS{"clickhouse/0002_x.sql": {Data: []byte("SELECT 1;\n")}})
		if err == nil {
			t.Error("accepted")
		}
	})

	t.Run("nothing but the product's settings names the windows", func(t *testing.T) {
		var without uint64
		query := "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name LIKE 'clicks_%' AND engine LIKE '%MergeTree' " +
			"AND create_table_query NOT LIKE '%non_replicated_deduplication_window = 10000%'"
		if err := s.conn.QueryRow(ctx, query).Scan(&without); err != nil || without != 0 {
			t.Errorf("%d tables without an explicit deduplication window, %v", without, err)
		}
	})
}

func TestUnavailable(t *testing.T) {
	s, err := Open(Config{Addr: "127.0.0.1:1", Password: "s3cret"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx := context.Background()
	_, statsErr := s.Stats(ctx, Query{LinkID: 1, From: noon, To: noon.Add(time.Hour), Interval: Hour})
	_, totalsErr := s.Totals(ctx, []uint64{1})
	_, freshErr := s.Freshness(ctx, NewWatermark(func(context.Context) ([]int64, error) { return []int64{0}, nil }, quiet()))
	for _, err := range []error{statsErr, totalsErr, freshErr, s.Prepare(ctx)} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v is not ErrUnavailable", err)
		}
	}
	if shown := fmt.Sprintf("%v %+v %#v", s.cfg, s.cfg, s.cfg); strings.Contains(shown, "s3cret") {
		t.Errorf("the password is shown: %s", shown)
	}
}

func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8123": "http 127.0.0.1:8123", "http://ch:8123/": "http ch:8123", "https://ch:8443": "http ch:8443 tls", "clickhouse://ch:9000": "native ch:9000",
		"ch": "", "ftp://ch:1": "", "http://user:pass@ch:8123": "", "http://ch:8123/path": "",
	} {
		protocol, host, secure, err := parseAddr(addr)
		got := protocol.String() + " " + host
		if secure {
			got += " tls"
		}
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q %v, want %q", addr, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
