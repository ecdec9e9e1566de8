package events

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Checker applies the chain rule to one partition of an events topic, record by record, for a reader that keeps its own
// position. It is not safe for concurrent use.
type Checker struct {
	topic      string
	partition  int32
	partitions int
	next       int64
	maxL       int64
	voids      uint64
	stopped    *Alarm
	buckets    []*bucket // the bucket of bad keys, then the partition's own, as far as there are any
	dirty      []uint32  // buckets that changed since they were saved
	decoder    Decoder   // of CheckLent
}

type bucket struct {
	Chain
	commandOffset int64
	timeUS        int64
	controlSeq    uint64
	dirty         bool
}

// NewChecker starts a checker at offset 0 of a partition of a topic with this many partitions.
func NewChecker(topic string, partition int32, partitions int) *Checker {
	return &Checker{topic: topic, partition: partition, partitions: partitions}
}

// place returns where in buckets a bucket stands, -1 if it is not the partition's.
func (c *Checker) place(number uint32) int {
	first, last := BucketsOf(c.partition, c.partitions)
	switch {
	case number >= first && number <= last:
		return int(number-first) + 1
	case number == BadKeyBucket(c.partition):
		return 0
	}
	return -1
}

// find returns a bucket, nil if nothing is known of it.
func (c *Checker) find(number uint32) *bucket {
	if at := c.place(number); at >= 0 && at < len(c.buckets) {
		return c.buckets[at]
	}
	return nil
}

// put sets a bucket of the partition.
func (c *Checker) put(number uint32, b *bucket) {
	at := c.place(number)
	if at >= len(c.buckets) {
		c.buckets = append(c.buckets, make([]*bucket, at+1-len(c.buckets))...)
	}
	c.buckets[at] = b
}

// Restore puts the checker where an earlier one stood: the next offset to read, the largest low watermark seen, and then
// every bucket's head (RestoreHead).
func (c *Checker) Restore(next, maxL int64) { c.next, c.maxL = next, maxL }

// RestoreHead restores one bucket's head as Saved reported it.
func (c *Checker) RestoreHead(number uint32, head *pb.BucketHead) error {
	chain, err := restoreChain(head)
	if err == nil && c.place(number) < 0 {
		err = errForeignBucket
	}
	if err != nil {
		return fmt.Errorf("restoring bucket %d: %w", number, err)
	}
	c.put(number, &bucket{Chain: *chain, commandOffset: head.GetCommandOffset(), timeUS: head.GetTimeUs(), controlSeq: head.GetControlSeq()})
	return nil
}

// Place returns where the checker stands.
func (c *Checker) Place() Place { return Place{c.next, c.maxL} }

// Next returns the next offset to read.
func (c *Checker) Next() int64 { return c.next }

// MaxLowWatermark returns the largest L that any envelope carried, void ones too.
func (c *Checker) MaxLowWatermark() int64 { return c.maxL }

// Voids returns how many envelopes were void since the checker was made.
func (c *Checker) Voids() uint64 { return c.voids }

// Head is a bucket's state that decisions need besides its content.
type Head struct {
	Seq           uint64
	Hash          Hash
	CommandOffset int64 // highest command offset answered, -1: none
	TimeUS        int64
	ControlSeq    uint64
}

// Head returns the head of a bucket.
func (c *Checker) Head(number uint32) Head {
	b := c.find(number)
	if b == nil {
		return Head{CommandOffset: -1}
	}
	return Head{Seq: b.seq, Hash: b.head, CommandOffset: b.commandOffset, TimeUS: b.timeUS, ControlSeq: b.controlSeq}
}

// Saved calls f for every bucket that changed since the last call, with what RestoreHead needs. The message is reused
// between calls of f.
func (c *Checker) Saved(f func(number uint32, head *pb.BucketHead) error) error {
	var head pb.BucketHead
	for _, number := range c.dirty {
		b := c.find(number)
		b.save(&head)
		head.CommandOffset, head.TimeUs, head.ControlSeq = b.commandOffset, b.timeUS, b.controlSeq
		if err := f(number, &head); err != nil {
			return err
		}
		b.dirty = false
	}
	c.dirty = c.dirty[:0]
	return nil
}

// Heads calls f for every bucket that has an accepted envelope, in no order.
func (c *Checker) Heads(f func(number uint32, head Head)) {
	first, _ := BucketsOf(c.partition, c.partitions)
	for at := range c.buckets {
		number := first + uint32(at) - 1
		if at == 0 {
			number = BadKeyBucket(c.partition)
		}
		if h := c.Head(number); h.Seq > 0 {
			f(number, h)
		}
	}
}

// Check takes the next record of the partition and reports whether its envelope is accepted; a void one is returned too.
// An error is an *Alarm; after one, the checker stays stopped.
func (c *Checker) Check(offset int64, key, value []byte) (e *Envelope, accepted bool, err error) {
	return c.check(offset, key, value, DecodeEnvelope)
}

// CheckLent is Check, but the envelope is lent until the next call.
func (c *Checker) CheckLent(offset int64, key, value []byte) (e *Envelope, accepted bool, err error) {
	return c.check(offset, key, value, c.decoder.Decode)
}

func (c *Checker) check(offset int64, key, value []byte, decode func([]byte) (*Envelope, error)) (e *Envelope, accepted bool, err error) {
	if err := c.expect(offset); err != nil {
		return nil, false, err
	}
	e, err = decode(value)
	if err != nil {
		return nil, false, c.alarm(offset, NoBucket, err.Error())
	}
	accepted, err = c.link(offset, key, e)
	if err != nil {
		return nil, false, err
	}
	return e, accepted, nil
}

// CheckEncoded is Check for whoever has just encoded the record: e is what was encoded, with the hash of the bytes that the
// log confirmed at this offset. It saves decoding and hashing them again; the rule is the same.
func (c *Checker) CheckEncoded(offset int64, key []byte, e *Envelope) (accepted bool, err error) {
	if err := c.expect(offset); err != nil {
		return false, err
	}
	if err := accept(e.Envelope); err != nil {
		return false, c.alarm(offset, NoBucket, err.Error())
	}
	return c.link(offset, key, e)
}

// expect refuses a record that is not the next one, and all after an alarm.
func (c *Checker) expect(offset int64) error {
	if c.stopped != nil {
		return c.stopped
	}
	if offset != c.next {
		return c.alarm(offset, NoBucket, fmt.Sprintf("gap in offsets: expected %d", c.next))
	}
	return nil
}

// link takes a decoded envelope into its bucket's chain.
func (c *Checker) link(offset int64, key []byte, e *Envelope) (accepted bool, err error) {
	if err := c.checkPlace(e, key); err != nil {
		return false, c.alarm(offset, e.GetBucket(), err.Error())
	}
	b := c.bucket(e.GetBucket())
	accepted, err = b.Next(e.GetSeq(), Hash(e.GetPrevHash()), e.Hash)
	if err != nil {
		return false, c.alarm(offset, e.GetBucket(), err.Error())
	}
	c.next = offset + 1
	c.maxL = max(c.maxL, e.GetLowWatermark())
	if !b.dirty {
		b.dirty, c.dirty = true, append(c.dirty, e.GetBucket())
	}
	if !accepted {
		c.voids++
		return false, nil
	}
	b.commandOffset = max(b.commandOffset, e.GetCommandOffset())
	if e.GetOutcome().GetError() != ErrorCommandExpired {
		b.timeUS = max(b.timeUS, e.GetStamp().GetTimeUs())
	}
	b.controlSeq = max(b.controlSeq, e.GetStamp().GetControlSeq())
	return true, nil
}

// ErrorCommandExpired is the outcome whose stamp does not move its bucket's time: the writer's clock may be wrong.
const ErrorCommandExpired = "command_expired"

var errForeignBucket = errors.New("the bucket does not belong to this partition")

func (c *Checker) checkPlace(e *Envelope, key []byte) error {
	if len(key) != 2 || uint32(binary.BigEndian.Uint16(key)) != e.GetBucket() {
		return fmt.Errorf("record key %x is not bucket %d", key, e.GetBucket())
	}
	if PartitionOf(e.GetBucket(), c.partitions) != c.partition {
		return errForeignBucket
	}
	return nil
}

func (c *Checker) bucket(number uint32) *bucket {
	b := c.find(number)
	if b == nil {
		b = &bucket{commandOffset: -1}
		c.put(number, b)
	}
	return b
}

func (c *Checker) alarm(offset int64, number uint32, reason string) *Alarm {
	c.stopped = &Alarm{Topic: c.topic, Partition: c.partition, Offset: offset, Bucket: number, Reason: reason}
	return c.stopped
}
