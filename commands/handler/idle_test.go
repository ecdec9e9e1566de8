package handler

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// Retention takes commands away: those that were answered are not missed, one that was not is.
func TestCommandsPastTheirRetention(t *testing.T) {
	const idle, lagging, n = 1, 2, 3
	dir := t.TempDir()
	began := func(t *testing.T, trimEvery time.Duration) *rig {
		b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0", TrimEvery: trimEvery}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return newRig(t, b.Addr())
	}
	t.Run("before", func(t *testing.T) {
		r := began(t, time.Hour)
		for i := range n {
			r.old(idle, i)
			r.old(lagging, i)
		}
		r.write(r.process(idle)) // in one batch: its low watermark is 0
		r.accepted(idle, n)
	})
	t.Run("after", func(t *testing.T) {
		r := began(t, 10*time.Millisecond)
		r.trimmed(idle, 0)
		r.trimmed(lagging, 0)
		w := r.process(idle)
		// Retention goes on while the writer begins: the command at which its scan was to begin goes too.
		var first sync.Once
		w.open = func(topic string) (appender, error) {
			first.Do(func() { r.old(idle, n); r.trimmed(idle, n-1) })
			return r.log.NewAppender(topic)
		}
		r.write(w)
		if list, _ := r.accepted(idle, n+1); list[n].GetCommandOffset() != n {
			t.Errorf("the scan went on with command %d", list[n].GetCommandOffset())
		}
		w = r.process(lagging)
		w.set(true)
		var alarm *events.Alarm
		if err := w.run(t.Context()); !errors.As(err, &alarm) || alarm.Topic != eventlog.CommandsLink || alarm.Offset != 0 {
			t.Errorf("a command went unanswered: %v", err)
		}
	})
}

// trimmed waits until the command at an offset is gone.
func (r *rig) trimmed(partition int32, offset int64) {
	r.t.Helper()
	for {
		starts, err := r.log.Starts(r.t.Context(), eventlog.CommandsLink)
		if err != nil {
			r.t.Fatal(err)
		}
		if starts[partition] > offset {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// old sends a command in a record that is past its retention.
func (r *rig) old(partition int32, n int) {
	c := create("ann", keyed(partition, n), "")
	value, err := c.MarshalVT()
	if err != nil {
		r.t.Fatal(err)
	}
	r.append(partition, eventlog.Record{Key: events.BucketKey(commands.BucketFor(c)), Value: value, Time: time.Now().Add(-8 * 24 * time.Hour)})
}
