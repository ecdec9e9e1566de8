//go:build !linux

package disk

import "math"

// roomOf knows nothing of this system's disks: they are never full.
func roomOf(string) (room, error) { return room{size: math.MaxUint64, free: math.MaxUint64}, nil }
