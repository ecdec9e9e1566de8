package clicks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hoplog/hoplog/projections"
)

const daySeconds = 24 * 60 * 60

// maxScopeLinks is how many links a statement names; with more it takes all links of the days.
const maxScopeLinks = 2000

// scope is a part of the aggregates: one partition of the log, some links on some days of UTC.
type scope struct {
	partition int32
	links     map[uint64]struct{}
	days      map[int64]struct{} // Unix seconds of midnight
}

func newScope(partition int32) scope {
	return scope{partition, map[uint64]struct{}{}, map[int64]struct{}{}}
}

// scopeOf is what a batch touches.
func scopeOf(b *projections.ClickBatch) scope {
	s := newScope(b.Partition)
	for i := range b.Rows {
		s.add(b.Rows[i].Click.GetLinkId(), b.Rows[i].Click.GetTimeUs()/int64(time.Second/time.Microsecond))
	}
	return s
}

func (s scope) add(link uint64, unix int64) {
	s.links[link] = struct{}{}
	s.days[unix-unix%daySeconds] = struct{}{}
}

// conditions are the WHERE of the raw table (by its time) and of an aggregate (by its bucket).
func (s scope) conditions() (raw, aggregate string) {
	days := slices.Sorted(maps.Keys(s.days))
	first, end := days[0], days[len(days)-1]+daySeconds
	list := join(days)
	common := fmt.Sprintf("log_partition = %d", s.partition)
	if len(s.links) <= maxScopeLinks {
		common += " AND link_id IN (" + join(slices.Sorted(maps.Keys(s.links))) + ")"
	}
	of := func(column, bounds string) string {
		return fmt.Sprintf("%s AND %s AND toUnixTimestamp(toStartOfDay(%s, 'UTC')) IN (%s)", common, bounds, column, list)
	}
	raw = of("time", fmt.Sprintf("time >= %s AND time < %s", microseconds(time.Unix(first, 0)), microseconds(time.Unix(end, 0))))
	aggregate = of("bucket", fmt.Sprintf("bucket >= toDateTime(%d, 'UTC') AND bucket < toDateTime(%d, 'UTC')", first, end))
	return raw, aggregate
}

func join[T int64 | uint64](numbers []T) string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = fmt.Sprint(n)
	}
	return strings.Join(out, ", ")
}

// wide is a context for statements that name many links or days, or that read for long.
func wide(ctx context.Context) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_query_size": 4 << 20, "max_bytes_before_external_group_by": 512 << 20}))
}

// addHeld adds what the store holds of a range to the scope.
func (s *Store) addHeld(ctx context.Context, to scope, r logRange) (rows uint64, err error) {
	query := "SELECT link_id, toUnixTimestamp(toStartOfDay(time, 'UTC')), count() FROM clicks_raw WHERE " + r.condition() + " GROUP BY 1, 2"
	err = s.each(wide(ctx), "looking for touched aggregates", query, func(row driver.Rows) error {
		var link, n uint64
		var day uint32
		err := row.Scan(&link, &day, &n)
		to.add(link, int64(day))
		rows += n
		return err
	})
	return rows, err
}

// logRange is offsets [from, to) of a partition of the clicks topic.
type logRange struct {
	partition int32
	from, to  int64
}

func rangeOf(b *projections.ClickBatch) logRange { return logRange{b.Partition, b.From, b.To} }

func (r logRange) condition() string {
	return fmt.Sprintf("log_partition = %d AND log_offset >= %d AND log_offset < %d", r.partition, r.from, r.to)
}
