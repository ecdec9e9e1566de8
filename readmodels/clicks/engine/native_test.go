package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
)

// sampleBlock is written by another implementation of the format.
func sampleBlock(t testing.TB, revision int) []byte {
	t.Helper()
	const rows = 3
	name := new(proto.ColStr)
	low := proto.NewLowCardinality[string](new(proto.ColStr))
	list := proto.NewArray[string](new(proto.ColStr))
	lowList := proto.NewArray[string](proto.NewLowCardinality[string](new(proto.ColStr)))
	null := proto.NewColNullable[uint32](new(proto.ColUInt32))
	m := proto.NewMap[string, uint64](new(proto.ColStr), new(proto.ColUInt64))
	var id proto.ColUUID
	var n proto.ColUInt64
	for i := range rows {
		name.Append(string(bytes.Repeat([]byte("x"), i*100)))
		low.Append([]string{"a", "b", "a"}[i])
		list.Append(make([]string, i))
		lowList.Append(make([]string, i))
		null.Append(proto.NewNullable(uint32(i)))
		m.Append(map[string]uint64{"k": uint64(i)})
		id.Append([16]byte{byte(i)})
		n.Append(uint64(i))
	}
	input := proto.Input{
		{Name: "name", Data: name}, {Name: "low", Data: low}, {Name: "list", Data: list}, {Name: "low list", Data: lowList},
		{Name: "null", Data: null}, {Name: "map", Data: m}, {Name: "id", Data: id}, {Name: "n", Data: n},
	}
	var b proto.Buffer
	block := proto.Block{Info: proto.BlockInfo{BucketNum: -1}, Columns: len(input), Rows: rows}
	if revision > 0 {
		block.Info.Encode(&b)
	}
	if err := block.EncodeRawBlock(&b, revision, input); err != nil {
		t.Fatal(err)
	}
	return b.Buf
}

func TestNativeRevisions(t *testing.T) {
	plain := sampleBlock(t, 0)
	for _, revision := range []int{0, 54400, 54454, 54460} {
		var got bytes.Buffer
		if err := writeNative(&got, append(plain, plain...), uint64(revision)); err != nil {
			t.Fatal(err)
		}
		want := sampleBlock(t, revision)
		if want = append(want, want...); !bytes.Equal(got.Bytes(), want) {
			t.Errorf("revision %d:\ngot  %q\nwant %q", revision, got.Bytes(), want)
		}
	}
}

func TestCutBlockIsAnError(t *testing.T) {
	plain := sampleBlock(t, 0)
	for n := 1; n < len(plain); n++ {
		if err := writeNative(new(bytes.Buffer), plain[:n], 54460); err == nil {
			t.Fatalf("%d of %d bytes are taken for a block", n, len(plain))
		}
	}
}

func TestTypes(t *testing.T) {
	for text, bytesOfTwo := range map[string]int{
		"UInt8": 2, "DateTime64(6, 'UTC')": 16, "Enum8('a(' = 1, 'b,\\')' = 2)": 2, "FixedString(7)": 14, "Decimal(18, 4)": 16,
		"Decimal(10, 2)": 16, "Decimal(76, 0)": 64, "Nullable(UUID)": 34, "Tuple(a UInt8, `b c` String)": 4,
		"Tuple(Tuple(UInt8, UInt16), Float64)": 22, "SimpleAggregateFunction(max, DateTime('UTC'))": 8, "Point": 32,
		"IntervalSecond": 16, "Tuple()": 2, "Array(Array(UInt64))": 16, "Map(LowCardinality(String), UInt64)": 24, "Nested(a UInt8, b Polygon)": 16,
	} {
		ct, err := parseType(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		data := make([]byte, 100)
		data[0] = 1 // the version of a dictionary
		if text == "Tuple(a UInt8, `b c` String)" {
			data[0] = 0
		}
		r := &nativeReader{data: data}
		ct.skipPrefix(r)
		ct.skip(r, 2)
		if r.err != nil || r.pos != bytesOfTwo {
			t.Errorf("%s: %d bytes, %v; want %d", text, r.pos, r.err, bytesOfTwo)
		}
	}
	for _, text := range []string{"", "AggregateFunction(uniq, UInt64)", "JSON", "Variant(String, UInt8)", "Dynamic", "Array(", "Array()",
		"Array(UInt8, UInt8)", "FixedString(x)", "Decimal(99, 1)", "Nullable(Object)"} {
		var e *exception
		if _, err := parseType(text); !errors.As(err, &e) || e.code != codeNotImplemented {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever the bytes: no panic, no endless loop, and what is taken as a block is copied whole.
func FuzzWriteNative(f *testing.F) {
	f.Add(sampleBlock(f, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if writeNative(&out, data, 1) == nil {
			if got := bytes.ReplaceAll(out.Bytes(), blockInfo, nil); len(got) > len(data) {
				t.Fatalf("%d bytes of %d", len(got), len(data))
			}
		}
	})
}
