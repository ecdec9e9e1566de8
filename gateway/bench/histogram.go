package bench

import (
	"math/bits"
	"time"
)

// Histogram counts durations with a relative error below 1/64, from 1 µs to 19 hours, in fixed memory: each power of two is
// cut into 64 slots, as in HdrHistogram (hdrhistogram.org). The zero value is empty. One goroutine at a time.
type Histogram struct {
	slots [histogramSlots]uint64
	count uint64
	max   time.Duration
}

const (
	histogramCut   = 64
	histogramSlots = 31 * histogramCut
)

// Add counts one duration; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.slots[slotOf(uint64(d.Microseconds()))]++
	h.count++
	h.max = max(h.max, d)
}

// slotOf returns the slot of a number of microseconds.
func slotOf(us uint64) int {
	if us < 2*histogramCut {
		return int(us)
	}
	shift := bits.Len64(us) - bits.Len64(2*histogramCut-1)
	return min(shift*histogramCut+int(us>>shift), histogramSlots-1)
}

// slotEnd returns the largest number of microseconds that falls into a slot.
func slotEnd(slot int) uint64 {
	if slot < 2*histogramCut {
		return uint64(slot)
	}
	shift := slot/histogramCut - 1
	return uint64(slot-shift*histogramCut+1)<<shift - 1
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 { return h.count }

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q of all do not exceed: the nearest rank, rounded up to its slot's end. 0 when
// there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q*float64(h.count) + 0.999999)
	rank = min(max(rank, 1), h.count)
	var seen uint64
	for slot, n := range h.slots {
		if seen += n; n > 0 && seen >= rank {
			return min(time.Duration(slotEnd(slot))*time.Microsecond, h.max)
		}
	}
	return 0
}

// Bin is a range of durations and how many fell into it.
type Bin struct {
	UpToMS float64 `json:"up_to_ms"`
	Count  uint64  `json:"count"`
}

// Bins sums the slots up into ranges that double, from the first to the last that is not empty.
func (h *Histogram) Bins() (bins []Bin) {
	upTo, sum := uint64(1), uint64(0)
	for slot, n := range h.slots {
		for slotEnd(slot) > upTo {
			if sum > 0 || len(bins) > 0 {
				bins = append(bins, Bin{float64(upTo) / 1000, sum})
			}
			upTo, sum = 2*upTo, 0
		}
		sum += n
	}
	if sum > 0 {
		bins = append(bins, Bin{float64(upTo) / 1000, sum})
	}
	for len(bins) > 0 && bins[len(bins)-1].Count == 0 {
		bins = bins[:len(bins)-1]
	}
	return bins
}
