package projections

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hoplog/hoplog/schemas/pb"
)

func clickBlock(node string, sequences ...uint64) *pb.ClickBlock {
	b := &pb.ClickBlock{SchemaVersion: 1, Node: node, Boot: bytes.Repeat([]byte{7}, 16), Partition: 3}
	for _, s := range sequences {
		b.Clicks = append(b.Clicks, &pb.Click{Sequence: s, LinkId: 1, TimeUs: 1_790_000_000_000_000, Status: 302})
	}
	return b
}

func clickRecord(t testing.TB, b *pb.ClickBlock) []byte {
	t.Helper()
	value, err := b.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// foldClicks folds blocks as one batch from offset 10.
func foldClicks(t testing.TB, fold *Clicks, blocks ...*pb.ClickBlock) *ClickBatch {
	t.Helper()
	batch := fold.Begin(10)
	for i, b := range blocks {
		if err := fold.Add(batch, 10+int64(i), clickRecord(t, b)); err != nil {
			t.Fatal(err)
		}
	}
	return fold.End(batch)
}

func TestClicksFold(t *testing.T) {
	otherBoot := clickBlock("a", 1)
	otherBoot.Boot = bytes.Repeat([]byte{8}, 16)
	otherPartition := clickBlock("a", 1)
	otherPartition.Partition = 4
	for name, given := range map[string]struct {
		blocks        []*pb.ClickBlock
		want          []uint64 // sequences of the rows
		repeats, gaps uint64
	}{
		"dense":                     {[]*pb.ClickBlock{clickBlock("a", 1, 2), clickBlock("a", 3)}, []uint64{1, 2, 3}, 0, 0},
		"a block again":             {[]*pb.ClickBlock{clickBlock("a", 1, 2), clickBlock("a", 1, 2)}, []uint64{1, 2}, 2, 0},
		"an older block again":      {[]*pb.ClickBlock{clickBlock("a", 1), clickBlock("a", 2), clickBlock("a", 1)}, []uint64{1, 2}, 1, 0},
		"dropped between blocks":    {[]*pb.ClickBlock{clickBlock("a", 1), clickBlock("a", 5)}, []uint64{1, 5}, 0, 3},
		"dropped within a block":    {[]*pb.ClickBlock{clickBlock("a", 1, 4)}, []uint64{1, 4}, 0, 2},
		"dropped before the first":  {[]*pb.ClickBlock{clickBlock("a", 3)}, []uint64{3}, 0, 2},
		"sources are independent":   {[]*pb.ClickBlock{clickBlock("a", 1), clickBlock("b", 1), otherBoot, otherPartition}, []uint64{1, 1, 1, 1}, 0, 0},
		"a block without clicks":    {[]*pb.ClickBlock{clickBlock("a")}, nil, 0, 0},
		"disorder within one block": {[]*pb.ClickBlock{clickBlock("a", 2, 1, 2, 3)}, []uint64{2, 3}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := foldClicks(t, NewClicks(0), given.blocks...)
			var got []uint64
			for _, r := range b.Rows {
				got = append(got, r.Click.GetSequence())
			}
			if !slices.Equal(got, given.want) || b.Repeats != given.repeats || b.Gaps != given.gaps || b.From != 10 || b.To != 10+int64(len(given.blocks)) {
				t.Errorf("rows %v, %d repeats, %d gaps, [%d, %d)", got, b.Repeats, b.Gaps, b.From, b.To)
			}
		})
	}
}

func TestClickRowsKnowTheirPlace(t *testing.T) {
	b := foldClicks(t, NewClicks(0), clickBlock("a", 1), clickBlock("a", 1, 2, 3))
	last := b.Rows[2]
	if last.Offset != 11 || last.Index != 2 || last.Block.GetNode() != "a" || last.Click.GetSequence() != 3 {
		t.Errorf("%+v", last)
	}
}

func TestClickBlocksThatAreRefused(t *testing.T) {
	change := func(f func(b *pb.ClickBlock)) []byte {
		b := clickBlock("a", 1)
		f(b)
		return clickRecord(t, b)
	}
	for name, value := range map[string][]byte{
		"empty":           {},
		"garbage":         {0xff, 0xff, 0xff},
		"newer":           change(func(b *pb.ClickBlock) { b.SchemaVersion = 2 }),
		"short boot":      change(func(b *pb.ClickBlock) { b.Boot = b.Boot[:15] }),
		"sequence 0":      change(func(b *pb.ClickBlock) { b.Clicks[0].Sequence = 0 }),
		"unknown class":   change(func(b *pb.ClickBlock) { b.Clicks[0].Class = 4 }),
		"unknown channel": change(func(b *pb.ClickBlock) { b.Clicks[0].Channel = 2 }),
		"no time":         change(func(b *pb.ClickBlock) { b.Clicks[0].TimeUs = -1 }),
		"far time":        change(func(b *pb.ClickBlock) { b.Clicks[0].TimeUs = math.MaxInt64 }),
		"odd address":     change(func(b *pb.ClickBlock) { b.Clicks[0].Ip = []byte{1} }),
		"odd status":      change(func(b *pb.ClickBlock) { b.Clicks[0].Status = 70000 }),
	} {
		fold := NewClicks(0)
		batch := fold.Begin(0)
		if err := fold.Add(batch, 0, value); !errors.Is(err, ErrClickBlock) || batch.To != 0 || len(batch.Rows) > 0 {
			t.Errorf("%s: %v, %+v", name, err, batch)
		}
	}
}

// Folding records in batches, where each batch begins with what the intents before it wrote down, gives the rows of folding
// them at once; and a batch gives the same intent every time.
func TestClickBatchesDependOnNothingElse(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var records [][]byte
		for range rapid.IntRange(0, 30).Draw(r, "records") {
			b := clickBlock(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "node"), rapid.SliceOfN(rapid.Uint64Range(1, 40), 0, 5).Draw(r, "sequences")...)
			value, err := b.MarshalVT()
			if err != nil {
				r.Fatal(err)
			}
			records = append(records, value)
		}
		whole := NewClicks(0)
		once := whole.Begin(0)
		add := func(fold *Clicks, batch *ClickBatch, offset int) {
			if err := fold.Add(batch, int64(offset), records[offset]); err != nil {
				r.Fatal(err)
			}
		}
		for offset := range records {
			add(whole, once, offset)
		}
		intents := NewClickIntents(0)
		var rows, repeats, gaps int
		for offset := 0; offset < len(records); {
			open, before := intents.Open()
			fold := before.Clone()
			if err := fold.Restore(open.GetLast()); err != nil {
				r.Fatal(err)
			}
			batch := fold.Begin(int64(offset))
			for range min(len(records)-offset, rapid.IntRange(1, 8).Draw(r, "batch")) {
				add(fold, batch, offset)
				offset++
			}
			intent := fold.End(batch).Intent()
			value, err := intent.MarshalVT()
			if err != nil {
				r.Fatal(err)
			}
			if got, err := intents.Add(0, value); err != nil || got == nil {
				r.Fatalf("the intent does not count: %v", err)
			}
			refold(r, intents, records)
			rows, repeats, gaps = rows+len(batch.Rows), repeats+int(batch.Repeats), gaps+int(batch.Gaps)
		}
		if rows != len(once.Rows) || repeats != int(once.Repeats) || gaps != int(once.Gaps) {
			r.Fatalf("in batches %d rows, %d repeats, %d gaps; at once %d, %d, %d", rows, repeats, gaps, len(once.Rows), once.Repeats, once.Gaps)
		}
	})
}

// refold folds the open range again, as the next owner of a partition does.
func refold(r *rapid.T, intents *ClickIntents, records [][]byte) {
	open, before := intents.Open()
	fold := before.Clone()
	batch := fold.Begin(open.GetFrom())
	for offset := open.GetFrom(); offset < open.GetTo(); offset++ {
		if err := fold.Add(batch, offset, records[offset]); err != nil {
			r.Fatal(err)
		}
	}
	if err := fold.End(batch).Matches(open); err != nil {
		r.Fatal(err)
	}
}

func TestClickIntents(t *testing.T) {
	at := time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)
	type record struct {
		from, to int64
		time     time.Time
		rows     uint64
	}
	for name, given := range map[string]struct {
		records []record
		next    int64
		voids   uint64
		held    time.Time
		refused bool
	}{
		"one after the other":            {[]record{{0, 5, at, 1}, {5, 9, at, 1}}, 9, 0, time.Time{}, false},
		"of a writer that was overtaken": {[]record{{0, 5, at, 1}, {0, 7, at, 1}, {5, 6, at, 1}}, 6, 1, time.Time{}, false},
		"one is missing":                 {[]record{{0, 5, at, 1}, {6, 9, at, 1}}, 0, 0, time.Time{}, true},
		"backwards":                      {[]record{{0, -1, at, 1}}, 0, 0, time.Time{}, true},
		"a hold":                         {[]record{{0, 5, at, 1}, {5, 5, at.Add(time.Minute), 1}}, 5, 0, at.Add(time.Minute), false},
		"of a writer that does not know of a hold": {[]record{{0, 5, at, 1}, {5, 5, at.Add(time.Minute), 1}, {5, 9, at, 1}}, 5, 1, at.Add(time.Minute), false},
		"after a hold":               {[]record{{0, 5, at, 1}, {5, 5, at.Add(time.Minute), 1}, {5, 9, at.Add(time.Minute), 1}}, 9, 0, at.Add(time.Minute), false},
		"a hold that lies elsewhere": {[]record{{0, 5, at, 1}, {5, 5, at.Add(time.Minute), 0}}, 5, 1, time.Time{}, false},
		"a release":                  {[]record{{0, 0, at.Add(time.Minute), 0}, {0, 0, at, 1}, {0, 9, at, 1}}, 9, 0, at, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewClickIntents(2)
			var err error
			for offset, r := range given.records {
				i := &pb.SinkIntent{SchemaVersion: 1, Partition: 2, From: r.from, To: r.to, TimeUs: r.time.UnixMicro(), Rows: r.rows}
				value, errEncode := i.MarshalVT()
				if errEncode != nil {
					t.Fatal(errEncode)
				}
				if _, err = s.Add(int64(offset), value); err != nil {
					break
				}
			}
			if given.refused {
				if !errors.Is(err, ErrIntent) {
					t.Errorf("%v", err)
				}
				return
			}
			held := time.UnixMicro(0)
			if !given.held.IsZero() {
				held = given.held
			}
			if err != nil || s.Next() != given.next || s.Voids != given.voids || !s.HeldUntil().Equal(held) {
				t.Errorf("next %d, %d voids, held until %v, %v", s.Next(), s.Voids, s.HeldUntil().UTC(), err)
			}
		})
	}
}

func BenchmarkClicksFold(b *testing.B) {
	block := clickBlock("a")
	for i := range 1000 {
		block.Clicks = append(block.Clicks, &pb.Click{Sequence: uint64(i + 1), LinkId: 1 << 40, Namespace: "s.example", Code: "7Fk3aQ", Version: 1, TimeUs: 1_790_000_000_000_000,
			Status: 302, Country: "DE", ReferrerHost: "news.example", Device: "mobile", Os: "Android", Browser: "Firefox", Visitor: 1 << 60, Ip: []byte{1, 2, 3, 0}})
	}
	value := clickRecord(b, block)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		fold := NewClicks(0)
		if err := fold.Add(fold.Begin(0), 0, value); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "clicks/s")
}
