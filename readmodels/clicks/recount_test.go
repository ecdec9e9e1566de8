package clicks

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// drawBlocks draws records of a partition with a few sources, repeats, gaps and disorder.
func drawBlocks(r *rapid.T) (out []*pb.ClickBlock) {
	for range rapid.IntRange(0, 12).Draw(r, "records") {
		b := &pb.ClickBlock{SchemaVersion: 1, Node: rapid.SampledFrom([]string{"", "a", "b", "ab"}).Draw(r, "node"),
			Boot: bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 1}).Draw(r, "boot")}, 16), Partition: rapid.SampledFrom([]uint32{0, 1, 1 << 31}).Draw(r, "partition")}
		for range rapid.IntRange(0, 8).Draw(r, "clicks") {
			b.Clicks = append(b.Clicks, &pb.Click{Sequence: rapid.Uint64Range(1, 30).Draw(r, "sequence"), LinkId: rapid.Uint64().Draw(r, "link"),
				TimeUs: rapid.Int64Range(0, 4_000_000_000_000_000).Draw(r, "time"), Class: pb.ClickClass(rapid.Int32Range(0, 3).Draw(r, "class")),
				Visitor: rapid.Uint64().Draw(r, "visitor"), Namespace: "s.example", Code: "x", Ip: []byte{1, 2, 3, 4}})
		}
		out = append(out, b)
	}
	return out
}

// The sink's fold and the recount, which share no code, agree on which clicks count.
func TestRecountAgreesWithTheFold(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		fold := projections.NewClicks(0)
		from, to := forever()
		count := newRecount(from, to)
		for offset, block := range drawBlocks(r) {
			value, err := block.MarshalVT()
			if err != nil {
				r.Fatal(err)
			}
			agree(r, fold, count, int64(offset), value)
		}
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

// agree gives one record to both. What the fold takes, the recount takes and counts the same.
func agree(t failer, fold *projections.Clicks, count *recount, offset int64, value []byte) {
	batch := fold.Begin(offset)
	foldErr := fold.Add(batch, offset, value)
	if foldErr != nil {
		return
	}
	got, err := count.add(offset, value)
	if err != nil {
		t.Fatalf("record %d: the fold takes it, the recount says %v", offset, err)
	}
	var probes uint64
	for _, row := range batch.Rows {
		if row.Click.GetClass() == pb.ClickClass_PROBE {
			probes++
		}
	}
	if want := fingerprintOf(batch); got.fingerprint != want || got.clicks != want.rows-probes {
		t.Fatalf("record %d: the fold gives %+v, the recount %+v", offset, want, got)
	}
}

// FuzzClickRecord: no record makes either decoder panic, and they agree on every record that the fold takes, however it is
// encoded. A row that the fold takes has what its columns need.
func FuzzClickRecord(f *testing.F) {
	n := newNode(f, nil, "n1")
	f.Add(encode(f, n.block(0, 1, every(noon, 1, 3)...)), encode(f, n.block(3, 1, noon)))
	f.Add([]byte{}, []byte{0xff})
	f.Add(append(encode(f, n.block(0, 1, noon)), encode(f, n.block(0, 1, noon))...), []byte{0x0a})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		fold := projections.NewClicks(0)
		from, to := forever()
		count := newRecount(from, to)
		for offset, value := range [][]byte{a, b, a} {
			agree(t, fold, count, int64(offset), value)
			batch := fold.Begin(int64(offset))
			if fold.Add(batch, int64(offset), value) == nil && len(batch.Rows) > 0 {
				t.Fatalf("a record twice in a row counts twice: %+v", batch.Rows)
			}
		}
	})
}

func TestRecountTakesTheLastOfRepeatedFields(t *testing.T) {
	// A message may hold a scalar field more than once; the last counts, for every decoder.
	n := newNode(t, nil, "n1")
	value := append(encode(t, n.block(0, 1, noon)), 0x20, 0x07) // partition = 7
	source, clicks, err := decodeRecord(value)
	if err != nil || len(clicks) != 1 || source != sourceKey([]byte("n1"), n.boot, 7) {
		t.Errorf("%q %v %v", source, clicks, err)
	}
}
