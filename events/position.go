package events

import (
	"fmt"
	"strconv"
	"strings"
)

// Streams of envelopes.
const (
	StreamLink    = "link"
	StreamControl = "control"
)

// Position is a place in a bucket's chain. Unlike an offset it means the same in every region.
type Position struct {
	Stream string
	Bucket uint32
	Seq    uint64
}

// String formats the position as stream/bucket/seq.
func (p Position) String() string { return string(p.append(make([]byte, 0, 32))) }

func (p Position) append(dst []byte) []byte {
	dst = strconv.AppendUint(append(append(dst, p.Stream...), '/'), uint64(p.Bucket), 10)
	return strconv.AppendUint(append(dst, '/'), p.Seq, 10)
}

// ParsePosition reads what String writes, and nothing else.
func ParsePosition(s string) (Position, error) {
	stream, rest, _ := strings.Cut(s, "/")
	bucket, seq, _ := strings.Cut(rest, "/")
	b, errBucket := strconv.ParseUint(bucket, 10, 32)
	q, errSeq := strconv.ParseUint(seq, 10, 63)
	p := Position{Stream: stream, Bucket: uint32(b), Seq: q}
	known := stream == StreamLink && b < 2*Buckets || stream == StreamControl && b == ControlBucket
	if errBucket != nil || errSeq != nil || !known || p.String() != s {
		return Position{}, fmt.Errorf("position %.80q is not of the form stream/bucket/seq", s)
	}
	return p, nil
}
