package runner

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
)

// BucketOf says which bucket a pair of a store belongs to.
type BucketOf func(key, value []byte) uint32

// HashPerBucket returns a SHA-256 per bucket over all its pairs in key order, without the runner's own. Two stores with the
// same hashes hold the same.
func HashPerBucket(r pebble.Reader, bucketOf BucketOf) (map[uint32][sha256.Size]byte, error) {
	hashes := map[uint32]hash.Hash{}
	var frame []byte
	err := ScanRange(r, []byte{reserved + 1}, nil, func(key, value []byte) error {
		bucket := bucketOf(key, value)
		h := hashes[bucket]
		if h == nil {
			h = sha256.New()
			hashes[bucket] = h
		}
		frame = binary.AppendUvarint(frame[:0], uint64(len(key)))
		frame = binary.AppendUvarint(frame, uint64(len(value)))
		frame = append(append(frame, key...), value...)
		h.Write(frame)
		return nil
	})
	out := make(map[uint32][sha256.Size]byte, len(hashes))
	for bucket, h := range hashes {
		out[bucket] = [sha256.Size]byte(h.Sum(nil))
	}
	return out, err
}

// differing returns the buckets whose hashes differ, in order. A bucket that one side lacks differs.
func differing(a, b map[uint32][sha256.Size]byte) (out []uint32) {
	for bucket := range uint32(events.Buckets) {
		ha, inA := a[bucket]
		hb, inB := b[bucket]
		if inA != inB || ha != hb {
			out = append(out, bucket)
		}
	}
	for _, m := range []map[uint32][sha256.Size]byte{a, b} {
		for bucket := range m {
			if bucket >= events.Buckets && !slices.Contains(out, bucket) {
				out = append(out, bucket) // a key that no bucket can have: a damaged store
			}
		}
	}
	slices.Sort(out)
	return out
}
