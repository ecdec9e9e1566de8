package runner_test

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
)

// listener writes down the offsets of void envelopes.
type listener struct{ borrower }

func (*listener) Fork() runner.Projection { return &listener{} }

func (*listener) ApplyVoid(w *runner.Write, partition int32, offset int64) {
	w.Set([]byte{'!', byte(partition), byte(offset)}, nil)
}

// TestVoidsAreHeardOf: whoever wants to know which records are void is told within the commit that passes them; and a commit
// says how old the oldest envelope is that counts.
func TestVoidsAreHeardOf(t *testing.T) {
	log, store := runnertest.NewLog(eventlog.EventsLink, partitions), runner.NewMemory()
	addTo(log, 0, 1) // two envelopes
	log.AppendVoid(bucket(0))
	addTo(log, 1, 2)
	var observed []int64
	r, err := runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: log, Store: store, Projection: &listener{},
		Logger: slog.New(slog.DiscardHandler), Observe: func(stampUS int64) { observed = append(observed, stampUS) }})
	must(t, err)
	defer r.Close()
	must(t, r.RunToEnd(soon(t)))
	var voids [][]byte
	must(t, store.Scan([]byte{'!'}, func(key, _ []byte) error { voids = append(voids, slices.Clone(key)); return nil }))
	place := events.PartitionOf(bucket(0), partitions)
	if len(voids) != 1 || !slices.Equal(voids[0], []byte{'!', byte(place), 2}) {
		t.Errorf("void records %v, want that at offset 2 of partition %d", voids, place)
	}
	if first := int64(1_700_000_000_000_001); len(observed) == 0 || observed[0] != first || !slices.IsSorted(observed) {
		t.Errorf("observed %v, want %d first", observed, first)
	}
}
