package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreThoseOfTheSortedDurations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*2+8)) * time.Microsecond // 3 ms in the middle, 1 µs to minutes
		h.Add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		got := h.Quantile(q)
		if got < want-time.Microsecond || float64(got) > float64(want)*(1+1.0/64)+1000 {
			t.Errorf("quantile %v: %v, in the sorted list it is %v", q, got, want)
		}
	}
	if h.Max() != all[len(all)-1] || h.Count() != uint64(len(all)) {
		t.Errorf("max %v of %d", h.Max(), h.Count())
	}
}

func TestSlotsFollowOneAnother(t *testing.T) {
	for slot := range histogramSlots - 1 {
		end := slotEnd(slot)
		if slotOf(end) != slot || slotOf(end+1) != slot+1 {
			t.Fatalf("slot %d ends at %d, but %d falls into %d and %d into %d", slot, end, end, slotOf(end), end+1, slotOf(end+1))
		}
	}
	if slotOf(math.MaxUint64) != histogramSlots-1 {
		t.Error("the longest duration has no slot")
	}
}

func TestAnEmptyHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.99) != 0 || h.Max() != 0 || h.Bins() != nil {
		t.Error("it says something")
	}
	if h.Add(-time.Second); h.Quantile(1) != 0 || h.Count() != 1 {
		t.Error("a duration below 0 is not 0")
	}
}

func TestBinsHoldEverything(t *testing.T) {
	var h Histogram
	for _, us := range []int{0, 1, 2, 3, 900, 1000, 1025, 70_000} {
		h.Add(time.Duration(us) * time.Microsecond)
	}
	bins := h.Bins()
	var sum uint64
	for i, b := range bins {
		sum += b.Count
		if i > 0 && b.UpToMS != 2*bins[i-1].UpToMS {
			t.Errorf("after %v comes %v", bins[i-1], b)
		}
	}
	if first, last := bins[0], bins[len(bins)-1]; sum != 8 || first != (Bin{0.001, 2}) || last != (Bin{131.072, 1}) {
		t.Errorf("%d durations in %v", sum, bins)
	}
	if len(plot(bins)) == 0 {
		t.Error("nothing to look at")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 100}, 3}} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want || !slices.Equal(before, c.values) {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestZipfDrawsFollowTheLaw(t *testing.T) {
	const count, n = 1000, 500_000
	drawn := zipfDraws(7, count, n)
	seen := make([]float64, count)
	for _, rank := range drawn {
		seen[rank]++ // panics on a rank that is none
	}
	var norm float64
	for k := range count {
		norm += math.Pow(float64(k+1), -zipfExponent)
	}
	for _, k := range []int{0, 1, 2, 9, 99} {
		want := n * math.Pow(float64(k+1), -zipfExponent) / norm
		if off := math.Abs(seen[k]-want) / math.Sqrt(want); off > 5 {
			t.Errorf("rank %d came %v times, the law says %.0f: %.1f standard deviations", k, seen[k], want, off)
		}
	}
	if !slices.Equal(drawn[:100], zipfDraws(7, count, 100)) {
		t.Error("the same seed draws something else")
	}
	if slices.Equal(drawn[:100], zipfDraws(8, count, 100)) {
		t.Error("another seed draws the same")
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		thousands(0): "0", thousands(999.4): "999", thousands(999.6): "1,000", thousands(1234567): "1,234,567",
		short(0.25): "0.25 ms", short(3.14159): "3.1 ms", short(250): "250 ms",
		spark([]float64{0, 1, 2, 4}): "▁▃▅█", spark(nil): "", spark([]float64{0, 0}): "▁▁",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
