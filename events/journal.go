package events

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrJournal says that what a store holds of a reader's place and heads cannot be read.
var ErrJournal = errors.New("stored heads are damaged")

// Place is where a partition's reader stands, besides its buckets' heads.
type Place struct {
	Next int64 // offset to read next
	MaxL int64 // largest low watermark seen
}

// SavedHead is one bucket's head as it is stored.
type SavedHead struct {
	Bucket  uint32
	Seq     uint64
	Encoded []byte // pb.BucketHead
}

// Journal is how a store keeps a partition's place and heads, in numbered pairs: a commit adds one with the place after it
// and the heads that it moved; when the pairs have grown to a multiple of what all heads need, one pair with all of them
// takes their place. A commit of thousands of envelopes moves as many heads, and a key for each would cost as much as the
// records do. The zero value is the journal of a new store. It is not safe for concurrent use.
type Journal struct {
	place Place
	heads map[uint32][]byte // of all buckets that moved ever, encoded
	first uint64            // number of the oldest pair
	next  uint64            // number of the next pair
	size  int               // of all pairs
	full  int               // of the last pair that held all heads
}

// JournalPairs takes what a journal changes into the commit at hand.
type JournalPairs interface {
	// Put adds a pair and returns its value, of that size and any content, to be filled before the commit.
	Put(number uint64, size int) []byte
	// Drop takes a pair away.
	Drop(number uint64)
}

const (
	journalSlack  = 16 << 10 // size that is always allowed
	journalGrowth = 3        // times the size of all heads that is allowed
	journalPlace  = 16       // bytes of the place in a pair
)

// Place returns where the last commit has led.
func (j *Journal) Place() Place { return j.place }

// Empty reports that the journal has no pair.
func (j *Journal) Empty() bool { return j.first == j.next }

// Add writes where a commit leads.
func (j *Journal) Add(to JournalPairs, at Place, moved []SavedHead) {
	j.place = at
	size := journalPlace
	for _, h := range moved {
		j.keep(h.Bucket, h.Encoded)
		size += headSize(h.Encoded)
	}
	if j.size+size > journalSlack+journalGrowth*j.full {
		j.Rewrite(to)
		return
	}
	value := j.place.encode(to.Put(j.next, size))
	for _, h := range moved {
		value = appendHead(value, h.Bucket, h.Encoded)
	}
	j.next++
	j.size += size
}

// Rewrite writes all heads and takes away what was written before.
func (j *Journal) Rewrite(to JournalPairs) {
	for number := j.first; number < j.next; number++ {
		to.Drop(number)
	}
	size := journalPlace
	for _, encoded := range j.heads {
		size += headSize(encoded)
	}
	value := j.place.encode(to.Put(j.next, size))
	for bucket, encoded := range j.heads {
		value = appendHead(value, bucket, encoded)
	}
	j.first, j.next = j.next, j.next+1
	j.size, j.full = size, size
}

func (j *Journal) keep(bucket uint32, encoded []byte) {
	if j.heads == nil {
		j.heads = map[uint32][]byte{}
	}
	j.heads[bucket] = append(j.heads[bucket][:0], encoded...)
}

func (p Place) encode(into []byte) []byte {
	into = binary.BigEndian.AppendUint64(into[:0], uint64(p.Next))
	return binary.BigEndian.AppendUint64(into, uint64(p.MaxL))
}

// A head is written as its bucket and its length, two bytes each, and its encoding.
func headSize(encoded []byte) int { return 4 + len(encoded) }

func appendHead(to []byte, bucket uint32, encoded []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, uint16(bucket))
	to = binary.BigEndian.AppendUint16(to, uint16(len(encoded)))
	return append(to, encoded...)
}

// Replay reads the next pair back. Pairs come in the order of their numbers. Errors are ErrJournal.
func (j *Journal) Replay(number uint64, value []byte) error {
	if j.next == 0 {
		j.first, j.full = number, len(value)
	}
	j.next, j.size = number+1, j.size+len(value)
	if len(value) < journalPlace {
		return fmt.Errorf("%w: position of %d bytes", ErrJournal, len(value))
	}
	j.place = Place{int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint64(value[8:]))}
	for rest := value[journalPlace:]; len(rest) > 0; {
		if len(rest) < 4 {
			return fmt.Errorf("%w: half a head", ErrJournal)
		}
		bucket, size := uint32(binary.BigEndian.Uint16(rest)), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+size || bucket >= 2*Buckets {
			return fmt.Errorf("%w: head of bucket %d", ErrJournal, bucket)
		}
		j.keep(bucket, rest[4:4+size])
		rest = rest[4+size:]
	}
	return nil
}

// Restore puts a new checker where the journal stands. Errors are ErrJournal.
func (j *Journal) Restore(c *Checker) error {
	c.Restore(j.place.Next, j.place.MaxL)
	for bucket, encoded := range j.heads {
		head := &pb.BucketHead{}
		if err := head.UnmarshalVT(encoded); err != nil {
			return fmt.Errorf("%w: head of bucket %d: %w", ErrJournal, bucket, err)
		}
		if err := c.RestoreHead(bucket, head); err != nil {
			return fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}
	return nil
}

// Moved collects the heads that changed since Saved or Moved was called last. All of them share one array.
func (c *Checker) Moved() (out []SavedHead, err error) {
	var buffer []byte
	out = make([]SavedHead, 0, len(c.dirty))
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
		out = append(out, SavedHead{bucket, head.GetSeq(), buffer[from:]})
		return nil
	})
	return out, err
}
