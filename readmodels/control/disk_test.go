package control_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/control"
)

func onDisk(t *testing.T, fs vfs.FS, log runner.Source) (*control.Store, error) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	return control.OpenOnDisk(control.Config{Dir: "control", Source: log, Pebble: runner.PebbleOptions{FS: fs, Logger: logger}, Logger: logger, Lean: true})
}

// kept is a disk with a store that has folded two domains.
func kept(t *testing.T) (*vfs.MemFS, *runnertest.Log) {
	t.Helper()
	fs, log := vfs.NewMem(), runnertest.NewLog(eventlog.EventsControl, 1)
	log.Append(domain("a.example"))
	log.Append(domain("b.example"))
	s, err := onDisk(t, fs, log)
	must(t, err)
	if at, err := s.FreshAt(); err != nil || !at.IsZero() {
		t.Errorf("a new store was whole at %v, %v", at, err)
	}
	must(t, s.RunToEnd(t.Context()))
	must(t, s.MarkFresh(time.UnixMicro(7)))
	must(t, s.Close())
	return fs, log
}

func TestKnowsWithoutTheLogWhatItKnew(t *testing.T) {
	fs, log := kept(t)
	s, err := onDisk(t, fs, nil) // no log is asked
	must(t, err)
	if c := s.Current(); c.Seq != 2 || s.Seq() != 2 || c.Resolve("a.example") == nil || c.DefaultDomain().GetNamespace() != "b.example" {
		t.Errorf("got %+v", c)
	}
	if at, err := s.FreshAt(); err != nil || at.UnixMicro() != 7 {
		t.Errorf("whole at %v, %v", at, err)
	}
	must(t, s.Close())

	log.Append(domain("c.example"))
	s, err = onDisk(t, fs, log)
	must(t, err)
	must(t, s.RunToEnd(t.Context()))
	if c := s.Current(); c.Seq != 3 || len(c.Domains()) != 3 || s.Status().Applied != 1 {
		t.Errorf("got %+v, %d folded", c, s.Status().Applied)
	}
	must(t, s.Close())
}

// A power cut takes what was not synced, never a part of it: state and position stay one.
func TestPowerCutLeavesAState(t *testing.T) {
	fs, log := vfs.NewCrashableMem(), runnertest.NewLog(eventlog.EventsControl, 1)
	s, err := onDisk(t, fs, log)
	must(t, err)
	log.Append(domain("a.example"))
	must(t, s.RunToEnd(t.Context()))
	must(t, s.MarkFresh(time.UnixMicro(1)))
	log.Append(domain("b.example"))
	must(t, s.RunToEnd(t.Context()))
	cut := fs.CrashClone(vfs.CrashCloneCfg{})
	must(t, s.Close())
	s, err = onDisk(t, cut, log)
	must(t, err)
	if s.Seq() < 1 || s.Current().Seq != s.Seq() || s.Current().Resolve("a.example") == nil {
		t.Errorf("what was marked is not there: %+v", s.Current())
	}
	must(t, s.Close())
}

// What the store does not confirm is set aside, and made again from the log.
func TestDamageIsSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, db *pebble.DB)
		says   string
	}{
		"an envelope is gone": {func(t *testing.T, db *pebble.DB) {
			must(t, db.Delete([]byte{'e', 0, 0, 0, 0, 0, 0, 0, 1}, pebble.Sync))
		}, "continue the chain"},
		"the last envelope is gone": {func(t *testing.T, db *pebble.DB) {
			must(t, db.Delete([]byte{'e', 0, 0, 0, 0, 0, 0, 0, 2}, pebble.Sync))
		}, "ends at 1"},
		"an envelope is another's": {func(t *testing.T, db *pebble.DB) {
			value, closer, err := db.Get([]byte{'e', 0, 0, 0, 0, 0, 0, 0, 2})
			must(t, err)
			changed := append([]byte(nil), value...)
			must(t, closer.Close())
			changed = []byte(strings.Replace(string(changed), "b.example", "x.example", 1))
			must(t, db.Set([]byte{'e', 0, 0, 0, 0, 0, 0, 0, 1}, changed, pebble.Sync))
		}, "continue the chain"},
		"an envelope is none": {func(t *testing.T, db *pebble.DB) {
			must(t, db.Set([]byte{'e', 0, 0, 0, 0, 0, 0, 0, 2}, []byte("nonsense"), pebble.Sync))
		}, "not an envelope"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, log := kept(t)
			db, err := pebble.Open("control", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest})
			must(t, err)
			c.change(t, db)
			must(t, db.Close())
			_, err = onDisk(t, fs, nil)
			if !disk.IsDamage(err) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("opened: %v, want %q", err, c.says)
			}
			s, err := onDisk(t, fs, log)
			must(t, err)
			if s.Current() != nil {
				t.Errorf("the new store holds %+v", s.Current())
			}
			must(t, s.RunToEnd(context.Background()))
			if s.Current().Seq != 2 {
				t.Errorf("made again: %+v", s.Current())
			}
			must(t, s.Close())
		})
	}
}
