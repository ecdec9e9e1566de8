package runner

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestTablesDoNotOvertake: a crash of the machine never keeps a commit that was made as tables and loses one before it, even
// if the two have no keys near each other.
func TestTablesDoNotOvertake(t *testing.T) {
	fs := vfs.NewCrashableMem()
	store, err := OpenPebble("data", PebbleOptions{FS: fs, BulkBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	w := newWrite()
	commit := func(key string, size int) {
		t.Helper()
		w.reset(store)
		w.Set([]byte(key), make([]byte, size))
		w.Set([]byte(key+"+"), make([]byte, size))
		w.seal()
		if err := store.Commit([]*Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	commit("z", 1)
	commit("b", 100)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 2))})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := OpenPebble("data", PebbleOptions{FS: crashed})
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for _, key := range []string{"b", "b+", "z", "z+"} {
		if _, ok, err := found.Get(nil, []byte(key)); err != nil || !ok {
			t.Errorf("%s is lost (%v)", key, err)
		}
	}
}
