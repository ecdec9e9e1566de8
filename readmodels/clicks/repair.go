package clicks

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
)

// Count returns how many raw rows a range of the log has.
func (s *Store) Count(ctx context.Context, partition int32, from, to int64) (rows uint64, err error) {
	query := "SELECT count() FROM clicks_raw WHERE " + logRange{partition, from, to}.condition()
	if err := s.conn.QueryRow(ctx, query).Scan(&rows); err != nil {
		return 0, unavailable("counting a range", err)
	}
	return rows, nil
}

// fingerprint tells sets of rows apart: sums wrap around, here and there alike.
type fingerprint struct {
	rows, distinct                    uint64
	links, sequences, times, visitors uint64
	classes                           uint64 // each times its sequence, so that no exchange goes unseen
}

const fingerprintColumns = "count(), uniqExact(log_offset, log_index), sum(link_id), sum(sequence), sum(toUInt64(toUnixTimestamp64Micro(time))), sum(visitor), " +
	"sum(toUInt64(toInt8(class)) * sequence)"

func (f *fingerprint) scan(row interface{ Scan(dest ...any) error }, key ...any) error {
	return row.Scan(append(key, &f.rows, &f.distinct, &f.links, &f.sequences, &f.times, &f.visitors, &f.classes)...)
}

func fingerprintOf(b *projections.ClickBatch) (f fingerprint) {
	f.rows, f.distinct = uint64(len(b.Rows)), uint64(len(b.Rows))
	for i := range b.Rows {
		c := b.Rows[i].Click
		f.links += c.GetLinkId()
		f.sequences += c.GetSequence()
		f.times += uint64(c.GetTimeUs())
		f.visitors += c.GetVisitor()
		f.classes += uint64(c.GetClass()) * c.GetSequence()
	}
	return f
}

// Check compares the raw rows of a batch's range, and the aggregates that it touches, with what they must be.
func (s *Store) Check(ctx context.Context, b *projections.ClickBatch) (runner.ClickState, error) {
	var found fingerprint
	query := "SELECT " + fingerprintColumns + " FROM clicks_raw WHERE " + rangeOf(b).condition()
	if err := found.scan(s.conn.QueryRow(ctx, query)); err != nil {
		return 0, unavailable("checking a range", err)
	}
	switch want := fingerprintOf(b); {
	case found != want && found.rows == 0:
		return runner.ClicksMissing, nil
	case found != want:
		return runner.ClicksDamaged, nil
	case want.rows == 0:
		return runner.ClicksComplete, nil
	}
	wrong, err := s.wrongAggregates(ctx, scopeOf(b))
	if err != nil || wrong == 0 {
		return runner.ClicksComplete, err
	}
	return runner.ClicksMiscounted, nil
}

// wrongAggregates counts the keys in a scope that do not add up.
func (s *Store) wrongAggregates(ctx context.Context, in scope) (wrong uint64, err error) {
	raw, aggregate := in.conditions()
	for _, g := range grains {
		var n uint64
		query := "SELECT count() FROM (" + g.compare(raw, aggregate) + ")"
		if err := s.conn.QueryRow(wide(ctx), query).Scan(&n); err != nil {
			return 0, unavailable("checking "+g.table, err)
		}
		wrong += n
	}
	return wrong, nil
}

// Replace removes what lies in a batch's range, inserts the batch, and counts the touched aggregates again.
func (s *Store) Replace(ctx context.Context, b *projections.ClickBatch) error {
	touched := scopeOf(b)
	rows, err := s.addHeld(ctx, touched, rangeOf(b))
	if err != nil {
		return err
	}
	if rows > 0 {
		if err := s.delete(ctx, "clicks_raw", rangeOf(b).condition()); err != nil {
			return err
		}
	}
	// The range's own token would be recognised, and nothing inserted.
	if err := s.Insert(ctx, b, "replace/"+uuid.NewString()); err != nil {
		return err
	}
	return s.rebuild(ctx, touched)
}

// Rebuild counts the aggregates that a batch touches again.
func (s *Store) Rebuild(ctx context.Context, b *projections.ClickBatch) error {
	return s.rebuild(ctx, scopeOf(b))
}

// rebuild throws a part of the aggregates away and counts it again from the raw rows.
func (s *Store) rebuild(ctx context.Context, in scope) error {
	if len(in.days) == 0 {
		return nil
	}
	raw, aggregate := in.conditions()
	for _, g := range grains {
		if err := s.delete(ctx, g.table, aggregate); err != nil {
			return err
		}
		if err := s.conn.Exec(s.rebuilding(ctx), g.rebuild(raw)); err != nil {
			return unavailable("counting into "+g.table, err)
		}
	}
	return nil
}

// delete returns when the rows are gone for every reader.
func (s *Store) delete(ctx context.Context, table, where string) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_query_size": 4 << 20, "lightweight_deletes_sync": 2}))
	return s.exec(ctx, "deleting from "+table, "DELETE FROM %s WHERE %s", table, where)
}

// rebuilding is a context for an insert that must not be taken for one that was seen before: counting the same rows twice
// gives the same block.
func (s *Store) rebuilding(ctx context.Context) context.Context {
	settings := clickhouse.Settings{"max_query_size": 4 << 20, "async_insert": 0, "insert_deduplicate": 0, "max_bytes_before_external_group_by": 512 << 20,
		"max_partitions_per_insert_block": 0}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.settings["deduplicate_insert"]; known {
		settings["deduplicate_insert"] = "disable"
		settings["deduplicate_insert_select"] = "disable"
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(settings))
}

// progress is how far the sink was, by its own report.
type progress struct {
	next int64
	asOf time.Time
}

// Reported returns how far the sink of a partition was by its own report, 0 without one.
func (s *Store) Reported(ctx context.Context, partition int32) (next int64, err error) {
	query := fmt.Sprintf("SELECT max(next) FROM sink_progress WHERE log_partition = %d", partition)
	if err := s.conn.QueryRow(ctx, query).Scan(&next); err != nil {
		return 0, unavailable("reading the sink's progress", err)
	}
	return next, nil
}

// progressOf reads the newest report of every partition; partitions without one are missing.
func (s *Store) progressOf(ctx context.Context) (map[int32]progress, error) {
	out := map[int32]progress{}
	const query = "SELECT log_partition, max(next), argMax(as_of, next) FROM sink_progress GROUP BY log_partition"
	err := s.each(ctx, "reading the sink's progress", query, func(row driver.Rows) error {
		var partition uint32
		var p progress
		err := row.Scan(&partition, &p.next, &p.asOf)
		out[int32(partition)] = p
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking how far the sink is: %w", err)
	}
	return out, nil
}
