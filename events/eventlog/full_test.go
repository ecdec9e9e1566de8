package eventlog_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// TestFullDiskRefusesAppends: while there is no room nothing is appended, whoever asks, and afterwards all goes on at the
// offset where it stopped.
func TestFullDiskRefusesAppends(t *testing.T) {
	var full atomic.Bool
	var looked atomic.Int64 // how often the broker met a full disk
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Full: func() error {
		if full.Load() {
			looked.Add(1)
			return errors.New("the disk is full")
		}
		return nil
	}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := open(t, e.Addr())
	if err := l.EnsureTopics(soon(t), eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	for round := range int64(3) {
		full.Store(false)
		a := appender(t, l, eventlog.EventsLink)
		if err := a.Append(soon(t), 0, values("v", 2), 2*round); err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		before := looked.Load()
		eventually(t, "the broker knows it", func() bool { return looked.Load() >= before+2 }) // the first is taken note of before the second
		if err := appender(t, l, eventlog.EventsLink).Append(within(t, time.Second), 0, values("w", 2), 2*round+2); err == nil {
			t.Error("an append was taken by a full disk")
		}
		if got := end(t, l, eventlog.EventsLink, 0); got != 2*round+2 {
			t.Errorf("the log ends at %d, want %d", got, 2*round+2)
		}
		if got := read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{0: 0}), 0, int(2*round+2)); len(got) != int(2*round+2) {
			t.Errorf("%d records can be read", len(got))
		}
	}
}
