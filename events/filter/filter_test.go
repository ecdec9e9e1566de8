package filter_test

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/hoplog/hoplog/events/filter"
)

func hashOf(i int) uint64 { return xxhash.Sum64(binary.LittleEndian.AppendUint64(nil, uint64(i))) }

var shapes = map[string]filter.Shape{
	"writer":   {First: 3072, PerBlock: 24, Growth: 3},
	"redirect": {First: 100_000, PerBlock: 42, Growth: 0.25},
	"small":    {First: 1, PerBlock: 1, Growth: 0.25},
}

// No key that was added is called absent, before and after the filter has grown; most others are.
func TestFilterKnowsEveryKey(t *testing.T) {
	const keys = 150_000
	bounds := map[string]float64{"writer": 0.002, "redirect": 0.01, "small": 0.01}
	for name, shape := range shapes {
		f, n := filter.New(shape), keys
		if name == "small" {
			n = 500
		}
		for i := range n {
			f.Add(hashOf(i))
			if f.Absent(hashOf(i)) || f.Absent(hashOf(i/2)) {
				t.Fatalf("%s: a key is called absent after %d", name, i)
			}
		}
		for i := range n {
			f.Add(hashOf(i))
			if f.Absent(hashOf(i)) {
				t.Fatalf("%s: key %d is called absent", name, i)
			}
		}
		passed := 0
		for i := range n {
			if !f.Absent(hashOf(keys + i)) {
				passed++
			}
		}
		t.Logf("%s: %d layers, %.2f bytes a key, %.3f %% of others pass", name, f.Layers(), float64(f.Bytes())/float64(n), 100*float64(passed)/float64(n))
		if passed > int(bounds[name]*float64(n)) {
			t.Errorf("%s: %d of %d keys that nobody added are not called absent", name, passed, n)
		}
		if f.Keys() > n || f.Keys() < n*98/100 {
			t.Errorf("%s: %d keys, each added twice, take the room of %d", name, n, f.Keys())
		}
	}
}

// What one goroutine has added, all others see from then on.
func TestFilterIsReadWhileItGrows(t *testing.T) {
	f := filter.New(filter.Shape{First: 100, PerBlock: 24, Growth: 0.25})
	const keys = 20_000
	var added atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for n := int64(0); n < keys; n = added.Load() {
				for i := max(0, n-50); i < n; i++ {
					if f.Absent(hashOf(int(i))) {
						t.Errorf("key %d is called absent", i)
						return
					}
				}
			}
		})
	}
	for i := range keys {
		f.Add(hashOf(i))
		added.Store(int64(i) + 1)
	}
	all.Wait()
}
