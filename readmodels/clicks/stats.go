package clicks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Stats answers a query: a *QueryError when it cannot be answered as it is, ErrUnavailable when ClickHouse cannot.
func (s *Store) Stats(ctx context.Context, q Query) (*Stats, error) {
	starts, err := q.check()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	out := &Stats{Series: make([]Bucket, len(starts)), By: map[string][]Value{}}
	for i, start := range starts {
		out.Series[i].Start = start
	}
	if err := s.series(ctx, q, out); err != nil {
		return nil, err
	}
	if out.Total.Human > 0 {
		if out.UniqueVisitors, err = s.uniqueVisitors(ctx, q); err != nil {
			return nil, err
		}
	}
	for _, name := range q.By {
		if out.By[name], err = s.breakdown(ctx, q, dimensions[name]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// span is [from, to) in microseconds of Unix time.
type span struct{ from, to int64 }

func (q *Query) span() span { return span{q.From.UnixMicro(), q.To.UnixMicro()} }

// split cuts a span into a middle of whole units of an aggregate, and what is left at both ends for the raw rows.
func (s span) split(seconds int64) (head, middle, tail span) {
	unit := seconds * int64(time.Second/time.Microsecond)
	from, to := ceil(s.from, unit), s.to-s.to%unit
	if from >= to {
		return s, span{}, span{}
	}
	return span{s.from, from}, span{from, to}, span{to, s.to}
}

func ceil(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

func (s span) empty() bool { return s.from >= s.to }

func rawCondition(spans ...span) string {
	var parts []string
	for _, s := range spans {
		if !s.empty() {
			parts = append(parts, fmt.Sprintf("(time >= %s AND time < %s)", microseconds(time.UnixMicro(s.from)), microseconds(time.UnixMicro(s.to))))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

func (s span) bucketCondition() string {
	return fmt.Sprintf("bucket >= toDateTime(%d, 'UTC') AND bucket < toDateTime(%d, 'UTC')", s.from/1e6, s.to/1e6)
}

// coarsest is the longest aggregate whose units no bucket cuts; without one, only raw rows will do.
func coarsest(starts []Bucket) *grain {
	for _, g := range []*grain{&days, &hours, &minutes} {
		fits := true
		for _, b := range starts[1:] {
			fits = fits && b.Start.Unix()%g.seconds == 0
		}
		if fits {
			return g
		}
	}
	return nil
}

// series fills the counts of every bucket and the total. Whole units come from the longest aggregate that fits, the ends of
// the range from raw rows.
func (s *Store) series(ctx context.Context, q Query, out *Stats) error {
	index := make(map[int64]int, len(out.Series))
	bounds := make([]int64, len(out.Series))
	for i, b := range out.Series {
		bounds[i] = b.Start.Unix()
		index[bounds[i]] = i
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_query_size": 1 << 20}))
	return s.each(ctx, "counting clicks", q.seriesQuery(out.Series, bounds), func(row driver.Rows) error {
		var start int64
		var human, bot, preview uint64
		if err := row.Scan(&start, &human, &bot, &preview); err != nil {
			return err
		}
		i, known := index[start]
		if !known {
			return fmt.Errorf("a bucket that was not asked for begins at %d", start)
		}
		out.Series[i].add(human, bot, preview)
		out.Total.add(human, bot, preview)
		return nil
	})
}

func (q *Query) seriesQuery(series []Bucket, bounds []int64) string {
	head, middle, tail := q.span(), span{}, span{}
	var parts []string
	if g := coarsest(series); g != nil {
		head, middle, tail = q.span().split(g.seconds)
		if !middle.empty() {
			parts = append(parts, fmt.Sprintf("SELECT roundDown(toInt64(toUnixTimestamp(bucket)), starts) AS start, %s FROM %s WHERE link_id = %d AND %s GROUP BY start",
				sumCounts, g.table, q.LinkID, middle.bucketCondition()))
		}
	}
	if raw := rawCondition(head, tail); raw != "" {
		parts = append(parts, fmt.Sprintf("SELECT roundDown(toInt64(intDiv(toUnixTimestamp64Micro(time), 1000000)), starts) AS start, %s FROM clicks_raw WHERE link_id = %d AND %s GROUP BY start",
			countRaw, q.LinkID, raw))
	}
	return "WITH [" + join(bounds) + "]::Array(Int64) AS starts SELECT start, sum(human), sum(bot), sum(preview) FROM (" +
		strings.Join(parts, " UNION ALL ") + ") GROUP BY start"
}

// uniqueVisitors adds up the distinct visitors of each day of UTC: whole days from their aggregate.
func (s *Store) uniqueVisitors(ctx context.Context, q Query) (n uint64, err error) {
	head, middle, tail := q.span().split(days.seconds)
	var parts []string
	if !middle.empty() {
		parts = append(parts, fmt.Sprintf("SELECT uniqExactMerge(visitors) AS n FROM clicks_day WHERE link_id = %d AND %s GROUP BY bucket", q.LinkID, middle.bucketCondition()))
	}
	if raw := rawCondition(head, tail); raw != "" {
		parts = append(parts, fmt.Sprintf("SELECT uniqExact(visitor) AS n FROM clicks_raw WHERE link_id = %d AND class = 'human' AND %s GROUP BY %s", q.LinkID, raw, days.bucket))
	}
	query := "SELECT sum(n) FROM (" + strings.Join(parts, " UNION ALL ") + ")"
	if err := s.conn.QueryRow(ctx, query).Scan(&n); err != nil {
		return 0, unavailable("counting visitors", err)
	}
	return n, nil
}

func (s *Store) breakdown(ctx context.Context, q Query, column string) ([]Value, error) {
	classes := "class = 'human'"
	if q.Bots {
		classes = "class IN ('human', 'bot', 'preview')"
	}
	query := fmt.Sprintf("SELECT toString(%s) AS value, count() AS n FROM clicks_raw WHERE link_id = %d AND %s AND %s GROUP BY value ORDER BY n DESC, value LIMIT %d",
		column, q.LinkID, classes, rawCondition(q.span()), maxValues)
	out := []Value{}
	err := s.each(ctx, "breaking clicks down", query, func(row driver.Rows) error {
		var v Value
		err := row.Scan(&v.Value, &v.Clicks)
		out = append(out, v)
		return err
	})
	return out, err
}

// Totals returns all clicks that links ever had; links without any are missing. It is meant for pages of a list.
func (s *Store) Totals(ctx context.Context, links []uint64) (map[uint64]Counts, error) {
	out := make(map[uint64]Counts, len(links))
	if len(links) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(wide(ctx), s.cfg.Timeout)
	defer cancel()
	query := "SELECT link_id, " + sumCounts + " FROM clicks_day WHERE link_id IN (" + join(links) + ") GROUP BY link_id"
	err := s.each(ctx, "counting clicks of links", query, func(row driver.Rows) error {
		var link, human, bot, preview, probe uint64
		err := row.Scan(&link, &human, &bot, &preview, &probe)
		var c Counts
		c.add(human, bot, preview)
		out[link] = c
		return err
	})
	return out, err
}
