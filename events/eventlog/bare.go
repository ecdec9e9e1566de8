package eventlog

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TailOption changes what a tail hands out.
type TailOption func(*Tail)

// Bare leaves out the headers of compressed records, which repeat what an envelope says. A record of ours has seven, and for
// the client each is an allocation: they would cost a reader as much as all the rest of a fetch.
func Bare() TailOption { return func(t *Tail) { t.bare = true } }

// bareDecompressor removes the headers of the records that it decompresses, before the client sees them.
type bareDecompressor struct{ kgo.Decompressor }

// Decompress implements kgo.Decompressor.
func (d bareDecompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	records, err := d.Decompressor.Decompress(src, codec)
	if err != nil || codec == kgo.CodecNone {
		return records, err // these bytes are not ours to write to
	}
	return withoutHeaders(records), nil
}

// withoutHeaders rewrites a run of records (version 2 of the message format) in place, as the same records without headers.
// From the first that cannot be read on, all stays as it is: the client shall find what is wrong.
func withoutHeaders(records []byte) []byte {
	var length [binary.MaxVarintLen64]byte
	to := 0
	for rest := records; len(rest) > 0; {
		body, after, ok := prefixed(rest)
		keep := beforeHeaders(body)
		if !ok || keep < 0 {
			return records[:to+copy(records[to:], rest)]
		}
		// The body shrinks or stays, and so does its length: nothing that is still to be read is written over.
		n := binary.PutVarint(length[:], int64(keep+1))
		start := to + copy(records[to:], length[:n])
		copy(records[start:], body[:keep])
		records[start+keep] = 0 // headers
		to, rest = start+keep+1, after
	}
	return records[:to]
}

// beforeHeaders returns how many bytes of a record's body precede the number of its headers, -1 if it cannot be read.
func beforeHeaders(body []byte) int {
	if len(body) == 0 {
		return -1
	}
	rest := body[1:] // attributes
	for range 2 {    // deltas of time and offset
		_, n := binary.Varint(rest)
		if n <= 0 {
			return -1
		}
		rest = rest[n:]
	}
	for range 2 { // key, value
		_, after, ok := prefixed(rest)
		if !ok {
			return -1
		}
		rest = after
	}
	if len(rest) == 0 {
		return -1
	}
	return len(body) - len(rest)
}

// prefixed splits off bytes that follow their length; a length of -1 stands for none.
func prefixed(in []byte) (bytes, rest []byte, ok bool) {
	length, n := binary.Varint(in)
	if n <= 0 || length < -1 || length > int64(len(in)-n) {
		return nil, nil, false
	}
	end := n + max(0, int(length))
	return in[n:end], in[end:], true
}
