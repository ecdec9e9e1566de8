package links

import (
	"encoding/binary"

	"github.com/hoplog/hoplog/schemas/pb"
)

// First bytes of keys, and what follows.
const (
	linkPrefix    = 'l' // route key → pb.Link
	historyPrefix = 'h' // route key, 0x00, version → pb.HistoryEntry
	requestPrefix = 'r' // owner, request key, requestEnd, bucket → sequence, pb.StoredRequest
)

// requestEnd stands between a request key and the bucket. A key may hold any bytes, so what is read is told apart by its
// length as well.
const requestEnd = 0xff

func appendRoute(dst []byte, namespace, code string) []byte {
	dst = append(dst, namespace...)
	dst = append(dst, 0)
	return append(dst, code...)
}

func appendLinkKey(dst []byte, ref *pb.LinkRef) []byte {
	return appendRoute(append(dst, linkPrefix), ref.GetNamespace(), ref.GetCode())
}

// appendHistoryKey begins the keys of a link's history. Neither namespaces nor codes hold a zero byte.
func appendHistoryKey(dst []byte, namespace, code string) []byte {
	return append(appendRoute(append(dst, historyPrefix), namespace, code), 0)
}

// appendRequestKey begins the keys of an owner's requests whose request key begins with key. The owner's length precedes
// it, so that no owner's keys are among another's.
func appendRequestKey(dst []byte, owner, key string) []byte {
	dst = binary.AppendUvarint(append(dst, requestPrefix), uint64(len(owner)))
	return append(append(dst, owner...), key...)
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
