package segments

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The layout of a record batch (Kafka's message format 2). The CRC covers everything from the attributes on; what lies
// before them is checked by what it must be.
const (
	prefixSize = 12 // offset and length; the length counts what follows
	headerSize = 61
	crcFrom    = 21
	magic      = 2
	// maxBatch is more than any topic takes, and than any batch that the broker takes.
	maxBatch = 64 << 20
	// leaderEpoch is that of every batch: the broker's partitions never change their leader.
	leaderEpoch = 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the part of a batch that says where it belongs.
type header struct {
	offset    int64
	length    int64 // of the whole batch
	epoch     int32
	magic     byte
	crc       uint32
	lastDelta int32
	firstTime int64 // milliseconds
	maxTime   int64
	records   int32
}

func parseHeader(b []byte) header {
	return header{
		offset:    int64(binary.BigEndian.Uint64(b)),
		length:    int64(int32(binary.BigEndian.Uint32(b[8:]))) + prefixSize,
		epoch:     int32(binary.BigEndian.Uint32(b[12:])),
		magic:     b[16],
		crc:       binary.BigEndian.Uint32(b[17:]),
		lastDelta: int32(binary.BigEndian.Uint32(b[23:])),
		firstTime: int64(binary.BigEndian.Uint64(b[27:])),
		maxTime:   int64(binary.BigEndian.Uint64(b[35:])),
		records:   int32(binary.BigEndian.Uint32(b[57:])),
	}
}

// fault names what is wrong with a header at a place where this many bytes are left, or nothing.
func (h *header) fault(left, wantOffset int64) string {
	switch {
	case h.magic != magic:
		return fmt.Sprintf("no record batch begins here (format %d, want %d)", h.magic, magic)
	case h.length < headerSize || h.length > maxBatch:
		return fmt.Sprintf("a batch with an impossible length of %d bytes", h.length)
	case h.length > left:
		return fmt.Sprintf("a batch of %d bytes, of which the file holds %d", h.length, left)
	case h.offset != wantOffset:
		return fmt.Sprintf("a batch that begins at offset %d, where %d belongs", h.offset, wantOffset)
	case h.records < 1 || h.lastDelta != h.records-1:
		return fmt.Sprintf("a batch of %d records whose last one is number %d", h.records, h.lastDelta)
	}
	return ""
}

// findBatch returns where in rest the next whole batch begins, at or after an offset; -1 if there is none. rest is the end of
// a file.
func findBatch(rest []byte, from int64) int {
	for p := 0; p+headerSize <= len(rest); p++ {
		if rest[p+16] != magic {
			continue
		}
		h := parseHeader(rest[p:])
		if h.offset < from || h.offset > from+1<<32 || h.fault(int64(len(rest)-p), h.offset) != "" {
			continue
		}
		if crc32.Checksum(rest[p+crcFrom:p+int(h.length)], castagnoli) == h.crc {
			return p
		}
	}
	return -1
}
