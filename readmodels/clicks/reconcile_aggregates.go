package clicks

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// aggregateTries is how often aggregates are looked at: an insert under way is in the raw rows a moment before it is in the
// aggregates, so only what differs every time differs.
const aggregateTries = 3

const betweenTries = 500 * time.Millisecond

// aggregates compares the minutes with the log, and every aggregate with the raw rows.
func (c *comparison) aggregates(ctx context.Context) error {
	lasting, err := c.lastingDifferences(ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(lasting)) {
		c.differ(lasting[key])
		if lasting[key].Kind == DifferAggregate {
			c.markWrong(lasting[key])
		}
	}
	return nil
}

// lastingDifferences asks until there is no difference, or aggregateTries times, and returns those that were there each time.
func (c *comparison) lastingDifferences(ctx context.Context) (map[string]Difference, error) {
	lasting, err := c.differencesNow(ctx)
	for try := 1; err == nil && len(lasting) > 0 && try < aggregateTries; try++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(betweenTries):
		}
		var again map[string]Difference
		again, err = c.differencesNow(ctx)
		maps.DeleteFunc(again, func(key string, _ Difference) bool { _, was := lasting[key]; return !was })
		lasting = again
	}
	return lasting, err
}

func (c *comparison) differencesNow(ctx context.Context) (map[string]Difference, error) {
	steps := int64(len(grains) + 1)
	c.r.progress("aggregates", 0, steps)
	all, err := c.againstLog(ctx)
	if err != nil {
		return nil, err
	}
	for i, g := range grains {
		c.r.progress("aggregates", int64(i+1), steps)
		wrong, err := c.againstRaw(ctx, g)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, wrong)
	}
	c.r.progress("aggregates", steps, steps)
	return all, nil
}

func (c *comparison) markWrong(d Difference) {
	s := c.wrong[d.Partition]
	if s == nil {
		fresh := newScope(d.Partition)
		s = &fresh
		c.wrong[d.Partition] = s
	}
	s.add(d.LinkID, d.Bucket.Unix())
}

// againstLog compares the minutes of every partition with what the log gives. Aggregates know no offsets, so what the raw
// rows have outside the frozen ones is taken off; both are read in one question.
func (c *comparison) againstLog(ctx context.Context) (map[string]Difference, error) {
	times := c.r.bounds()
	query := "SELECT log_partition, toInt64(intDiv(toUnixTimestamp(bucket), 60)) AS minute, sum(h), sum(b), sum(p), sum(o) FROM (" +
		"SELECT log_partition, bucket, toInt64(sum(human)) AS h, toInt64(sum(bot)) AS b, toInt64(sum(preview)) AS p, toInt64(sum(probe)) AS o" +
		" FROM clicks_minute WHERE " + times.bucketConditionWithin() + " GROUP BY log_partition, bucket" +
		" UNION ALL SELECT log_partition, " + minutes.bucket + " AS bucket, -toInt64(countIf(class = 'human')), -toInt64(countIf(class = 'bot'))," +
		" -toInt64(countIf(class = 'preview')), -toInt64(countIf(class = 'probe'))" +
		" FROM clicks_raw WHERE " + rawCondition(times) + " AND " + c.outside() + " GROUP BY log_partition, bucket" +
		") GROUP BY log_partition, minute"
	left := make([]map[int64]classCounts, len(c.minutes))
	for i, of := range c.minutes {
		left[i] = maps.Clone(of)
	}
	out := map[string]Difference{}
	c.rep.AggregateClicks = 0
	err := c.r.store.each(wide(ctx), "comparing minutes with the log", query, func(row driver.Rows) error {
		var partition uint32
		var minute int64
		var found [4]int64
		if err := row.Scan(&partition, &minute, &found[0], &found[1], &found[2], &found[3]); err != nil {
			return err
		}
		if int(partition) >= len(left) {
			return fmt.Errorf("an aggregate of partition %d, the log has %d", partition, len(left))
		}
		want := left[partition][minute]
		delete(left[partition], minute)
		c.rep.AggregateClicks += uint64(found[0] + found[1] + found[2])
		if got := (classCounts{uint64(found[0]), uint64(found[1]), uint64(found[2]), uint64(found[3])}); got != want {
			addLogDifference(out, int32(partition), minute, want, got)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for partition, of := range left {
		for minute, want := range of {
			addLogDifference(out, int32(partition), minute, want, classCounts{})
		}
	}
	return out, nil
}

func addLogDifference(to map[string]Difference, partition int32, minute int64, want, got classCounts) {
	bucket := time.Unix(minute*60, 0).UTC()
	d := Difference{Kind: DifferLog, Partition: partition, Table: minutes.table, Bucket: &bucket, Log: want.clicks(), Aggregate: got.clicks(),
		Detail: fmt.Sprintf("human, bot, preview, probe: log %v, aggregate %v", want, got)}
	to[d.place()] = d
}

// outside is a condition for raw rows that are not among the frozen offsets.
func (c *comparison) outside() string {
	parts := make([]string, len(c.rep.Offsets))
	for i, o := range c.rep.Offsets {
		parts[i] = fmt.Sprintf("(log_partition = %d AND log_offset >= %d AND log_offset < %d)", o.Partition, o.From, o.To)
	}
	return "NOT (" + strings.Join(parts, " OR ") + ")"
}

// againstRaw asks which aggregates of a table are not what the raw rows give.
func (c *comparison) againstRaw(ctx context.Context, g grain) (map[string]Difference, error) {
	_, whole, _ := c.r.bounds().split(g.seconds)
	out := map[string]Difference{}
	if whole.empty() {
		return out, nil
	}
	query := g.compare(rawCondition(whole), whole.bucketConditionWithin()) + fmt.Sprintf(" ORDER BY log_partition, link_id, bucket LIMIT %d", 100*maxDifferences)
	err := c.r.store.each(wide(ctx), "comparing "+g.table+" with raw rows", query, func(row driver.Rows) error {
		var partition uint32
		var bucket time.Time
		d := Difference{Kind: DifferAggregate, Table: g.table, Detail: "the raw rows give other counts or visitors"}
		if err := row.Scan(&partition, &d.LinkID, &bucket, &d.Raw, &d.Aggregate); err != nil {
			return err
		}
		d.Partition = int32(partition)
		bucket = bucket.UTC()
		d.Bucket = &bucket
		out[d.place()] = d
		return nil
	})
	return out, err
}

// bucketConditionWithin is bucketCondition for spans that may reach beyond what a bucket can hold.
func (s span) bucketConditionWithin() string {
	const end = math.MaxUint32 * int64(time.Second/time.Microsecond)
	return span{max(s.from, 0), min(s.to, end)}.bucketCondition()
}
