package clicks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hoplog/hoplog/schemas/pb"
)

// randomClicks are clicks of a few links over some weeks around a change of the clock.
func randomClicks(n *node, rng *rand.Rand, count int) (all []*pb.Click) {
	for i := range count {
		at := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).Add(time.Duration(rng.Int64N(int64(20 * 24 * time.Hour)))).Truncate(time.Microsecond)
		if i%3 == 0 {
			at = at.Truncate(time.Hour) // onto the bounds
		}
		c := n.block(0, 1+rng.Uint64N(3), at).Clicks[0]
		c.Class = pb.ClickClass(rng.IntN(4))
		c.Visitor = rng.Uint64N(40)
		c.Browser = []string{"Firefox", "Safari", ""}[rng.IntN(3)]
		all = append(all, c)
	}
	return all
}

// Every answer is what counting the clicks one by one gives.
func TestStatsAreExact(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	s, n := newStore(t), newNode(t, nil, "n1")
	clicks := randomClicks(n, rng, 3000)
	insert(t, s, batchOf(t, 0, 0, n.sent[0][:2000]...), "a")
	insert(t, s, batchOf(t, 0, 2000, n.sent[0][2000:]...), "b")
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Kathmandu"}
	for range 60 {
		q := Query{LinkID: 1 + rng.Uint64N(3), Zone: zone(t, zones[rng.IntN(len(zones))]), By: []string{"browser", "channel"}, Bots: rng.IntN(2) == 0,
			Interval: []Interval{Minute, Hour, Day, Week, Month}[rng.IntN(5)]}
		q.From = time.Date(2026, 3, 18, 0, 0, 0, 0, q.Zone).Add(time.Duration(rng.Int64N(int64(20 * 24 * time.Hour))))
		length := 24 * 24 * time.Hour
		if q.Interval == Minute {
			length = 6 * 24 * time.Hour
		}
		q.To = q.From.Add(time.Duration(rng.Int64N(int64(length))) + 1)
		if rng.IntN(2) == 0 {
			q.From, q.To = bucketStart(q.From, q.Interval), bucketNext(bucketStart(q.To.In(q.Zone), q.Interval), q.Interval)
		}
		got, err := s.Stats(context.Background(), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		compareStats(t, q, got, clicks)
	}
}

func compareStats(t *testing.T, q Query, got *Stats, clicks []*pb.Click) {
	t.Helper()
	starts, err := buckets(q.From.In(q.Zone), q.To, q.Interval)
	if err != nil {
		t.Fatal(err)
	}
	var total Counts
	series := make([]Counts, len(starts))
	visitors, browsers := map[string]bool{}, map[string]uint64{}
	for _, c := range clicks {
		at := time.UnixMicro(c.TimeUs)
		if c.LinkId != q.LinkID || at.Before(q.From) || !at.Before(q.To) || c.Class == pb.ClickClass_PROBE {
			continue
		}
		is := func(class pb.ClickClass) uint64 { return map[bool]uint64{true: 1}[c.Class == class] }
		i, found := slices.BinarySearchFunc(starts, at, time.Time.Compare)
		if !found {
			i--
		}
		series[i].add(is(pb.ClickClass_HUMAN), is(pb.ClickClass_BOT), is(pb.ClickClass_PREVIEW))
		total.add(is(pb.ClickClass_HUMAN), is(pb.ClickClass_BOT), is(pb.ClickClass_PREVIEW))
		if c.Class == pb.ClickClass_HUMAN {
			visitors[fmt.Sprint(at.UTC().Format(time.DateOnly), c.Visitor)] = true
		}
		if q.Bots || c.Class == pb.ClickClass_HUMAN {
			browsers[c.Browser]++
		}
	}
	if got.Total != total || got.UniqueVisitors != uint64(len(visitors)) || len(got.Series) != len(series) {
		t.Fatalf("%+v: total %+v, %d visitors, %d buckets; want %+v, %d, %d", q, got.Total, got.UniqueVisitors, len(got.Series), total, len(visitors), len(series))
	}
	for i := range series {
		if got.Series[i].Counts != series[i] || !got.Series[i].Start.Equal(starts[i]) {
			t.Fatalf("%+v: bucket %d is %+v, want %v %+v", q, i, got.Series[i], starts[i], series[i])
		}
	}
	if len(got.By["browser"]) != len(browsers) || got.By["channel"] == nil {
		t.Fatalf("%+v: by %+v, want %v", q, got.By, browsers)
	}
	for _, v := range got.By["browser"] {
		if browsers[v.Value] != v.Clicks {
			t.Fatalf("%+v: browser %+v, want %d", q, v, browsers[v.Value])
		}
	}
}

func TestStatsOfALinkWithoutClicks(t *testing.T) {
	s := newStore(t)
	got, err := s.Stats(context.Background(), Query{LinkID: 5, From: noon.AddDate(0, 0, -7), To: noon, Interval: Day, By: Dimensions()})
	if err != nil || len(got.Series) != 8 || got.Total != (Counts{}) || len(got.By) != len(Dimensions()) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestTotals(t *testing.T) {
	s, n := newStore(t), newNode(t, nil, "n1")
	block := n.block(0, 1, every(noon, 30*time.Hour, 10)...)
	block.Clicks[0].Class, block.Clicks[1].Class = pb.ClickClass_PROBE, pb.ClickClass_BOT
	insert(t, s, batchOf(t, 0, 0, block, n.block(0, 2, noon)), "a")
	got, err := s.Totals(context.Background(), []uint64{1, 2, 3})
	if err != nil || len(got) != 2 || got[1] != (Counts{9, 8, 1, 0}) || got[2] != (Counts{1, 1, 0, 0}) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestFreshness(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	ends, logDown := []int64{0, 0}, error(nil)
	w := NewWatermark(func(context.Context) ([]int64, error) { return slices.Clone(ends), logDown }, quiet())
	age := func() time.Duration {
		t.Helper()
		f, err := s.Freshness(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(f.AsOf) - f.Age; d < 0 || d > 5*time.Second {
			t.Errorf("as of %v, %v old", f.AsOf, f.Age)
		}
		return f.Age
	}
	report := func(partition int32, next int64, asOf time.Time) {
		t.Helper()
		if err := s.Report(ctx, partition, next, asOf); err != nil {
			t.Fatal(err)
		}
	}
	const fresh = 3 * time.Second
	if got := age(); got > fresh {
		t.Errorf("nothing in the log: %v", got)
	}
	ends = []int64{5, 0}
	w.samples = nil
	if _, err := s.Freshness(ctx, w); !errors.Is(err, ErrUnavailable) {
		t.Errorf("clicks and no sink: %v", err)
	}
	report(0, 5, time.Now().Add(-time.Hour))
	if got := age(); got > fresh {
		t.Errorf("all taken, the last of it an hour ago: %v", got)
	}
	ends = []int64{7, 0}
	if got := age(); got > fresh {
		t.Errorf("behind since a moment: %v", got)
	}
	logDown = errors.New("down")
	if got := age(); got > fresh {
		t.Errorf("the log cannot be asked: %v", got)
	}
	logDown, w.samples = nil, nil
	if got := age(); got < 59*time.Minute || got > 61*time.Minute {
		t.Errorf("behind, and nothing known of when the log ended where: %v", got)
	}
	report(0, 6, time.Now().Add(-time.Minute))
	report(1, 3, time.Now().Add(-2*time.Hour)) // at its end
	report(0, 2, time.Now())                   // of a writer that was no longer the partition's
	if got := age(); got < 59*time.Second || got > 70*time.Second {
		t.Errorf("still behind: %v", got)
	}
}
