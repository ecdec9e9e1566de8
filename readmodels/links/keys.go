package links

import (
	"encoding/binary"

	"github.com/hoplog/hoplog/projections"
)

// First bytes of keys, and what follows. An owner and a tag are preceded by their length, so that no owner's keys are among
// another's.
//
// A link is kept where its owner's list has it, because lists read many links and everything else reads one; and because links
// that come one after the other lie side by side there, so that merging them costs little.
const (
	rowPrefix     = 'o' // owner, place → row
	routePrefix   = 'l' // route key → key of the link's row
	historyPrefix = 'h' // route key, 0x00, version → pb.HistoryEntry, of links that have changed
	tagPrefix     = 't' // owner, tag, place → nothing
	countPrefix   = 'c' // owner, tag without length → how many links have it
	requestPrefix = 'r' // owner, request key, requestEnd, bucket → sequence, pb.StoredRequest
)

// placeSize is how long a place is: the time of creation, newest first, then the link id.
const placeSize = 16

// requestEnd stands between a request key and the bucket. A key may hold any bytes, so what is read is told apart by its
// length as well.
const requestEnd = 0xff

func appendOwner(dst []byte, prefix byte, owner string) []byte {
	dst = binary.AppendUvarint(append(dst, prefix), uint64(len(owner)))
	return append(dst, owner...)
}

func appendPlace(dst []byte, l projections.Listing) []byte {
	const signBit = 1 << 63
	dst = binary.BigEndian.AppendUint64(dst, ^(uint64(l.CreatedUS) ^ signBit))
	return binary.BigEndian.AppendUint64(dst, l.LinkID)
}

func appendRowKey(dst []byte, l projections.Listing) []byte {
	return appendPlace(appendOwner(dst, rowPrefix, l.Owner), l)
}

func appendRoute(dst []byte, namespace, code string) []byte {
	dst = append(dst, namespace...)
	dst = append(dst, 0)
	return append(dst, code...)
}

func appendRouteKey(dst []byte, namespace, code string) []byte {
	return appendRoute(append(dst, routePrefix), namespace, code)
}

// appendHistoryKey begins the keys of a link's history. Neither namespaces nor codes hold a zero byte.
func appendHistoryKey(dst []byte, namespace, code string) []byte {
	return append(appendRoute(append(dst, historyPrefix), namespace, code), 0)
}

func appendEntryKey(dst []byte, namespace, code string, version uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHistoryKey(dst, namespace, code), version)
}

func appendTag(dst []byte, owner, tag string) []byte {
	dst = binary.AppendUvarint(appendOwner(dst, tagPrefix, owner), uint64(len(tag)))
	return append(dst, tag...)
}

func appendTagKey(dst []byte, l projections.Listing, tag string) []byte {
	return appendPlace(appendTag(dst, l.Owner, tag), l)
}

func appendCountKey(dst []byte, owner, tag string) []byte {
	return append(appendOwner(dst, countPrefix, owner), tag...)
}

// appendRequestKey begins the keys of an owner's requests whose request key begins with key.
func appendRequestKey(dst []byte, owner, key string) []byte {
	return append(appendOwner(dst, requestPrefix, owner), key...)
}

func appendRequestBucket(dst []byte, bucket uint32) []byte {
	return binary.BigEndian.AppendUint16(append(dst, requestEnd), uint16(bucket))
}

// cutRequestBucket takes the end off a stored key, after the given beginning: what was left of the request key, and the
// bucket.
func cutRequestBucket(stored []byte, begin int) (rest []byte, bucket uint32, ok bool) {
	end := len(stored) - 3
	if end < begin || stored[end] != requestEnd {
		return nil, 0, false
	}
	return stored[begin:end], uint32(binary.BigEndian.Uint16(stored[end+1:])), true
}
