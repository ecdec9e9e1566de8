package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

// BenchmarkInsert sends blocks of 20,000 clicks of 16 columns, with two materialised views and deduplication, the way
// the click sink does. The client's share of the time is in it.
func BenchmarkInsert(b *testing.B) {
	c := enginetest.Start(b, b.TempDir())
	conn := dial(b, c.Addr())
	for _, ddl := range []string{
		`CREATE TABLE raw (partition UInt16, offset UInt64, idx UInt32, link UInt64, namespace LowCardinality(String), code String, version UInt32,
			at DateTime64(6, 'UTC'), region LowCardinality(String), node LowCardinality(String), status UInt16, class Enum8('human' = 1, 'bot' = 2),
			country LowCardinality(String), referrer String, device LowCardinality(String), visitor UInt64)
			ENGINE = MergeTree ORDER BY (link, at) SETTINGS non_replicated_deduplication_window = 10000`,
		`CREATE TABLE minute (link UInt64, start DateTime('UTC'), class Enum8('human' = 1, 'bot' = 2), clicks UInt64)
			ENGINE = SummingMergeTree ORDER BY (link, start, class) SETTINGS non_replicated_deduplication_window = 10000`,
		`CREATE MATERIALIZED VIEW minute_mv TO minute AS SELECT link, toStartOfMinute(at) AS start, class, count() AS clicks FROM raw GROUP BY link, start, class`,
		`CREATE TABLE day (link UInt64, start Date, clicks UInt64) ENGINE = SummingMergeTree ORDER BY (link, start)
			SETTINGS non_replicated_deduplication_window = 10000`,
		`CREATE MATERIALIZED VIEW day_mv TO day AS SELECT link, toDate(at) AS start, count() AS clicks FROM raw GROUP BY link, start`,
	} {
		exec(b, conn, ddl)
	}
	const rows = 20000
	start := time.Now()
	n := uint64(0)
	for b.Loop() {
		ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{
			"insert_deduplication_token": fmt.Sprint("0:", n), "deduplicate_blocks_in_dependent_materialized_views": 1, "async_insert": 0,
		}))
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO raw")
		if err != nil {
			b.Fatal(err)
		}
		for i := range uint64(rows) {
			err := batch.Append(uint16(0), n, uint32(i), i%5000, "s.example", "7Fk3aQx", uint32(1), start.Add(time.Duration(n)*time.Millisecond),
				"eu", "node-1", uint16(302), "human", "DE", "news.example", "mobile", i*7919)
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if err := batch.Send(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "rows/s")
	if got := count(b, conn, "SELECT count() FROM raw"); got != n {
		b.Errorf("%d rows of %d", got, n)
	}
}

// BenchmarkQuery is the cost of one small request.
func BenchmarkQuery(b *testing.B) {
	c := enginetest.Start(b, b.TempDir())
	conn := dial(b, c.Addr())
	for b.Loop() {
		if n := count(b, conn, "SELECT toUInt64(1)"); n != 1 {
			b.Fatal(n)
		}
	}
}

// BenchmarkSelect reads a million rows by clickhouse-go.
func BenchmarkSelect(b *testing.B) {
	c := enginetest.Start(b, b.TempDir())
	conn := dial(b, c.Addr())
	const rows = 1000000
	for b.Loop() {
		got, err := conn.Query(context.Background(), "SELECT number, toString(number % 1000), toLowCardinality(toString(number % 10)) FROM numbers(1000000)")
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for got.Next() {
			n++
		}
		if err := errors.Join(got.Err(), got.Close()); err != nil || n != rows {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkStart is a start on a directory that exists, library in the page cache, with the stop.
func BenchmarkStart(b *testing.B) {
	o := enginetest.Options(b, b.TempDir())
	for b.Loop() {
		c, err := engine.Start(context.Background(), o)
		if err == nil {
			b.StopTimer()
			err = c.Stop(context.Background())
			b.StartTimer()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
