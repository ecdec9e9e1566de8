package shared

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/hoplog/hoplog/schemas/pb"
)

// A value is its format, the version in digits, which the script compares as text, a hash over route key and all the rest,
// and the record as the nodes' stores have it. Without a record it only says that there is this version: ask elsewhere.
const (
	format    = '1'
	headSize  = 1 + 20
	bodyAt    = headSize + 8
	maxRecord = 64 << 10
)

// appendValue makes the value of a link.
func appendValue(dst, routeKey []byte, link *pb.Redirect) ([]byte, error) {
	start := len(dst)
	dst = fmt.Appendf(dst, "%c%020d", format, link.GetVersion())
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	if size := link.SizeVT(); size <= maxRecord {
		dst = append(dst, make([]byte, size)...)
		if _, err := link.MarshalToSizedBufferVT(dst[len(dst)-size:]); err != nil {
			return nil, fmt.Errorf("encoding a link for Redis: %w", err)
		}
	}
	value := dst[start:]
	binary.BigEndian.PutUint64(value[headSize:], sumOf(routeKey, value))
	return dst, nil
}

// sumOf binds a value to its key, so that neither a torn nor a misplaced one passes for a link.
func sumOf(routeKey, value []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(value[:headSize]) // never fails
	_, _ = d.Write(value[bodyAt:])
	_, _ = d.Write(routeKey)
	return d.Sum64()
}

// parseValue returns what a value says; the record is the caller's own.
func parseValue(routeKey, value []byte) (*pb.Redirect, error) {
	if len(value) < bodyAt || len(value) > bodyAt+maxRecord || value[0] != format || binary.BigEndian.Uint64(value[headSize:]) != sumOf(routeKey, value) {
		return nil, errForm
	}
	version, err := strconv.ParseUint(string(value[1:headSize]), 10, 64)
	if err != nil {
		return nil, errForm
	}
	if len(value) == bodyAt {
		return nil, errBare
	}
	link := &pb.Redirect{}
	if err := link.UnmarshalVT(value[bodyAt:]); err != nil || link.GetVersion() != version {
		return nil, errForm
	}
	return link, nil
}
