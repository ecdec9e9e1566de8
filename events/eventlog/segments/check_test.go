package segments_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/segments"
	"github.com/hoplog/hoplog/events/eventlog/segments/segmentstest"
)

// record sizes: small ones in one segment of commands, large ones in two segments of events.
const (
	smallRecords = 6
	largeRecords = 12
	largeBytes   = 1600 << 10
)

// original is a broker's directory after a clean stop, made once.
var original = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hoplog-segments-*")
	if err != nil {
		return "", err
	}
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	return dir, errors.Join(fill(b.Addr()), b.Close())
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := original(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func fill(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l, err := eventlog.Open(eventlog.Config{Brokers: []string{addr}}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: 2}); err != nil {
		return err
	}
	for topic, records := range map[string]struct{ count, size int }{eventlog.CommandsLink: {smallRecords, 300}, eventlog.EventsLink: {largeRecords, largeBytes}} {
		if err := appendAll(ctx, l, topic, records.count, records.size); err != nil {
			return err
		}
	}
	return nil
}

// appendAll appends records of random bytes, each in a batch of its own.
func appendAll(ctx context.Context, l *eventlog.Log, topic string, count, size int) error {
	a, err := l.NewAppender(topic)
	if err != nil {
		return err
	}
	defer a.Close()
	for i := range count {
		value := make([]byte, size)
		_, _ = rand.Read(value) // never fails
		if err := a.Append(ctx, 0, []eventlog.Record{{Key: []byte{0, byte(i)}, Value: value}}, int64(i)); err != nil {
			return err
		}
	}
	return nil
}

// broken is a copy of a good directory, for a test to damage.
type broken struct {
	testing.TB
	dir string
	log bytes.Buffer
}

func newBroken(t testing.TB) *broken {
	t.Helper()
	from, err := original()
	if err != nil {
		t.Fatal(err)
	}
	b := &broken{TB: t, dir: t.TempDir()}
	if err := os.CopyFS(b.dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *broken) partition(topic string) string { return segmentstest.Partition(b.dir, topic, 0) }

func (b *broken) segment(topic string, i int) string {
	return segmentstest.Segments(b, b.partition(topic))[i]
}

func (b *broken) file(name string) string { return filepath.Join(b.dir, "log", name) }

func (b *broken) replace(path, old, new string) {
	b.Helper()
	content, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(content, []byte(old)) {
		b.Fatalf("%s does not hold %q (%v)", path, old, err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, []byte(old), []byte(new)), 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *broken) remove(path string) {
	b.Helper()
	if err := os.RemoveAll(path); err != nil {
		b.Fatal(err)
	}
}

// forget removes what a kill -9 before the first second would not have left.
func (b *broken) forget() { segmentstest.Forget(b, b.dir) }

// start starts the broker on the damaged files, and stops it.
func (b *broken) start() error {
	logger := slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: b.dir, Addr: "127.0.0.1:0"}, logger)
	if err != nil {
		return err
	}
	return e.Close()
}

// files is the content of every file of the log.
func (b *broken) files() map[string]string {
	b.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(b.dir, "log"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return found
}

// Every damage that no crash leaves behind refuses the start, names its place, and leaves all files as they were.
func TestDamageIsRefused(t *testing.T) {
	const events, commands = eventlog.EventsLink, eventlog.CommandsLink
	for _, c := range []struct {
		name   string
		damage func(b *broken)
		want   []string
	}{
		{"a byte of a record in a closed segment", func(b *broken) { segmentstest.Flip(b, b.segment(events, 0), 4_000_000) },
			[]string{events + " partition 0", "0.dat byte 3276", "offset 2", "checksum", "later files"}},
		{"a byte of a record in the last segment", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), 500) },
			[]string{commands + " partition 0", "0.dat byte ", "offset 1", "checksum", "goes on behind it", "offset 2"}},
		{"a byte of the last record", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), -5) },
			[]string{commands, "offset 5", "checksum", "below offset 6 was acknowledged"}},
		{"the length of a batch", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), 8) },
			[]string{commands, "byte 0 offset 0", "impossible length", "offset 1"}},
		{"the offset of a batch", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), 7) },
			[]string{commands, "byte 0 offset 0", "begins at offset 16, where 0 belongs"}},
		{"the leader epoch of a batch", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), 15) },
			[]string{commands, "byte 0 offset 0", "leader epoch"}},
		{"the format of a batch", func(b *broken) { segmentstest.Flip(b, b.segment(commands, 0), 16) },
			[]string{commands, "byte 0 offset 0", "no record batch"}},
		{"bytes cut from the last segment", func(b *broken) { segmentstest.Cut(b, b.segment(events, 1), 100) },
			[]string{events, "offset 11", "of which the file holds", "below offset 12 was acknowledged"}},
		{"bytes cut from a closed segment", func(b *broken) { segmentstest.Cut(b, b.segment(events, 0), 100) },
			[]string{events, "0.dat byte ", "offset 10", "later files"}},
		{"the last segment removed", func(b *broken) { b.remove(b.segment(events, 1)) },
			[]string{events, "ends here at offset 11", "below 12 was acknowledged"}},
		{"the last segment removed, known from the snapshot alone", func(b *broken) { b.remove(b.segment(events, 1)); b.remove(filepath.Join(b.dir, "acknowledged.json")) },
			[]string{events, "ends here at offset 11", "below 12 was acknowledged"}},
		{"the first segment removed", func(b *broken) { b.remove(b.segment(events, 0)) },
			[]string{events, "11.dat", "begins at offset 11", "kept for ever"}},
		{"the first segment of a trimmed topic removed", func(b *broken) {
			if err := os.Rename(b.segment(commands, 0), filepath.Join(b.partition(commands), "2.dat")); err != nil {
				b.Fatal(err)
			}
		}, []string{commands, "begins at offset 2", "the log began at 0"}},
		{"a partition removed", func(b *broken) { b.remove(b.partition(events)) },
			[]string{events, "ends here at offset 0", "below 12 was acknowledged"}},
		{"a record dropped, everything else right", func(b *broken) {
			segmentstest.Rewrite(b, b.partition(commands), func(r []segmentstest.Record) []segmentstest.Record { return slices.Delete(r, 2, 3) })
		}, []string{commands, "ends here at offset 5", "below 6 was acknowledged"}},
		{"two places", func(b *broken) {
			segmentstest.Flip(b, b.segment(commands, 0), 500)
			segmentstest.Flip(b, b.segment(events, 0), 500)
		}, []string{commands + " partition 0", events + " partition 0"}},
		{"a topic's name", func(b *broken) { b.replace(b.file("topics.json"), commands, "hoplog.commands.lint") },
			[]string{"topics.json", commands + " is missing", "names no partition", commands + "-0"}},
		{"a topic's partitions", func(b *broken) { b.replace(b.file("topics.json"), `"partitions":2`, `"partitions":3`) },
			[]string{"topics.json", "has 3 partitions; it had 2"}},
		{"a topic's retention", func(b *broken) { b.replace(b.file("topics.json"), `"retention.ms":"-1"`, `"retention.ms":"11"`) },
			[]string{"topics.json", "retention.ms=11", "has to be -1"}},
		{"topics.json is no JSON", func(b *broken) { segmentstest.Cut(b, b.file("topics.json"), 1) }, []string{"topics.json", "no valid JSON"}},
		{"topics.json removed", func(b *broken) { b.remove(b.file("topics.json")) }, []string{"topics.json", "missing"}},
		{"meta.json removed", func(b *broken) { b.remove(b.file("meta.json")) }, []string{"meta.json", "missing", "hoplog-embedded"}},
		{"meta.json of another broker", func(b *broken) { b.replace(b.file("meta.json"), "hoplog-embedded", "hoplog-embeddee") }, []string{"meta.json", "hoplog-embeddee"}},
		{"everything removed but the record", func(b *broken) { b.remove(filepath.Join(b.dir, "log")) }, []string{"meta.json", "missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroken(t)
			c.damage(b)
			var before map[string]string
			if _, err := os.Stat(filepath.Join(b.dir, "log")); err == nil {
				before = b.files()
			}
			err := b.start()
			if !errors.Is(err, eventlog.ErrDamaged) {
				t.Fatalf("the start says %v", err)
			}
			for _, words := range append(c.want, "nothing was changed", "backup") {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("it does not say %q: %v", words, err)
				}
			}
			if before == nil {
				return
			}
			for path, content := range b.files() {
				if before[path] != content {
					t.Errorf("%s was changed", path)
				}
				delete(before, path)
			}
			for path := range before {
				if !strings.HasSuffix(path, "session_state.json") {
					t.Errorf("%s was removed", path)
				}
			}
		})
	}
}

// No byte of a segment can change without the start finding it.
func TestEveryByteCounts(t *testing.T) {
	b := newBroken(t)
	last := b.segment(eventlog.CommandsLink, 0)
	info, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	b.remove(b.partition(eventlog.EventsLink)) // large, and not what is looked at
	acknowledged := segments.Acknowledged{eventlog.CommandsLink: {{End: smallRecords}, {}}}
	cfg := segments.Config{Dir: filepath.Join(b.dir, "log"), Aside: t.TempDir(), ClusterID: "hoplog-embedded", Prefix: "hoplog.commands.link",
		Acknowledged: acknowledged, Logger: slog.New(slog.DiscardHandler), Now: time.Now()}
	if _, err := segments.Check(t.Context(), cfg); err != nil {
		t.Fatal("undamaged:", err)
	}
	for at := range info.Size() {
		segmentstest.Flip(t, last, at)
		if _, err := segments.Check(t.Context(), cfg); !errors.Is(err, segments.ErrDamaged) {
			t.Errorf("byte %d flipped: %v", at, err)
		}
		segmentstest.Flip(t, last, at)
	}
}

// A write that a crash cut off is dropped, said, and a copy of it kept; the log goes on before it.
func TestTornTailIsCut(t *testing.T) {
	for _, c := range []struct {
		name string
		tear func(b *broken, last string)
		end  int64
		kept int64 // bytes of the copy; 0: nothing was cut
	}{
		{"part of a batch", func(b *broken, last string) { segmentstest.Cut(b, last, 100) }, smallRecords - 1, 0},
		{"a batch with bytes that never came", func(b *broken, last string) { segmentstest.Flip(b, last, -5) }, smallRecords - 1, 0},
		{"zeros", func(b *broken, last string) { add(b, last, make([]byte, 5000)) }, smallRecords, 5000},
		{"the first bytes of a batch", func(b *broken, last string) { add(b, last, make([]byte, 7)) }, smallRecords, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroken(t)
			last := b.segment(eventlog.CommandsLink, 0)
			b.forget()
			c.tear(b, last)
			info, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.start(); err != nil {
				t.Fatal(err)
			}
			if got := int64(len(segmentstest.Records(b, b.partition(eventlog.CommandsLink)))); got != c.end {
				t.Errorf("the log holds %d records, want %d", got, c.end)
			}
			copies, err := filepath.Glob(filepath.Join(b.dir, "damaged", "*"))
			if err != nil || len(copies) != 1 {
				t.Fatalf("copies: %v %v", copies, err)
			}
			kept, err := os.ReadFile(copies[0])
			if err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			if cut := info.Size() - after.Size(); int64(len(kept)) != cut || c.kept > 0 && cut != c.kept {
				t.Errorf("%d bytes were cut, the copy has %d, want %d", cut, len(kept), c.kept)
			}
			for _, words := range []string{"torn write", eventlog.CommandsLink, copies[0], fmt.Sprint("offset=", c.end)} {
				if !strings.Contains(b.log.String(), words) {
					t.Errorf("the log does not say %q: %s", words, b.log.String())
				}
			}
			if err := b.start(); err != nil {
				t.Errorf("the next start: %v", err)
			}
		})
	}
}

func add(tb testing.TB, path string, content []byte) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(content)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// What can be made again from the segments never hinders a start, is said, and a copy is kept.
func TestDerivedFilesAreMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(b *broken)
		copies int
	}{
		{"an index byte", func(b *broken) {
			segmentstest.Flip(b, filepath.Join(b.partition(eventlog.CommandsLink), "0.idx"), 20)
		}, 1},
		{"no index", func(b *broken) { b.remove(filepath.Join(b.partition(eventlog.CommandsLink), "0.idx")) }, 0},
		{"a snapshot byte", func(b *broken) {
			segmentstest.Flip(b, filepath.Join(b.partition(eventlog.CommandsLink), "snapshot.json"), 0)
		}, 1},
		{"no snapshot", func(b *broken) { b.remove(filepath.Join(b.partition(eventlog.CommandsLink), "snapshot.json")) }, 0},
		{"a snapshot that claims less", func(b *broken) {
			b.replace(filepath.Join(b.partition(eventlog.CommandsLink), "snapshot.json"), `"high_watermark":6`, `"high_watermark":4`)
		}, 0},
		{"the record of what was acknowledged", func(b *broken) { segmentstest.Flip(b, filepath.Join(b.dir, "acknowledged.json"), 60) }, 0},
		{"the broker's log of producers", func(b *broken) { segmentstest.Flip(b, b.file("pids.log"), 12) }, 1},
		{"the broker's sequences", func(b *broken) { segmentstest.Cut(b, b.file("seq_windows.json"), 1) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroken(t)
			c.damage(b)
			if err := b.start(); err != nil {
				t.Fatal(err)
			}
			copies, err := filepath.Glob(filepath.Join(b.dir, "damaged", "*"))
			if err != nil || len(copies) != c.copies {
				t.Errorf("copies %v, want %d (%v)", copies, c.copies, err)
			}
			for topic, want := range map[string]int{eventlog.CommandsLink: smallRecords, eventlog.EventsLink: largeRecords} {
				if got := len(segmentstest.Records(b, b.partition(topic))); got != want {
					t.Errorf("%s holds %d records, want %d", topic, got, want)
				}
			}
			if strings.Contains(b.log.String(), "level=WARN") != (c.copies > 0 || strings.Contains(c.name, "record of")) {
				t.Errorf("the log says: %s", b.log.String())
			}
		})
	}
}

// The record of what was acknowledged is read as it was written, or not at all.
func TestAcknowledgedRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	if found, err := segments.ReadAcknowledged(path); found != nil || err != nil {
		t.Errorf("without a record: %v %v", found, err)
	}
	want := segments.Acknowledged{"a": {{Start: 1, End: 1 << 50}, {}}, "b": nil}
	if err := segments.WriteAcknowledged(path, want); err != nil {
		t.Fatal(err)
	}
	found, err := segments.ReadAcknowledged(path)
	if err != nil || len(found) != 2 || found["a"][0] != want["a"][0] {
		t.Errorf("read %v %v", found, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range content {
		segmentstest.Flip(t, path, int64(at))
		if found, err := segments.ReadAcknowledged(path); err == nil && (len(found) != 2 || found["a"][0] != want["a"][0]) {
			t.Errorf("byte %d flipped: read %v", at, found)
		}
		segmentstest.Flip(t, path, int64(at))
	}
}
