package owners

import (
	"encoding/binary"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// First bytes of keys, and what follows. An owner and a tag are preceded by their length.
const (
	rowPrefix   = 'o' // owner, place → pb.Link without fingerprint
	tagPrefix   = 't' // owner, tag, place → nothing
	countPrefix = 'c' // owner, tag without length → how many links have it
	wherePrefix = 'i' // route key → key of the link's row
)

// placeSize is how long a place is: the time of creation, newest first, then the link id.
const placeSize = 16

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

func appendWhereKey(dst []byte, ref *pb.LinkRef) []byte {
	dst = append(append(dst, wherePrefix), ref.GetNamespace()...)
	return append(append(dst, 0), ref.GetCode()...)
}
