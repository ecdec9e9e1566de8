package events

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Buckets is the number of buckets that route keys hash to. It is part of the persistent protocol.
const Buckets = 4096

// ControlBucket is the one bucket of the control stream.
const ControlBucket = 0

// RouteKey is namespace + 0x00 + code: what a link is stored and routed under. Both parts must be normalised.
func RouteKey(namespace, code string) string {
	return namespace + "\x00" + code
}

// AppendRouteKey appends the route key to dst and returns the extended slice.
func AppendRouteKey(dst []byte, namespace, code []byte) []byte {
	dst = append(dst, namespace...)
	dst = append(dst, 0)
	return append(dst, code...)
}

// BucketOf returns the bucket of a link, xxhash64(route key) mod 4096. Source of vectors: schemas/routing.json.
func BucketOf(namespace, code string) uint32 {
	var stack [320]byte
	key := append(stack[:0], namespace...)
	key = append(key, 0)
	key = append(key, code...)
	return BucketOfKey(key)
}

// BucketOfKey returns the bucket of a route key, or of any other bytes that choose a bucket (request keys, fingerprints).
func BucketOfKey(key []byte) uint32 {
	return uint32(xxhash.Sum64(key) % Buckets)
}

// BadKeyBucket is where commands of a partition end up whose record key names no bucket of that partition. It feeds no
// read model.
func BadKeyBucket(partition int32) uint32 {
	return Buckets + uint32(partition)
}

// PartitionOf returns the partition of a bucket among partitions, a power of two ≤ 4096.
func PartitionOf(bucket uint32, partitions int) int32 {
	if bucket >= Buckets {
		return int32(bucket - Buckets)
	}
	return int32(int(bucket) * partitions / Buckets)
}

// BucketKey is the record key of a bucket: two bytes, big endian.
func BucketKey(bucket uint32) []byte {
	return binary.BigEndian.AppendUint16(nil, uint16(bucket))
}

// ParseBucketKey reads a command's record key. It refuses a key that is not two bytes, names no bucket, or names one of
// another partition.
func ParseBucketKey(key []byte, partition int32, partitions int) (uint32, error) {
	if len(key) != 2 {
		return 0, fmt.Errorf("record key has %d bytes, not 2", len(key))
	}
	bucket := uint32(binary.BigEndian.Uint16(key))
	if bucket >= Buckets {
		return 0, fmt.Errorf("record key names bucket %d of %d", bucket, Buckets)
	}
	if p := PartitionOf(bucket, partitions); p != partition {
		return 0, fmt.Errorf("bucket %d belongs to partition %d, not %d", bucket, p, partition)
	}
	return bucket, nil
}

// ValidPartitions reports whether p can be the partition count of the link topics.
func ValidPartitions(p int) bool {
	return p >= 1 && p <= Buckets && p&(p-1) == 0
}

// BucketsOf returns the first and the last bucket of a partition.
func BucketsOf(partition int32, partitions int) (first, last uint32) {
	each := uint32(Buckets / partitions)
	return uint32(partition) * each, uint32(partition+1)*each - 1
}
