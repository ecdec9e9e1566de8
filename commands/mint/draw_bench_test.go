package mint

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The steady state of a busy namespace, buckets at random among the partition's own.
func BenchmarkDraw(b *testing.B) {
	for _, partitions := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("P=%d", partitions), func(b *testing.B) { benchmarkDraw(b, Config{Partitions: partitions}, (*Minter).Draw) })
	}
	for _, depth := range []int{4, 8, 16, 64} {
		b.Run(fmt.Sprintf("P=4/depth=%d", depth), func(b *testing.B) { benchmarkDraw(b, Config{Depth: depth}, (*Minter).Draw) })
	}
	b.Run("random/P=4", func(b *testing.B) { benchmarkDraw(b, Config{}, (*Minter).DrawRandom) })
}

func benchmarkDraw(b *testing.B, config Config, draw func(*Minter, string, int, uint32) (uint64, string, error)) {
	config.LeastLease, config.MostLease = 1<<34, 1<<34
	m := open(b, config)
	source := rand.New(rand.NewPCG(5, 5))
	one := func() {
		if _, _, err := draw(m, "s.example", 0, m.ownBucket(source)); err != nil {
			b.Fatal(err)
		}
	}
	for range m.config.Depth * m.config.Depth * int(m.buckets) / 2 {
		one()
	}
	before := m.Stats()
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
	after := m.Stats()
	b.ReportMetric(float64(candidates(&after)-candidates(&before))/float64(after.Drawn-before.Drawn), "draws/link")
	b.ReportMetric(float64(after.Pooled), "pooled")
}

// candidates is how many were drawn in all.
func candidates(s *Stats) int64 {
	return int64(s.Drawn + s.Burnt + s.Overflow + s.Displaced + s.Pooled)
}

// A namespace without a pool pays for the whole search.
func BenchmarkDrawUnpooled(b *testing.B) {
	m := open(b, Config{LeastLease: 1 << 34, MostLease: 1 << 34})
	namespace := 0
	b.ReportAllocs()
	for b.Loop() {
		namespace++
		if _, _, err := m.Draw(fmt.Sprint(namespace), 7, 3); err != nil {
			b.Fatal(err)
		}
	}
}
