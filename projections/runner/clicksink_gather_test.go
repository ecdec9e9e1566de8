package runner

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// arrival is a record of so many clicks that the log has at a time.
type arrival struct {
	after  time.Duration
	clicks int
}

// arrivals are a tail on which records arrive in time.
type arrivals struct {
	t     *testing.T
	began time.Time
	left  []arrival
	next  int64
	seq   uint64
}

func (a *arrivals) Close() {}

func (a *arrivals) Poll(ctx context.Context, _ int) ([]eventlog.Batch, error) {
	if len(a.left) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := sleep(ctx, time.Until(a.began.Add(a.left[0].after))); err != nil {
		return nil, err
	}
	block := &pb.ClickBlock{SchemaVersion: projections.ClickSchemaVersion, Node: "n", Boot: bytes.Repeat([]byte{1}, 16)}
	for range a.left[0].clicks {
		a.seq++
		block.Clicks = append(block.Clicks, &pb.Click{Sequence: a.seq, LinkId: 1, TimeUs: 1, Status: 302})
	}
	value, err := block.MarshalVT()
	if err != nil {
		a.t.Fatal(err)
	}
	a.left, a.next = a.left[1:], a.next+1
	return []eventlog.Batch{{Records: []eventlog.Record{{Offset: a.next - 1, Value: value, Time: time.Now()}}}}, nil
}

func TestBusyPartitionsGatherTwice(t *testing.T) {
	const ms = time.Millisecond
	for name, given := range map[string]struct {
		arrive []arrival
		rows   int
		after  time.Duration
	}{
		"quiet":                        {[]arrival{{0, 9}, {800 * ms, 1}}, 9, 700 * ms},
		"busy":                         {[]arrival{{0, 10}, {800 * ms, 1}, {1300 * ms, 1}, {1500 * ms, 1}}, 12, 1400 * ms},
		"busy and then nothing":        {[]arrival{{0, 10}}, 10, 1400 * ms},
		"busy only after the time":     {[]arrival{{0, 5}, {600 * ms, 4}, {800 * ms, 9}}, 9, 700 * ms},
		"full at once":                 {[]arrival{{0, 50}, {100 * ms, 1}}, 50, 0},
		"full in the second time":      {[]arrival{{0, 10}, {900 * ms, 40}, {950 * ms, 1}}, 50, 900 * ms},
		"it counts from the first one": {[]arrival{{5000 * ms, 10}, {6300 * ms, 1}, {6500 * ms, 1}}, 11, 6400 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newClickPartition(ClickSinkConfig{Gather: 700 * ms, MaxRows: 50}, 0)
				p.fold = projections.NewClicks(0)
				began := time.Now()
				p.reader = &clickReader{tail: &arrivals{t: t, began: began, left: given.arrive}}
				batch, asOf, err := p.gather(t.Context())
				if err != nil || len(batch.Rows) != given.rows || time.Since(began) != given.after || asOf.After(time.Now()) || asOf.Before(began) {
					t.Errorf("%d rows after %s, as of %s, %v; want %d after %s", len(batch.Rows), time.Since(began), asOf.Sub(began), err, given.rows, given.after)
				}
			})
		})
	}
}
