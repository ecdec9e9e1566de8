package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Median returns the middle of the values, the mean of the two middle ones of an even number, 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// medianOf returns the median of a figure over rounds.
func medianOf[T any](rounds []T, figure func(T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	return Median(values)
}

// zipfExponent is how unevenly visitors share out over the links.
const zipfExponent = 1.07

// zipfDraws draws n ranks below count by Zipf's law: rank k comes with a probability proportional to (k+1)^-zipfExponent.
// The same seed draws the same.
func zipfDraws(seed uint64, count, n int) []int32 {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), zipfExponent, 1, uint64(count-1))
	draws := make([]int32, n)
	for i := range draws {
		draws[i] = int32(zipf.Uint64())
	}
	return draws
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// us returns a duration in microseconds.
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// per divides, and takes nothing by nothing as 0.
func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// thousands writes a number rounded and with separators.
func thousands(f float64) string {
	digits := strconv.FormatInt(int64(f+0.5), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// short writes a number of milliseconds with two or three digits.
func short(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

const (
	sparks   = "▁▂▃▄▅▆▇█"
	barWidth = 50
)

// spark draws values as one line, the highest as a full block and 0 as the lowest.
func spark(values []float64) string {
	levels, top := []rune(sparks), 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var line strings.Builder
	for _, v := range values {
		line.WriteRune(levels[min(int(per(v, top)*float64(len(levels))), len(levels)-1)])
	}
	return line.String()
}

// plot draws bins as bars, one line each.
func plot(bins []Bin) string {
	var top, all uint64
	for _, b := range bins {
		top, all = max(top, b.Count), all+b.Count
	}
	var out strings.Builder
	for _, b := range bins {
		width := int(per(float64(b.Count), float64(top))*barWidth + 0.5)
		fmt.Fprintf(&out, "  ≤ %9s %5.1f %% %s\n", short(b.UpToMS), 100*per(float64(b.Count), float64(all)), strings.Repeat("█", width))
	}
	return out.String()
}
