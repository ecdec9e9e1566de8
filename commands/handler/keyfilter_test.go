package handler

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
)

// A filter never says of a key that the state holds that it does not, whether the key was there at the start, came while the
// keys were read, or came later.
func TestKeyFilterKnowsEveryKey(t *testing.T) {
	l := newBench(t)
	key := func(i int) []byte {
		return append(bucketKey(filtered[i%len(filtered)], uint32(i%events.Buckets), 8), fmt.Sprint(i)...)
	}
	for i := range 10_000 {
		if err := l.store.db.Set(key(i), []byte("x"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	var f keyFilter
	for i := 10_000; i < 20_000; i++ {
		f.add(key(i))
		if f.absent(key(i)) || f.absent(key(i-10_000)) || f.absent(key(i+20_000)) {
			t.Fatalf("key %d is called absent before the store's keys are known", i)
		}
	}
	if err := f.load(t.Context(), l.store, 0, events.Buckets-1); err != nil {
		t.Fatal(err)
	}
	for i := 20_000; i < 30_000; i++ {
		f.add(key(i))
	}
	for i := range 30_000 {
		if f.absent(key(i)) {
			t.Fatalf("key %d is called absent", i)
		}
	}
	passed := 0
	for i := range 30_000 {
		if !f.absent(key(100_000 + i)) {
			passed++
		}
	}
	if passed > 60 {
		t.Errorf("%d of 30,000 keys that nobody holds are not called absent", passed)
	}
	for i := range 30_000 {
		f.add(key(i))
	}
	taken := f.keys.Keys()
	if taken > 30_000 || taken < 29_000 {
		t.Errorf("30,000 keys, each added twice, take the room of %d", taken)
	}
}
