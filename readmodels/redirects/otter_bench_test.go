package redirects_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/maypok86/otter/v2"

	"github.com/hoplog/hoplog/events"
)

// BenchmarkOtter measures a well-kept cache at the work of BenchmarkFind, all links in memory: what the map of our own has to be
// better than. An entry holds what a visit needs, as one would write it for a cache of any values.
func BenchmarkOtter(b *testing.B) {
	type record struct {
		linkID, version, owner, flags uint64
		target                        string
	}
	for _, links := range benchSizes() {
		b.Run(fmt.Sprint(links), func(b *testing.B) {
			before := heapBytes()
			cache := otter.Must(&otter.Options[string, *record]{MaximumSize: links})
			keys := make([][]byte, links)
			for i := range keys {
				key := events.RouteKey("s.example", code(i))
				keys[i] = []byte(key)
				cache.Set(key, &record{linkID: uint64(i), version: 1, owner: 7, flags: 1, target: fmt.Sprintf("https://shop.example/articles/%d?utm_source=mail&utm_campaign=winter", i)})
			}
			cache.CleanUp()
			b.Logf("%d links in memory, %d bytes of heap each, the keys of the benchmark included", cache.EstimatedSize(), (heapBytes()-before)/uint64(links))
			visits := make([][]byte, 1<<20)
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.07, 1, uint64(links-1))
			for i := range visits {
				visits[i] = keys[zipf.Uint64()*7919%uint64(links)]
			}
			var missing atomic.Int64
			perOp(b, func(i int) {
				key := visits[i&(1<<20-1)]
				if r, ok := cache.GetIfPresent(unsafe.String(unsafe.SliceData(key), len(key))); !ok || r == nil {
					missing.Add(1)
				}
			})
			if n := missing.Load(); n > int64(b.N/100) {
				b.Errorf("%d of %d visits found nothing", n, b.N)
			}
		})
	}
}
