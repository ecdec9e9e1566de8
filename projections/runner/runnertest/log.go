package runnertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Log is a topic in memory, and a runner.Source. Its clock is a counter of microseconds. Safe for concurrent use.
type Log struct {
	Topic      string
	partitions int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	records [][]eventlog.Record
	starts  []int64
	shipped []int
	heads   map[uint32]head
	now     int64
	nextID  uint64
	links   map[string]*pb.LinkRef
	version map[string]uint64
}

type head struct {
	seq  uint64
	hash events.Hash
}

// NewLog returns an empty topic.
func NewLog(topic string, partitions int) *Log {
	return &Log{Topic: topic, partitions: partitions, changed: make(chan struct{}), records: make([][]eventlog.Record, partitions),
		starts: make([]int64, partitions), shipped: make([]int, partitions), heads: map[uint32]head{}, now: 1_700_000_000_000_000,
		nextID: 1, links: map[string]*pb.LinkRef{}, version: map[string]uint64{}}
}

// Append chains an envelope to its bucket and fills in what is missing: the stamp, the outcome, the command offset.
func (l *Log) Append(e *pb.Envelope) *events.Envelope {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.heads[e.GetBucket()]
	l.fill(e, h)
	value, hash, err := events.EncodeEnvelope(e)
	if err != nil {
		panic(err)
	}
	l.heads[e.GetBucket()] = head{e.GetSeq(), hash}
	l.append(e.GetBucket(), value)
	return &events.Envelope{Envelope: e, Hash: hash}
}

// AppendVoid appends an envelope that extends the same head as the bucket's last one: that of a writer who came too late.
func (l *Log) AppendVoid(bucket uint32) { l.Fork(bucket, nil) }

// Fork is AppendVoid when after is nil. Else it appends an envelope that follows another void one, by the same late writer.
func (l *Log) Fork(bucket uint32, after *events.Envelope) *events.Envelope {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &pb.Envelope{Bucket: bucket, Actor: "a writer that woke up"}
	if after != nil {
		l.fill(e, head{after.GetSeq(), after.Hash})
	} else {
		last := l.last(bucket)
		l.fill(e, head{last.GetSeq() - 1, events.Hash(last.GetPrevHash())})
	}
	value, hash, err := events.EncodeEnvelope(e)
	if err != nil {
		panic(err)
	}
	l.append(bucket, value)
	return &events.Envelope{Envelope: e, Hash: hash}
}

// last returns the newest envelope of a bucket that counts.
func (l *Log) last(bucket uint32) *events.Envelope {
	records := l.records[events.PartitionOf(bucket, l.partitions)]
	for i := len(records) - 1; ; i-- {
		e, err := events.DecodeEnvelope(records[i].Value)
		if err == nil && e.GetBucket() == bucket && e.Hash == l.heads[bucket].hash {
			return e
		}
	}
}

// AppendRaw appends any bytes to the partition of a bucket.
func (l *Log) AppendRaw(bucket uint32, value []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(bucket, value)
}

func (l *Log) fill(e *pb.Envelope, h head) {
	l.now++
	e.SchemaVersion, e.Seq, e.PrevHash = events.SchemaVersion, h.seq+1, h.hash[:]
	e.CommandOffset = int64(len(l.records[events.PartitionOf(e.GetBucket(), l.partitions)]))
	if e.Stamp == nil {
		e.Stamp = &pb.Stamp{}
	}
	if e.Stamp.TimeUs == 0 {
		e.Stamp.TimeUs = l.now
	}
	if e.Outcome == nil {
		e.Outcome = &pb.Outcome{}
	}
	if e.CommandId == nil {
		e.CommandId = binary.BigEndian.AppendUint64(make([]byte, 8), uint64(l.now))
	}
}

func (l *Log) append(bucket uint32, value []byte) {
	p := events.PartitionOf(bucket, l.partitions)
	l.records[p] = append(l.records[p], eventlog.Record{Offset: l.starts[p] + int64(len(l.records[p])), Key: events.BucketKey(bucket), Value: value})
	l.tell()
}

// tell wakes the tails; the caller holds mu.
func (l *Log) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Head returns the position of a bucket's last envelope.
func (l *Log) Head(bucket uint32) events.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return events.Position{Stream: events.StreamLink, Bucket: bucket, Seq: l.heads[bucket].seq}
}

// Truncate drops the records of a partition from an offset on, as a log that lost its tail.
func (l *Log) Truncate(partition int32, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[partition] = l.records[partition][:from-l.starts[partition]]
	l.tell()
}

// Trim drops the records of a partition before an offset, as retention would.
func (l *Log) Trim(partition int32, before int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[partition] = l.records[partition][before-l.starts[partition]:]
	l.starts[partition] = before
	l.tell()
}

// Ship appends to a broker what this log has and was not shipped yet.
func (l *Log) Ship(ctx context.Context, to *eventlog.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	appender, err := to.NewAppender(l.Topic)
	if err != nil {
		return err
	}
	defer appender.Close()
	const batch = 2000
	for p := range l.records {
		for l.shipped[p] < len(l.records[p]) {
			from := l.shipped[p]
			end := min(from+batch, len(l.records[p]))
			if err := appender.Append(ctx, int32(p), l.records[p][from:end], int64(from)); err != nil {
				return fmt.Errorf("shipping partition %d: %w", p, err)
			}
			l.shipped[p] = end
		}
	}
	return nil
}

// Starts implements runner.Source.
func (l *Log) Starts(context.Context, string) ([]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64(nil), l.starts...), nil
}

// Ends implements runner.Source.
func (l *Log) Ends(context.Context, string) ([]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := make([]int64, l.partitions)
	for p := range ends {
		ends[p] = l.starts[p] + int64(len(l.records[p]))
	}
	return ends, nil
}

// NewTail implements runner.Source.
func (l *Log) NewTail(_ string, from map[int32]int64) (runner.Tail, error) {
	return &tail{log: l, next: from, closed: make(chan struct{})}, nil
}

type tail struct {
	log    *Log
	next   map[int32]int64
	closed chan struct{}
	first  int32 // the partition that is asked first, so that none starves
}

// Poll implements runner.Tail.
func (t *tail) Poll(ctx context.Context, most int) ([]eventlog.Batch, error) {
	for {
		out, changed, err := t.take(most)
		if err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.closed:
			return nil, eventlog.ErrClosed
		}
	}
}

func (t *tail) take(most int) (out []eventlog.Batch, changed chan struct{}, err error) {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	t.first = (t.first + 1) % int32(t.log.partitions)
	each := max(1, most/t.log.partitions)
	for i := range int32(t.log.partitions) {
		p := (t.first + i) % int32(t.log.partitions)
		from, all := int(t.next[p]-t.log.starts[p]), t.log.records[p]
		if from < 0 || from > len(all) {
			return nil, nil, &eventlog.OutOfRangeError{Topic: t.log.Topic, Partition: p, Want: t.next[p], Start: t.log.starts[p]}
		}
		if n := min(each, len(all)-from, most); n > 0 {
			out = append(out, eventlog.Batch{Topic: t.log.Topic, Partition: p, Records: all[from : from+n : from+n], Behind: int64(len(all) - from - n)})
			t.next[p] += int64(n)
			most -= n
		}
	}
	return out, t.log.changed, nil
}

// Close implements runner.Tail.
func (t *tail) Close() { close(t.closed) }
