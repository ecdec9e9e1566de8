package links

import (
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// ErrBadCursor says that a cursor is not one that was given out for this query.
var ErrBadCursor = errors.New("cursor is not one of this query")

// A cursor is the place of the last row looked at, and a checksum over it and the query that it belongs to.
const (
	cursorVersion = 1
	cursorSize    = 1 + placeSize + 8
)

func (q *Query) cursor(place []byte) string {
	raw := append([]byte{cursorVersion}, place...)
	raw = binary.BigEndian.AppendUint64(raw, q.checksum(raw))
	return base64.RawURLEncoding.EncodeToString(raw)
}

// after returns the place that the query's cursor names; nil without a cursor.
func (q *Query) after() ([]byte, error) {
	if q.Cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err != nil || len(raw) != cursorSize || raw[0] != cursorVersion {
		return nil, ErrBadCursor
	}
	body := raw[:1+placeSize]
	if binary.BigEndian.Uint64(raw[1+placeSize:]) != q.checksum(body) {
		return nil, ErrBadCursor
	}
	return body[1:], nil
}

func (q *Query) checksum(body []byte) uint64 {
	for _, s := range []string{q.Owner, q.Text, q.Tag, q.Domain, q.Status, string(q.Sort)} {
		body = binary.AppendUvarint(body[:len(body):len(body)], uint64(len(s)))
		body = append(body, s...)
	}
	return xxhash.Sum64(body)
}
