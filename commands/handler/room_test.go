package handler

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// A process whose disk is full decides nothing, and goes on once there is room.
func TestPartitionsWaitForRoom(t *testing.T) {
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := newRig(t, b.Addr())
	var full atomic.Bool
	hook := func() error {
		if full.Load() {
			return errors.New("full")
		}
		return nil
	}
	writer := r.process(1)
	writer.full = hook
	r.write(writer)
	r.command(create("ann", keyed(1, 0), ""))
	r.accepted(1, 1)
	full.Store(true)
	r.command(create("ann", keyed(1, 1), ""))
	time.Sleep(300 * time.Millisecond) // long enough for what must not happen to happen
	if ends, err := r.log.Ends(t.Context(), eventlog.EventsLink); err != nil || ends[1] != 1 {
		t.Errorf("the log ends at %d (%v) while there is no room, want 1", ends[1], err)
	}
	full.Store(false)
	r.accepted(1, 2)
}
