package events_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// pairs is a store of one journal.
type pairs map[uint64][]byte

func (p pairs) Put(number uint64, size int) []byte {
	p[number] = make([]byte, size)
	return p[number]
}

func (p pairs) Drop(number uint64) { delete(p, number) }

func (p pairs) load() (j events.Journal, err error) {
	for _, number := range slices.Sorted(maps.Keys(p)) {
		err = errors.Join(err, j.Replay(number, p[number]))
	}
	return j, err
}

// A journal moves heads for a long time: what is stored is bounded, and loads as the last state, whenever it is read.
func TestJournalStaysSmall(t *testing.T) {
	stored, random := pairs{}, rand.New(rand.NewPCG(3, 4))
	var j events.Journal
	want := map[uint32]int64{} // command offsets
	for i := range int64(5000) {
		moved := make([]events.SavedHead, random.IntN(1+random.IntN(100)))
		for k := range moved {
			b := uint32(random.IntN(1000))
			encoded, err := (&pb.BucketHead{Seq: uint64(i), Hash: make([]byte, 32), CommandOffset: i}).MarshalVT()
			if err != nil {
				t.Fatal(err)
			}
			moved[k], want[b] = events.SavedHead{Bucket: b, Seq: uint64(i), Encoded: encoded}, i
		}
		j.Add(stored, events.Place{Next: i, MaxL: i / 2}, moved)
		if i%500 != 499 {
			continue
		}
		loaded, err := stored.load()
		c := events.NewChecker("events", 0, 1)
		if err := errors.Join(err, loaded.Restore(c)); err != nil {
			t.Fatal(err)
		}
		if loaded.Place() != (events.Place{Next: i, MaxL: i / 2}) || c.Place() != loaded.Place() {
			t.Fatalf("loaded %+v after %d", loaded.Place(), i)
		}
		for b := range uint32(1000) {
			if offset, moved := want[b]; moved && c.Head(b).CommandOffset != offset || !moved && c.Head(b).Seq != 0 {
				t.Fatalf("bucket %d: %+v, want %d", b, c.Head(b), offset)
			}
		}
		j = loaded // a restart
	}
	size := 0
	for _, value := range stored {
		size += len(value)
	}
	if all := 50 * len(want); size > 5*all+32<<10 || len(stored) > 200 {
		t.Errorf("%d bytes in %d pairs are stored, heads alone need %d", size, len(stored), all)
	}
}

func TestJournalRefusesDamage(t *testing.T) {
	head := func(bucket, size uint16, rest string) []byte {
		value := binary.BigEndian.AppendUint16(make([]byte, 16), bucket)
		return append(binary.BigEndian.AppendUint16(value, size), rest...)
	}
	for name, value := range map[string][]byte{
		"short place":     make([]byte, 3),
		"half a head":     make([]byte, 18),
		"head cut off":    head(1, 9, "x"),
		"no such bucket":  head(0xffff, 0, ""),
		"bad head":        head(1, 1, "x"),
		"head of no hash": head(1, 0, ""),
	} {
		j, err := pairs{7: value}.load()
		if err == nil {
			err = j.Restore(events.NewChecker("events", 0, 1))
		}
		if !errors.Is(err, events.ErrJournal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a checker says has moved is what Saved says, each once.
func TestMovedHeads(t *testing.T) {
	b := &build{t: t}
	for bucket := range uint32(500) {
		b.add(1024+bucket, 1, events.Hash{}, func(e *pb.Envelope) { e.CommandOffset = int64(bucket) })
	}
	c := events.NewChecker("events", 1, 4)
	if _, err := check(c, b.records); err != nil {
		t.Fatal(err)
	}
	moved, err := c.Moved()
	if err != nil || len(moved) != 500 {
		t.Fatal(len(moved), err)
	}
	again := events.NewChecker("events", 1, 4)
	for _, h := range moved {
		head := &pb.BucketHead{}
		if err := errors.Join(head.UnmarshalVT(h.Encoded), again.RestoreHead(h.Bucket, head)); err != nil || h.Seq != 1 {
			t.Fatal(h, err)
		}
	}
	for bucket := range uint32(500) {
		if got, want := fmt.Sprint(again.Head(1024+bucket)), fmt.Sprint(c.Head(1024+bucket)); got != want {
			t.Fatalf("bucket %d: %s, want %s", bucket, got, want)
		}
	}
	if moved, err := c.Moved(); len(moved) != 0 || err != nil {
		t.Fatal(len(moved), err)
	}
}
