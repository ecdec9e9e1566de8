package handler

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// reopened is partition 1 of 2 on a store in memory, as a process finds it at its start.
func reopened(t *testing.T, fs vfs.FS) (w *writer, closed func()) {
	t.Helper()
	s, err := openStore("", 2, &pebble.Options{FS: fs}, disk.Reports{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	l := &linkLedger{store: s, partition: 1, count: 2, control: b.control, now: b.now}
	at, err := l.loadPlace(eventlog.EventsLink)
	if err != nil {
		_ = s.db.Close()
		t.Fatal(err)
	}
	w = &writer{partition: &partition{stream: events.StreamLink, eventTopic: "events", commandTopic: "commands", number: 1, count: 2, ledger: l, place: at}}
	w.start = w.checker.MaxLowWatermark()
	w.next = w.start
	for w.covered[w.next] != (commandID{}) {
		w.next++
	}
	return w, func() {
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// decideSome decides and merges n creates of the partition, and one command whose record key names no bucket.
func decideSome(t *testing.T, w *writer, n int) {
	t.Helper()
	records := []eventlog.Record{{Offset: w.next}}
	for i := 0; len(records) <= n; i++ {
		c := create("ann", fmt.Sprint("k", w.next, "-", i), "")
		c.Code = fmt.Sprint("code", w.next, "-", i)
		c.Request.BodyHash = commands.BodyHash(c)
		bucket := commands.BucketFor(c)
		if events.PartitionOf(bucket, 2) != 1 {
			continue
		}
		value, err := c.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, eventlog.Record{Offset: w.next + int64(len(records)), Key: events.BucketKey(bucket), Value: value})
	}
	o := w.ledger.begin()
	defer o.drop()
	out, err := w.decideAll(t.Context(), o, records)
	if err != nil || len(out.records) != n+1 {
		t.Fatal(len(out.records), err)
	}
	if err := w.merge(o, out); err != nil {
		t.Fatal(err)
	}
}

// samePlace compares the places of a writer that ended and of the next.
func samePlace(t *testing.T, got, want *writer) {
	t.Helper()
	if got.checker.Place() != want.checker.Place() || !maps.Equal(got.covered, want.covered) {
		t.Fatalf("at %+v with %d covered, want %+v with %d", got.checker.Place(), len(got.covered), want.checker.Place(), len(want.covered))
	}
	for bucket := range uint32(2 * events.Buckets) {
		if got, want := got.checker.Head(bucket), want.checker.Head(bucket); got != want {
			t.Fatalf("head of bucket %d: %+v, want %+v", bucket, got, want)
		}
	}
}

// age makes of a store what versions before the journal left.
func age(t *testing.T, w *writer) {
	t.Helper()
	s := w.ledger.(*linkLedger).store
	c := events.NewChecker("events", 1, 2)
	if err := w.ledger.(*linkLedger).journal.Restore(c); err != nil {
		t.Fatal(err)
	}
	b := s.db.NewBatch()
	c.Heads(func(bucket uint32, h events.Head) {
		value, err := (&pb.BucketHead{Seq: h.Seq, Hash: h.Hash[:], CommandOffset: h.CommandOffset, TimeUs: h.TimeUS, ControlSeq: h.ControlSeq}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		_ = b.Set(bucketKey(prefixHead, bucket, 0), value, nil)
	})
	_ = b.DeleteRange([]byte{prefixJournal}, []byte{prefixJournal + 1}, nil)
	if err := b.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// A partition goes on where its store says, start after start, and where a store says that has no journal yet.
func TestPlaceIsKept(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *writer){"as it is": func(*testing.T, *writer) {}, "by an older version": age} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			w, closed := reopened(t, fs)
			for range 3 {
				decideSome(t, w, 700)
				prepare(t, w)
				closed()
				next, nextClosed := reopened(t, fs)
				samePlace(t, next, w)
				if found, err := next.ledger.(*linkLedger).store.get(bucketKey(prefixHead, events.BadKeyBucket(1), 0)); found != nil || err != nil {
					t.Fatalf("a head beside the journal: %x, %v", found, err)
				}
				nextClosed() // what a start changes holds too
				w, closed = reopened(t, fs)
				samePlace(t, w, next)
			}
			closed()
		})
	}
}

// An older version that writes a store after this one leaves heads and state at different places.
func TestPlaceOfAnOlderVersionIsRefused(t *testing.T) {
	w, closed := reopened(t, vfs.NewMem())
	defer closed()
	decideSome(t, w, 5)
	l := w.ledger.(*linkLedger)
	checkpoint, err := load[pb.WriterCheckpoint](l.store, bucketKey(prefixPlace, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint.Next++
	value, err := checkpoint.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.db.Set(bucketKey(prefixPlace, 1, 0), value, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	l.journal = events.Journal{}
	if _, err := l.loadPlace("events"); err == nil {
		t.Fatal("accepted")
	}
}
