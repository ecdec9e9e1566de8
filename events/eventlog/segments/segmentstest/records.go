package segmentstest

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record of a partition with its time.
type Record struct {
	kmsg.Record
	Millis int64
}

// Records reads all records of a partition.
func Records(tb testing.TB, partition string) (records []Record) {
	tb.Helper()
	for _, path := range Segments(tb, partition) {
		content, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		for len(content) > 0 {
			size := 12 + int(binary.BigEndian.Uint32(content[8:]))
			var b kmsg.RecordBatch
			if err := b.ReadFrom(content[:size]); err != nil {
				tb.Fatal(err)
			}
			records = append(records, unpack(tb, &b)...)
			content = content[size:]
		}
	}
	return records
}

func unpack(tb testing.TB, b *kmsg.RecordBatch) (records []Record) {
	raw, err := kgo.DefaultDecompressor().Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&7))
	if err != nil {
		tb.Fatal(err)
	}
	for len(raw) > 0 {
		length, n := binary.Varint(raw)
		var r kmsg.Record
		if err := r.ReadFrom(raw[:n+int(length)]); err != nil {
			tb.Fatal(err)
		}
		records = append(records, Record{r, b.FirstTimestamp + r.TimestampDelta64})
		raw = raw[n+int(length):]
	}
	return records
}

// Rewrite replaces a partition's records, offsets from 0 on, by what change makes of them. The new files are as good as any:
// right checksums, no gap, no index or snapshot that says otherwise.
func Rewrite(tb testing.TB, partition string, change func([]Record) []Record) {
	tb.Helper()
	records := change(Records(tb, partition))
	old, err := filepath.Glob(filepath.Join(partition, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			tb.Fatal(err)
		}
	}
	var file []byte
	for offset, r := range records {
		file = append(file, pack(int64(offset), r)...)
	}
	if err := os.WriteFile(filepath.Join(partition, "0.dat"), file, 0o644); err != nil {
		tb.Fatal(err)
	}
}

// pack makes a batch of one record, of no producer.
func pack(offset int64, r Record) []byte {
	r.OffsetDelta, r.TimestampDelta64, r.Length = 0, 0, 0
	body := r.AppendTo(nil)[1:] // without the length, which was written as one byte
	b := kmsg.RecordBatch{FirstOffset: offset, Magic: 2, FirstTimestamp: r.Millis, MaxTimestamp: r.Millis, ProducerID: -1,
		ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: append(binary.AppendVarint(nil, int64(len(body))), body...)}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
