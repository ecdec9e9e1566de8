package spool

import (
	"hash/crc32"
	"sync/atomic"
	"time"
	"unsafe"
)

// The header of a segment, at its start:
//
//	 0  commit     bytes (20 bits), records (14), low bits of the payload's CRC-32C (30): one word, so one store commits
//	 8  stamp      0: free; else larger than that of every segment taken before
//	16  opened     µs since 1970
//	24  partition  uint32
//	32  boot       16 bytes
//	48  first      sequence of the first record
const segmentHeader = 64

const (
	commitBytesBits   = 20
	commitRecordsBits = 14
	commitSumBits     = 64 - commitBytesBits - commitRecordsBits

	// MaxSegmentBytes bounds the size of a segment.
	MaxSegmentBytes = 1 << commitBytesBits
	maxRecords      = 1<<commitRecordsBits - 1
)

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Identity says whose records a segment holds: sequences count up from First within one partition of one boot.
type Identity struct {
	Partition int32
	Boot      [16]byte
	First     uint64
}

// Segment is a piece of the spool that one partition fills. Not safe for concurrent use: its owner has a lock, or is alone.
type Segment struct {
	Identity
	Opened time.Time

	memory  []byte // of the map: header and payload
	used    int    // bytes of the payload
	records int
	sum     uint32
}

func (s *Segment) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&s.memory[at])) }

func (s *Segment) payload() []byte { return s.memory[segmentHeader:] }

// Records returns how many records were committed, the prefix not counted.
func (s *Segment) Records() uint64 { return uint64(s.records) }

// Len returns the bytes that were committed.
func (s *Segment) Len() int { return s.used }

// Bytes returns what was committed: the prefix and the records, one after the other. It is the spool's memory: it changes
// when the segment is released.
func (s *Segment) Bytes() []byte { return s.payload()[:s.used] }

// Fits reports whether a record of that many bytes can be committed.
func (s *Segment) Fits(size int) bool {
	return s.records < maxRecords && len(s.payload())-s.used >= size
}

// Tail returns the free room, without contents, for the next record to be appended to. Nothing of it counts before Commit.
func (s *Segment) Tail() []byte { return s.payload()[s.used:s.used] }

// Commit makes the bytes that were appended to Tail the next record. False: they outgrew the room, and nothing happened.
func (s *Segment) Commit(record []byte) bool {
	if !s.Fits(len(record)) {
		return false
	}
	s.records++
	s.extend(record)
	return true
}

// extend takes over bytes that already lie at the tail. The store of one aligned word is what commits: a process that ends
// before it leaves what was there before.
func (s *Segment) extend(tail []byte) {
	s.used += len(tail)
	s.sum = crc32.Update(s.sum, castagnoli, tail)
	atomic.StoreUint64(s.word(0), commitWord(s.used, s.records, s.sum))
}

func commitWord(used, records int, sum uint32) uint64 {
	return uint64(used)<<(64-commitBytesBits) | uint64(records)<<commitSumBits | uint64(sum)&(1<<commitSumBits-1)
}

// open prepares a free segment. The stamp comes last: without it the segment counts as free.
func (s *Segment) open(id Identity, stamp uint64, prefix []byte, now time.Time) {
	s.Identity, s.Opened = id, now
	s.used, s.records, s.sum = 0, 0, 0
	*s.word(16) = uint64(now.UnixMicro())
	*s.word(24) = uint64(uint32(id.Partition))
	copy(s.memory[32:48], id.Boot[:])
	*s.word(48) = id.First
	s.extend(append(s.Tail(), prefix...))
	atomic.StoreUint64(s.word(8), stamp)
}

func (s *Segment) free() { atomic.StoreUint64(s.word(8), 0) }

// found reads what an earlier process left in the segment. records counts what the header claims even when ok is false.
func (s *Segment) found() (stamp uint64, ok bool) {
	stamp = *s.word(8)
	if stamp == 0 {
		return 0, true
	}
	commit := *s.word(0)
	s.used = int(commit >> (64 - commitBytesBits))
	s.records = int(commit >> commitSumBits & maxRecords)
	s.Opened = time.UnixMicro(int64(*s.word(16)))
	s.Partition = int32(*s.word(24))
	copy(s.Boot[:], s.memory[32:48])
	s.First = *s.word(48)
	if s.used > len(s.payload()) {
		return stamp, false
	}
	s.sum = crc32.Checksum(s.Bytes(), castagnoli)
	return stamp, commit == commitWord(s.used, s.records, s.sum)
}
