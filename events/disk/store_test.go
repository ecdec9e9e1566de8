package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events/disk"
)

// keys are what a store holds: key i → value i, and under "position" how many there are, in one batch with each.
const keys = 60

// raced: the tests run with the race detector.
var raced bool

// silent keeps Pebble's own words out; a fatal one fails the test by its panic.
type silent struct{}

func (silent) Infof(string, ...any)                   {}
func (silent) Errorf(string, ...any)                  {}
func (silent) Fatalf(format string, arguments ...any) { panic(fmt.Sprintf(format, arguments...)) }

var position = []byte("position")

func key(i int) []byte { return fmt.Appendf(nil, "key-%03d", i) }

func value(i int) []byte { return fmt.Appendf(nil, "value-%03d-%s", i, strings.Repeat("x", i)) }

// filled is the files of a store with tables in two levels and a log, as kill -9 leaves them.
func filled(t *testing.T) map[string][]byte {
	t.Helper()
	fs := vfs.NewMem()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, DisableAutomaticCompactions: true, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		b := db.NewBatch()
		must(t, b.Set(key(i), value(i), nil))
		must(t, b.Set(position, binary.BigEndian.AppendUint32(nil, uint32(i+1)), nil))
		must(t, b.Commit(pebble.Sync))
		switch i {
		case 20, 40:
			must(t, db.Flush())
		case 30:
			must(t, db.Compact(t.Context(), []byte("a"), []byte("z"), false))
		}
	}
	files := content(t, fs)
	must(t, db.Close())
	return files
}

func content(t *testing.T, fs vfs.FS) map[string][]byte {
	names, err := fs.List("store")
	must(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin("store", name))
		must(t, err)
		files[name], err = io.ReadAll(f)
		must(t, err)
		must(t, f.Close())
	}
	return files
}

// with makes a file system of files, one of them changed; nil content removes it.
func with(t *testing.T, files map[string][]byte, changed string, to []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	must(t, fs.MkdirAll("store", 0o755))
	for name, found := range files {
		if name == changed {
			if found = to; found == nil {
				continue
			}
		}
		f, err := fs.Create(fs.PathJoin("store", name), vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write(found)
		must(t, err)
		must(t, f.Close())
	}
	return fs
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// judged is what a reader of a damaged store sees.
type judged struct {
	refused  bool // the open returned an error
	position int
	damaged  int // reads that said so
	told     bool
}

// judge opens a store and reads all of it. What it reads must be the truth at the position that it names.
func judge(t *testing.T, what string, fs vfs.FS) (j judged) {
	t.Helper()
	db, err := disk.Open("store", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}}, disk.Reports{Damaged: func(*disk.Damage) { j.told = true }})
	if err != nil {
		j.refused = true
		return j
	}
	defer db.Close()
	at, err := get(db, position)
	if err != nil {
		j.damaged++
		return j
	}
	if at != nil {
		j.position = int(binary.BigEndian.Uint32(at))
	}
	for i := range keys {
		got, err := get(db, key(i))
		switch {
		case err != nil && !disk.IsDamage(err):
			t.Errorf("%s: key %d: %v", what, i, err)
		case err != nil:
			j.damaged++
		case i < j.position && !bytes.Equal(got, value(i)):
			t.Errorf("%s: position %d, key %d is %q", what, j.position, i, got)
		case i >= j.position && got != nil:
			t.Errorf("%s: position %d, key %d is there", what, j.position, i)
		}
	}
	return j
}

func get(db *pebble.DB, key []byte) ([]byte, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, value...), closer.Close()
}

// Whatever byte of whatever file is changed, and whatever file is removed or cut: a store is opened with a state that
// belongs to its position, or a read says that it is damaged. It never answers wrongly, and never ends the process.
func TestNoByteLies(t *testing.T) {
	files := filled(t)
	step := 5
	if testing.Short() {
		step = 31
	}
	seen := map[string]int{}
	for name, content := range files {
		for at := 0; at < len(content); at += step {
			changed := append([]byte{}, content...)
			changed[at] ^= 0x10
			j := judge(t, fmt.Sprintf("%s byte %d", name, at), with(t, files, name, changed))
			seen[outcome(j)]++
			if j.damaged > 0 && !j.told {
				t.Errorf("%s byte %d: a read said damaged, and nobody was told", name, at)
			}
		}
		seen[outcome(judge(t, name+" removed", with(t, files, name, nil)))]++
		seen[outcome(judge(t, name+" cut", with(t, files, name, content[:len(content)/2])))]++
	}
	t.Log("outcomes:", seen)
	if raced {
		t.Log("not judged: with the race detector Pebble checks itself, and stops at what it otherwise lives with")
		return
	}
	for _, want := range []string{"whole", "damage was read"} {
		if seen[want] == 0 {
			t.Errorf("no change led to %q", want)
		}
	}
}

func outcome(j judged) string {
	switch {
	case j.refused:
		return "open refused"
	case j.damaged > 0:
		return "damage was read"
	case j.position == keys:
		return "whole"
	case j.position == 0:
		return "made anew"
	}
	return "an earlier position"
}

// A store that was found damaged is set aside at the next open, and an empty one takes its place.
func TestDamagedStoreIsSetAside(t *testing.T) {
	files := filled(t)
	var table string
	for name := range files {
		if strings.HasSuffix(name, ".sst") {
			table = name
		}
	}
	changed := append([]byte{}, files[table]...)
	for at := 0; at < len(changed)/2; at += 16 {
		changed[at] ^= 1
	}
	fs := with(t, files, table, changed)
	if j := judge(t, "first open", fs); j.damaged == 0 || !j.told {
		t.Fatalf("not found: %+v", j)
	}
	var said strings.Builder
	db, err := disk.Open("store", &pebble.Options{FS: fs, Logger: silent{}}, disk.Reports{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	must(t, err)
	defer db.Close()
	if at, err := get(db, position); at != nil || err != nil {
		t.Errorf("the new store holds %v (%v)", at, err)
	}
	names, err := fs.List("")
	must(t, err)
	if len(names) != 2 || !strings.HasPrefix(names[0]+names[1], "store") || !strings.Contains(names[0]+names[1], "store.damaged-") {
		t.Errorf("found %v", names)
	}
	for _, words := range []string{"set aside", "store=store", table} {
		if !strings.Contains(said.String(), words) {
			t.Errorf("the log does not say %q: %s", words, said.String())
		}
	}
}
