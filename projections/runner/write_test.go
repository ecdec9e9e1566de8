package runner

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events"
)

// TestWriteReadsItself checks a Write against a map, on both stores, over many batches.
func TestWriteReadsItself(t *testing.T) {
	pebbles, err := OpenPebble("data", PebbleOptions{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer pebbles.Close()
	for name, store := range map[string]Store{"memory": NewMemory(), "pebble": pebbles} {
		t.Run(name, func(t *testing.T) {
			random, model, w := rand.New(rand.NewPCG(1, 2)), map[string][]byte{}, newWrite()
			for range 200 {
				w.reset(store)
				for range random.IntN(60) {
					key := fmt.Sprintf("key%d", random.IntN(40))
					got, err := w.Get([]byte(key))
					if want, ok := model[key]; err != nil || (got != nil) != ok || !bytes.Equal(got, want) {
						t.Fatalf("%s: got %q, %v, want %q", key, got, err, want)
					}
					switch random.IntN(3) {
					case 0:
						w.Delete([]byte(key))
						delete(model, key)
					case 1:
						w.Set([]byte(key), nil)
						model[key] = []byte{}
					default:
						value := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(40_000))
						w.Set([]byte(key), value)
						model[key] = value
					}
				}
				w.seal()
				if err := store.Commit([]*Write{w}); err != nil {
					t.Fatal(err)
				}
			}
			same(t, store, model)
		})
	}
}

func same(t *testing.T, store Store, model map[string][]byte) {
	t.Helper()
	n := 0
	err := store.Scan([]byte("key"), func(key, value []byte) error {
		n++
		if want, ok := model[string(key)]; !ok || !bytes.Equal(value, want) {
			t.Errorf("%s: %d bytes, want %d", key, len(value), len(want))
		}
		return nil
	})
	if err != nil || n != len(model) {
		t.Errorf("%d pairs, want %d (%v)", n, len(model), err)
	}
}

// A partition's place and heads are loaded as they were added, whole or piece by piece.
func TestJournalIsLoaded(t *testing.T) {
	store, w := NewMemory(), newWrite()
	w.reset(store)
	w.Set(metaKey, []byte("anything"))
	journals := []*journal{newJournal(0), newJournal(1)}
	for _, j := range journals {
		j.rewrite(w)
	}
	w.seal()
	if err := store.Commit([]*Write{w}); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		w.reset(store)
		encoded := fmt.Appendf(nil, "head %d", i)
		journals[i%2].add(w, events.Place{Next: int64(i), MaxL: int64(i / 2)}, []events.SavedHead{{Bucket: uint32(i % 300), Seq: uint64(i), Encoded: encoded}})
		w.seal()
		if err := store.Commit([]*Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := load(store)
	if err != nil || !reflect.DeepEqual(s.journals, journals) {
		t.Fatalf("loaded %+v, %v", s, err)
	}
}

func TestDamagedPositionsAreRefused(t *testing.T) {
	for name, pairs := range map[string]map[string][]byte{
		"short place":       {string(newJournal(0).key(0)): make([]byte, 3)},
		"short key":         {string(journalPrefix) + "x": make([]byte, 16)},
		"half a head":       {string(newJournal(0).key(0)): make([]byte, 18)},
		"head cut off":      {string(newJournal(0).key(0)): append(make([]byte, 16), 0, 1, 0, 9, 'x')},
		"no such bucket":    {string(newJournal(0).key(0)): append(make([]byte, 16), 0xff, 0xff, 0, 0)},
		"missing partition": {string(newJournal(1).key(0)): make([]byte, 16)},
		"bad head":          {string(newJournal(0).key(0)): append(make([]byte, 16), 0, 1, 0, 1, 'x')},
	} {
		t.Run(name, func(t *testing.T) {
			store := NewMemory()
			store.pairs = pairs
			store.pairs[string(metaKey)] = []byte(meta("p", "topic", 1))
			if _, err := New(Config{Topic: "topic", Stream: events.StreamLink, Store: store, Projection: named("p")}); err == nil {
				t.Error("accepted")
			} else {
				t.Log(err)
			}
		})
	}
}

type named string

func (n named) Name() string               { return string(n) }
func (named) Apply(*Write, Accepted) error { return nil }
func (named) Committed([]Accepted)         {}

// TestSealSorts holds the order against that of whole keys: keys of all lengths, long common beginnings, zeros at the end.
func TestSealSorts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		w := newWrite()
		w.reset(NewMemory())
		for range random.IntN(400) {
			key := append([]byte(nil), "r12s.example"[:random.IntN(13)]...)
			for range random.IntN(20) {
				key = append(key, byte(random.IntN(3)))
			}
			w.Set(key, key)
		}
		w.seal()
		var last []byte
		n := 0
		for key := range keysOf(w) {
			if n++; last != nil && bytes.Compare(last, key) >= 0 {
				t.Fatalf("%x comes before %x", last, key)
			}
			last = key
		}
		if n != w.Len() {
			t.Fatalf("%d keys, want %d", n, w.Len())
		}
	}
}

func keysOf(w *Write) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, at := range w.order {
			if !yield(w.key(int(at.op))) {
				return
			}
		}
	}
}
