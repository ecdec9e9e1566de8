package commands

import (
	"fmt"
	"math"
	"slices"
)

// NoVersion is a version that nothing ever has: what a caller demands who names only versions that are none of ours.
const NoVersion uint64 = math.MaxUint64

// checkVersion judges the version that a caller demands of what he changes: 0 for any, others that will do instead in or.
func checkVersion(what string, is, demanded uint64, or []uint64) *Refusal {
	if demanded == 0 || demanded == is || slices.Contains(or, is) {
		return nil
	}
	not := fmt.Sprintf("not %d", demanded)
	if demanded == NoVersion || len(or) > 0 {
		not = "which is none of those asked for"
	}
	return Refuse(CodeVersionMismatch, "", fmt.Sprintf("the %s is at version %d, %s; read it again", what, is, not))
}
