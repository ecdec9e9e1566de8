package events

import "github.com/cespare/xxhash/v2"

// OwnerHash stands for an owner's name where a record has no room for it: in those that redirect nodes serve from, eight
// bytes a link. It is never 0, which means: not known.
func OwnerHash(owner string) uint64 {
	return max(xxhash.Sum64String(owner), 1)
}
