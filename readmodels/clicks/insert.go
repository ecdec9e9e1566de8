package clicks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// rawColumns are the columns of clicks_raw in the order in which fill sends them, with the types of the migration.
var rawColumns = []clickhouse.ColumnNameAndType{
	{Name: "link_id", Type: "UInt64"},
	{Name: "time", Type: "DateTime64(6, 'UTC')"},
	{Name: "class", Type: "Enum8('human' = 0, 'bot' = 1, 'preview' = 2, 'probe' = 3)"},
	{Name: "visitor", Type: "UInt64"},
	{Name: "namespace", Type: "LowCardinality(String)"},
	{Name: "code", Type: "String"},
	{Name: "version", Type: "UInt64"},
	{Name: "status", Type: "UInt16"},
	{Name: "channel", Type: "Enum8('link' = 0, 'qr' = 1)"},
	{Name: "country", Type: "LowCardinality(String)"},
	{Name: "region_code", Type: "LowCardinality(String)"},
	{Name: "referrer_host", Type: "String"},
	{Name: "device", Type: "LowCardinality(String)"},
	{Name: "os", Type: "LowCardinality(String)"},
	{Name: "browser", Type: "LowCardinality(String)"},
	{Name: "utm_source", Type: "String"},
	{Name: "utm_medium", Type: "String"},
	{Name: "utm_campaign", Type: "String"},
	{Name: "utm_term", Type: "String"},
	{Name: "utm_content", Type: "String"},
	{Name: "ip", Type: "IPv6"},
	{Name: "region", Type: "LowCardinality(String)"},
	{Name: "node", Type: "LowCardinality(String)"},
	{Name: "boot", Type: "FixedString(16)"},
	{Name: "partition", Type: "UInt32"},
	{Name: "sequence", Type: "UInt64"},
	{Name: "log_partition", Type: "UInt32"},
	{Name: "log_offset", Type: "Int64"},
	{Name: "log_index", Type: "UInt32"},
}

func insertStatement() string {
	names := make([]string, len(rawColumns))
	for i, c := range rawColumns {
		names[i] = c.Name
	}
	return "INSERT INTO clicks_raw (" + strings.Join(names, ", ") + ")"
}

// Insert adds the rows of a batch as one block. See runner.ClickStore for what a repeat does.
func (s *Store) Insert(ctx context.Context, b *projections.ClickBatch, token string) error {
	if len(b.Rows) == 0 {
		return nil
	}
	ctx, err := s.inserting(ctx, token)
	if err != nil {
		return err
	}
	batch, err := s.conn.PrepareBatch(ctx, insertStatement())
	if err != nil {
		return unavailable("inserting clicks", err)
	}
	if err := fill(batch, b); err != nil {
		return errors.Join(fmt.Errorf("encoding clicks: %w", err), batch.Abort())
	}
	if err := batch.Send(); err != nil {
		return unavailable("inserting clicks", err)
	}
	return nil
}

// fill writes the batch column by column.
func fill(to driver.Batch, b *projections.ClickBatch) error {
	f := filler{to: to, rows: b.Rows}
	column(&f, func(r *row) uint64 { return r.Click.GetLinkId() })
	column(&f, func(r *row) time.Time { return time.UnixMicro(r.Click.GetTimeUs()) })
	column(&f, func(r *row) int8 { return int8(r.Click.GetClass()) })
	column(&f, func(r *row) uint64 { return r.Click.GetVisitor() })
	words(&f, (*pb.Click).GetNamespace)
	text(&f, (*pb.Click).GetCode)
	column(&f, func(r *row) uint64 { return r.Click.GetVersion() })
	column(&f, func(r *row) uint16 { return uint16(r.Click.GetStatus()) })
	column(&f, func(r *row) int8 { return int8(r.Click.GetChannel()) })
	words(&f, (*pb.Click).GetCountry, (*pb.Click).GetRegionCode)
	text(&f, (*pb.Click).GetReferrerHost)
	words(&f, (*pb.Click).GetDevice, (*pb.Click).GetOs, (*pb.Click).GetBrowser)
	text(&f, (*pb.Click).GetUtmSource, (*pb.Click).GetUtmMedium, (*pb.Click).GetUtmCampaign, (*pb.Click).GetUtmTerm, (*pb.Click).GetUtmContent)
	column(&f, func(r *row) [16]byte { return address(r.Click.GetIp()) })
	lowCardinality(&f, func(r *row) string { return r.Block.GetRegion() })
	lowCardinality(&f, func(r *row) string { return r.Block.GetNode() })
	column(&f, func(r *row) []byte { return r.Block.GetBoot() })
	column(&f, func(r *row) uint32 { return r.Block.GetPartition() })
	column(&f, func(r *row) uint64 { return r.Click.GetSequence() })
	column(&f, func(*row) uint32 { return uint32(b.Partition) })
	column(&f, func(r *row) int64 { return r.Offset })
	column(&f, func(r *row) uint32 { return r.Index })
	return f.err
}

type row = projections.ClickRow

// filler keeps the place and the first error.
type filler struct {
	to   driver.Batch
	rows []row
	next int
	err  error
}

func column[T any](f *filler, value func(*row) T) {
	if f.err != nil {
		return
	}
	values := make([]T, len(f.rows))
	for i := range f.rows {
		values[i] = value(&f.rows[i])
	}
	if err := f.to.Column(f.next).Append(values); err != nil {
		f.err = fmt.Errorf("column %s: %w", rawColumns[f.next].Name, err)
	}
	f.next++
}

func text(f *filler, values ...func(*pb.Click) string) {
	for _, value := range values {
		column(f, func(r *row) string { return value(r.Click) })
	}
}

// lowCardinality is column for one of type LowCardinality(String).
func lowCardinality(f *filler, value func(*row) string) {
	if f.err != nil {
		return
	}
	d := newDictionary(len(f.rows))
	for i := range f.rows {
		d.add(value(&f.rows[i]))
	}
	if err := d.appendTo(f.to.Columns()[f.next]); err != nil {
		f.err = fmt.Errorf("column %s: %w", rawColumns[f.next].Name, err)
	}
	f.next++
}

func words(f *filler, values ...func(*pb.Click) string) {
	for _, value := range values {
		lowCardinality(f, func(r *row) string { return value(r.Click) })
	}
}

// address is an address as IPv6: IPv4 mapped into it, and :: for none.
func address(ip []byte) [16]byte {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return [16]byte{}
	}
	return a.As16()
}

// Report notes how far the sink is.
func (s *Store) Report(ctx context.Context, partition int32, next int64, asOf time.Time) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"async_insert": 0}))
	return s.exec(ctx, "noting the sink's progress", "INSERT INTO sink_progress (log_partition, next, as_of) VALUES (%d, %d, %s)",
		partition, next, microseconds(asOf))
}
