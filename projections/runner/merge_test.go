package runner

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestTablesOfManyWrites commits writes whose keys lie apart, overlap, alternate or are few, as tables: the store holds them all.
func TestTablesOfManyWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for name, key := range map[string]func(write, i int) string{
		"apart":      func(write, i int) string { return fmt.Sprintf("%d/%04d", write, i) },
		"overlap":    func(write, i int) string { return fmt.Sprintf("%08x/%d", random.Uint32(), write) },
		"alternate":  func(write, i int) string { return fmt.Sprintf("%04d/%d", i, write) },
		"one inside": func(write, i int) string { return fmt.Sprintf("%d", 5*write%7) },
	} {
		t.Run(name, func(t *testing.T) {
			store, err := OpenPebble("data", PebbleOptions{FS: vfs.NewMem(), BulkBytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			model := map[string][]byte{}
			for writes := range 6 {
				var all []*Write
				for n := range writes {
					w := newWrite()
					w.reset(store)
					for i := range 1 + random.IntN(300) {
						k, value := "key"+key(n, i), fmt.Append(nil, writes, i)
						model[k] = value
						w.Set([]byte(k), value)
					}
					w.seal()
					all = append(all, w)
				}
				halves := split(all)
				if len(all) > 0 {
					var walked [][]byte
					for _, half := range halves {
						for key := range merge(half) {
							walked = append(walked, key)
						}
					}
					if !slices.IsSortedFunc(walked, bytes.Compare) {
						t.Errorf("%d writes are not merged in order", writes)
					}
				}
				if err := store.Commit(all); err != nil {
					t.Fatal(err)
				}
			}
			same(t, store, model)
		})
	}
}
