package runner

import (
	"encoding/binary"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// place is where a partition's reader stands, besides its buckets' heads.
type place struct{ next, maxL int64 }

// savedHead is one bucket's head at the end of a batch.
type savedHead struct {
	bucket  uint32
	seq     uint64
	encoded []byte // pb.BucketHead
}

// journal is how a partition's place and heads are kept: a batch adds one pair with the place after it and the heads that
// it moved; when the pairs have grown to a multiple of what all heads need, one pair with all of them takes their place. A
// batch of thousands of envelopes moves as many heads, and a key for each would cost as much as the records do.
type journal struct {
	partition int32
	place     place
	heads     map[uint32][]byte // of all buckets that moved ever, encoded
	first     uint64            // number of the oldest pair
	next      uint64            // number of the next pair
	size      int               // of all pairs
	full      int               // of the last pair that held all heads
}

const (
	journalSlack  = 16 << 10 // size that is always allowed
	journalGrowth = 3        // times the size of all heads that is allowed
	journalPlace  = 16       // bytes of the place in a pair
)

func newJournal(partition int32) *journal {
	return &journal{partition: partition, heads: map[uint32][]byte{}}
}

func (j *journal) key(number uint64) []byte {
	key := binary.BigEndian.AppendUint32(journalPrefix[:2:2], uint32(j.partition))
	return binary.BigEndian.AppendUint64(key, number)
}

func decodeJournalKey(key []byte) (partition int, number uint64, err error) {
	if len(key) != len(journalPrefix)+12 {
		return 0, 0, fmt.Errorf("%w: position under %x", ErrDamaged, key)
	}
	key = key[len(journalPrefix):]
	return int(binary.BigEndian.Uint32(key)), binary.BigEndian.Uint64(key[4:]), nil
}

// add writes where a batch has led.
func (j *journal) add(w *Write, p place, moved []savedHead) {
	j.place = p
	size := journalPlace
	for _, h := range moved {
		j.heads[h.bucket] = append(j.heads[h.bucket][:0], h.encoded...)
		size += headSize(h.encoded)
	}
	if j.size+size > journalSlack+journalGrowth*j.full {
		j.rewrite(w)
		return
	}
	value := j.encodePlace(w.arena.take(size))
	for _, h := range moved {
		value = appendHead(value, h.bucket, h.encoded)
	}
	w.append(j.key(j.next), value)
	j.next++
	j.size += size
}

// rewrite writes all heads and takes away what was written before.
func (j *journal) rewrite(w *Write) {
	for number := j.first; number < j.next; number++ {
		w.append(j.key(number), nil)
	}
	size := journalPlace
	for _, encoded := range j.heads {
		size += headSize(encoded)
	}
	value := j.encodePlace(w.arena.take(size))
	for bucket, encoded := range j.heads {
		value = appendHead(value, bucket, encoded)
	}
	w.append(j.key(j.next), value)
	j.first, j.next = j.next, j.next+1
	j.size, j.full = size, size
}

func (j *journal) encodePlace(into []byte) []byte {
	into = binary.BigEndian.AppendUint64(into[:0], uint64(j.place.next))
	return binary.BigEndian.AppendUint64(into, uint64(j.place.maxL))
}

// A head is written as its bucket and its length, two bytes each, and its encoding.
func headSize(encoded []byte) int { return 4 + len(encoded) }

func appendHead(to []byte, bucket uint32, encoded []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, uint16(bucket))
	to = binary.BigEndian.AppendUint16(to, uint16(len(encoded)))
	return append(to, encoded...)
}

// replay reads the next pair back. Pairs come in the order of their numbers.
func (j *journal) replay(number uint64, value []byte) error {
	if j.next == 0 {
		j.first, j.full = number, len(value)
	}
	j.next, j.size = number+1, j.size+len(value)
	if len(value) < journalPlace {
		return fmt.Errorf("%w: position of %d bytes", ErrDamaged, len(value))
	}
	j.place = place{int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint64(value[8:]))}
	for rest := value[journalPlace:]; len(rest) > 0; {
		if len(rest) < 4 {
			return fmt.Errorf("%w: half a head", ErrDamaged)
		}
		bucket, size := uint32(binary.BigEndian.Uint16(rest)), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+size || bucket >= maxBuckets {
			return fmt.Errorf("%w: head of bucket %d", ErrDamaged, bucket)
		}
		j.heads[bucket] = append(j.heads[bucket][:0], rest[4:4+size]...)
		rest = rest[4+size:]
	}
	return nil
}

// restore puts a new checker where the journal stands.
func (j *journal) restore(c *events.Checker) error {
	c.Restore(j.place.next, j.place.maxL)
	for bucket, encoded := range j.heads {
		head := &pb.BucketHead{}
		if err := head.UnmarshalVT(encoded); err != nil {
			return fmt.Errorf("%w: head of bucket %d: %w", ErrDamaged, bucket, err)
		}
		if err := c.RestoreHead(bucket, head); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return nil
}

// headsOf collects the heads that changed since the last call. All of them share one array.
func headsOf(c *events.Checker) (out []savedHead, err error) {
	var buffer []byte
	err = c.Saved(func(bucket uint32, head *pb.BucketHead) error {
		from, n := len(buffer), head.SizeVT()
		if n > 1<<16-1 {
			return fmt.Errorf("the head of bucket %d has %d bytes", bucket, n)
		}
		if cap(buffer)-from < n {
			buffer, from = make([]byte, 0, max(n, 16<<10)), 0
		}
		buffer = buffer[:from+n]
		if _, err := head.MarshalToSizedBufferVT(buffer[from:]); err != nil {
			return fmt.Errorf("encoding the head of bucket %d: %w", bucket, err)
		}
		out = append(out, savedHead{bucket, head.GetSeq(), buffer[from:]})
		return nil
	})
	return out, err
}
