package eventlog

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTrim: what expired goes, what is kept for ever stays, and offsets never start again, not even of a partition whose
// every record expired, neither after a clean stop nor after a kill (a broker that finds no snapshot of its state).
func TestTrim(t *testing.T) {
	for _, clean := range []bool{true, false} {
		name := map[bool]string{true: "clean stop", false: "kill"}[clean]
		t.Run(name, func(t *testing.T) { trimAndRestart(t, clean) })
	}
}

func trimAndRestart(t *testing.T, clean bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	e, l := embedded(t, dir)
	if err := l.EnsureTopics(ctx, TopicPlan{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	// given clicks that all expired, in more than one segment, commands of which the last is young, and old envelopes
	now := time.Now()
	fill(t, l, Clicks, 40, 600<<10, now.Add(-40*24*time.Hour))
	fill(t, l, CommandsLink, 10, 100, now.Add(-8*24*time.Hour))
	fill(t, l, CommandsLink, 5, 100, now)
	fill(t, l, EventsLink, 10, 100, now.Add(-1000*24*time.Hour))
	// when trimmed, then this is what is left
	if err := e.trimmer.trim(ctx, now); err != nil {
		t.Fatal(err)
	}
	holds(t, l, Clicks, 39, 40)
	holds(t, l, CommandsLink, 10, 15)
	holds(t, l, EventsLink, 0, 10)
	if files, _ := filepath.Glob(filepath.Join(dir, "log", "partitions", Clicks+"-0", "*.dat")); len(files) != 1 {
		t.Errorf("segments left on disk: %v", files)
	}
	// when the broker starts again, then every log ends where it did, and holds at least what it promised
	l.Close()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if !clean {
		snapshots, _ := filepath.Glob(filepath.Join(dir, "log", "partitions", "*", "snapshot.json"))
		if len(snapshots) == 0 {
			t.Fatal("no snapshot to remove")
		}
		for _, s := range snapshots {
			if err := os.Remove(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, l = embedded(t, dir)
	atLeast(t, l, Clicks, 39, 40)
	atLeast(t, l, CommandsLink, 10, 15)
	holds(t, l, EventsLink, 0, 10)
	// and what is appended goes on there
	fill(t, l, Clicks, 1, 100, now)
	atLeast(t, l, Clicks, 39, 41)
}

func embedded(t *testing.T, dir string) (*Embedded, *Log) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	e, err := StartEmbedded(EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	l, err := Open(Config{Brokers: []string{e.Addr()}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return e, l
}

func fill(t *testing.T, l *Log, topic string, n, size int, at time.Time) {
	t.Helper()
	a, err := l.NewAppender(topic)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	value := make([]byte, size)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for range n {
		rand.Read(value) // does not compress
		if err := a.Append(ctx, 0, []Record{{Value: value, Time: at}}, AnyOffset); err != nil {
			t.Fatal(err)
		}
	}
}

func bounds(t *testing.T, l *Log, topic string) (start, end int64) {
	t.Helper()
	starts, err := l.Starts(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := l.Ends(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return starts[0], ends[0]
}

func holds(t *testing.T, l *Log, topic string, start, end int64) {
	t.Helper()
	if s, e := bounds(t, l, topic); s != start || e != end {
		t.Errorf("%s holds [%d, %d), want [%d, %d)", topic, s, e, start, end)
	}
}

func atLeast(t *testing.T, l *Log, topic string, start, end int64) {
	t.Helper()
	if s, e := bounds(t, l, topic); s > start || e != end {
		t.Errorf("%s holds [%d, %d), want [≤%d, %d)", topic, s, e, start, end)
	}
}
