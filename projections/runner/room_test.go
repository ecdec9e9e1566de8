package runner

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCommitWaitsForRoom: while the disk is full nothing reaches the store; then what waited does.
func TestCommitWaitsForRoom(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	store, err := OpenPebble("data", PebbleOptions{FS: vfs.NewMem(), Full: func() error {
		if full.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w := newWrite()
	w.reset(store)
	w.Set([]byte("key"), []byte("value"))
	w.seal()
	done := make(chan error, 1)
	go func() { done <- store.Commit([]*Write{w}) }()
	time.Sleep(3 * roomPoll)
	if _, found, err := store.Get(nil, []byte("key")); found || err != nil {
		t.Errorf("the full disk was written to (%v)", err)
	}
	full.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, found, err := store.Get(nil, []byte("key")); !found || string(got) != "value" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
