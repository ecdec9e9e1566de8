package eventlog

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hoplog/hoplog/events"
)

// Header is one record header.
type Header = events.Attribute

// Record is one record of a partition. Of a record to be appended, Offset is ignored and a zero Time means now; the
// slices must not be changed until the append is answered. Of a record that was read, the slices share memory with
// their batch: keep a copy of what is kept for long.
type Record struct {
	Offset  int64
	Key     []byte
	Value   []byte
	Headers []Header
	Time    time.Time // millisecond precision
}

// Batch is a run of records of one partition in offset order.
type Batch struct {
	Topic     string
	Partition int32
	Records   []Record
	// Behind is about how many records of the partition come after these: what a broker said in passing, never the truth.
	Behind int64
}

func toKgo(topic string, partition int32, r *Record) *kgo.Record {
	k := &kgo.Record{Topic: topic, Partition: partition, Key: r.Key, Value: r.Value, Timestamp: r.Time}
	if len(r.Headers) > 0 {
		k.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			k.Headers[i] = kgo.RecordHeader(h)
		}
	}
	return k
}

// fromKgo copies the records of one fetched partition. All headers of the batch share one array.
func fromKgo(in []*kgo.Record) []Record {
	n := 0
	for _, k := range in {
		n += len(k.Headers)
	}
	headers := make([]Header, 0, n)
	out := make([]Record, len(in))
	for i, k := range in {
		out[i] = Record{Offset: k.Offset, Key: k.Key, Value: k.Value, Time: k.Timestamp}
		if len(k.Headers) == 0 {
			continue
		}
		from := len(headers)
		for _, h := range k.Headers {
			headers = append(headers, Header(h))
		}
		out[i].Headers = headers[from:len(headers):len(headers)]
	}
	return out
}
