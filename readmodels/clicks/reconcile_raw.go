package clicks

import (
	"context"
	"errors"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
)

// chunkRecords is how many records are compared with one question, which reads the place columns of the raw table once.
const chunkRecords = 200_000

// comparison is the state of one pass.
type comparison struct {
	r       *reconciliation
	rep     Report
	more    uint64                  // differences beyond the listed ones
	minutes []map[int64]classCounts // of the log, by partition and Unix minute
	bad     map[int32][]logRange    // raw rows to be replaced
	wrong   map[int32]*scope        // aggregates to be counted again
}

func (r *reconciliation) compare(ctx context.Context) (*comparison, error) {
	c := &comparison{r: r, bad: map[int32][]logRange{}, wrong: map[int32]*scope{}}
	c.rep.Differences = []Difference{}
	if !r.o.From.IsZero() {
		c.rep.From = &r.o.From
	}
	if !r.o.To.IsZero() {
		c.rep.To = &r.o.To
	}
	for _, d := range r.late {
		c.differ(d)
	}
	for _, part := range r.frozen {
		if err := c.partition(ctx, part); err != nil {
			return nil, fmt.Errorf("comparing partition %d: %w", part.partition, err)
		}
	}
	if err := c.aggregates(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *comparison) differ(d Difference) {
	if len(c.rep.Differences) == maxDifferences {
		c.more++
		return
	}
	c.rep.Differences = append(c.rep.Differences, d)
}

// OK reports whether everything agrees.
func (c *comparison) OK() bool { return len(c.rep.Differences) == 0 }

// report closes the report. It may be called on nil, after an error.
func (c *comparison) report() *Report {
	if c == nil {
		return nil
	}
	if c.more > 0 {
		c.rep.Differences = append(c.rep.Differences, Difference{Kind: DifferMore, Detail: fmt.Sprintf("%d more differences are not listed", c.more)})
	}
	return &c.rep
}

// after is the report of a pass that follows a repair: its counts, what still differs, and what differed and no longer does.
func (c *comparison) after(first *comparison) *Report {
	still := map[string]bool{}
	for _, d := range c.rep.Differences {
		still[d.place()] = true
	}
	var mended []Difference
	for _, d := range first.rep.Differences {
		if !still[d.place()] && c.more == 0 {
			d.Repaired = true
			mended = append(mended, d)
		}
	}
	out := c.report()
	out.Differences = append(mended, out.Differences...)
	return out
}

func (d *Difference) place() string {
	return fmt.Sprint(d.Kind, d.Partition, d.FromOffset, d.Table, d.LinkID, d.Bucket)
}

// partition counts one partition of the log, chunk by chunk, and compares each chunk with the raw rows.
func (c *comparison) partition(ctx context.Context, part partitionRange) error {
	times := c.r.bounds()
	count := newRecount(times.from, times.to)
	for _, s := range part.seeds {
		count.seed(s.node, s.boot, s.partition, s.sequence)
	}
	reader, err := c.r.open(part)
	if err != nil {
		return err
	}
	defer reader.close()
	for reader.next < part.to {
		chunk, err := reader.chunk(ctx, count, part.to)
		if errors.Is(err, errUnreadable) {
			c.differ(Difference{Kind: DifferUnreadable, Partition: part.partition, FromOffset: reader.next, ToOffset: part.to, Detail: err.Error()})
			part.to = reader.next
		} else if err != nil {
			return err
		}
		if err := c.chunk(ctx, part.partition, chunk, times); err != nil {
			return err
		}
		c.r.progress(fmt.Sprintf("partition %d", part.partition), reader.next-part.from, part.to-part.from)
	}
	c.rep.Offsets = append(c.rep.Offsets, Offsets{part.partition, part.from, part.to})
	c.minutes = append(c.minutes, count.minutes)
	return nil
}

// chunk compares the records of one chunk, which are consecutive, with the raw rows of the same offsets.
func (c *comparison) chunk(ctx context.Context, partition int32, chunk []recordCount, times span) error {
	if len(chunk) == 0 {
		return nil
	}
	in := logRange{partition, chunk[0].offset, chunk[len(chunk)-1].offset + 1}
	found := make([]recordCount, len(chunk))
	query := "SELECT log_offset, countIf(class != 'probe'), " + fingerprintColumns + " FROM clicks_raw WHERE " + in.condition() +
		" AND " + rawCondition(times) + " GROUP BY log_offset"
	err := c.r.store.each(wide(ctx), "counting raw rows", query, func(row driver.Rows) error {
		var f recordCount
		if err := f.scan(row, &f.offset, &f.clicks); err != nil {
			return err
		}
		found[f.offset-in.from] = f
		return nil
	})
	if err != nil {
		return err
	}
	var run rawRun
	for i, want := range chunk {
		c.rep.LogClicks += want.clicks
		c.rep.RawClicks += found[i].clicks
		found[i].offset = want.offset
		if found[i] == want {
			c.closeRun(partition, &run)
			continue
		}
		run.add(want, found[i])
	}
	c.closeRun(partition, &run)
	return nil
}

// rawRun collects neighbouring records that differ.
type rawRun struct {
	from, to                         int64
	log, raw                         uint64
	missing, duplicated, extra, same uint64
}

func (d *rawRun) add(want, found recordCount) {
	if d.to == 0 {
		d.from = want.offset
	}
	d.to = want.offset + 1
	d.log += want.rows
	d.raw += found.rows
	d.duplicated += found.rows - found.distinct
	d.missing += want.rows - min(want.rows, found.distinct)
	d.extra += found.distinct - min(found.distinct, want.rows)
	if found.rows == want.rows && found.distinct == want.distinct {
		d.same++
	}
}

func (c *comparison) closeRun(partition int32, d *rawRun) {
	if d.to == 0 {
		return
	}
	c.rep.Missing += d.missing
	c.rep.Duplicated += d.duplicated
	c.bad[partition] = append(c.bad[partition], logRange{partition, d.from, d.to})
	c.differ(Difference{Kind: DifferRaw, Partition: partition, FromOffset: d.from, ToOffset: d.to, Log: d.log, Raw: d.raw,
		Detail: fmt.Sprintf("%d missing, %d duplicated, %d too many, %d records with other content", d.missing, d.duplicated, d.extra, d.same)})
	*d = rawRun{}
}

// logReader reads one partition of the clicks topic.
type logReader struct {
	tail runner.Tail
	next int64
	left []eventlog.Record
}

func (r *reconciliation) open(part partitionRange) (*logReader, error) {
	tail, err := r.log.NewTail(eventlog.Clicks, map[int32]int64{part.partition: part.from})
	if err != nil {
		return nil, fmt.Errorf("opening tail: %w", err)
	}
	return &logReader{tail: tail, next: part.from}, nil
}

func (l *logReader) close() { l.tail.Close() }

// chunk counts records up to an offset, at most chunkRecords of them. What comes before an unreadable record is returned
// with the error.
func (l *logReader) chunk(ctx context.Context, count *recount, to int64) (out []recordCount, err error) {
	for l.next < to && len(out) < chunkRecords {
		for len(l.left) == 0 {
			batches, err := l.tail.Poll(ctx, 0)
			if err != nil {
				return nil, fmt.Errorf("reading the clicks: %w", err)
			}
			for _, b := range batches {
				l.left = append(l.left, b.Records...)
			}
		}
		rec := l.left[0]
		if rec.Offset != l.next {
			return nil, fmt.Errorf("gap in offsets: %d follows %d", rec.Offset, l.next-1)
		}
		counted, err := count.add(rec.Offset, rec.Value)
		if err != nil {
			return out, err
		}
		out = append(out, counted)
		l.left = l.left[1:]
		l.next++
	}
	return out, nil
}
