package redirects_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// spoilTables changes bytes of the links in all tables of a store: the first half is its positions, the end its index.
func spoilTables(t *testing.T, dir string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "gen-*", "*.sst"))
	must(t, err)
	if len(tables) == 0 {
		t.Fatal("no tables")
	}
	for _, path := range tables {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		for at := info.Size() * 6 / 10; at < info.Size()*9/10; at += 64 {
			_, err = f.WriteAt([]byte{0xff, 0xee, 0xdd}, at)
			must(t, err)
		}
		must(t, f.Close())
	}
}

// A store whose damage is met by a look-up, or by the fold, which it stops, is made again while it is in use: what cannot be
// read is an error meanwhile, and nothing is ever wrong.
func TestRepairOfADamagedStore(t *testing.T) {
	for name, meet := range map[string]func(t *testing.T, s *redirects.Store) error{
		"look-up": func(_ *testing.T, s *redirects.Store) error {
			for i := range 500 {
				if _, err := s.Lookup([]byte(events.RouteKey(host, code(i)))); err != nil {
					return err
				}
			}
			return nil
		},
		"fold": func(t *testing.T, s *redirects.Store) error { return s.RunToEnd(soon(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), newLog()
			for i := range 500 {
				target := "https://a.example/1" // long, and of no pattern, so that links are most of the store
				for range 10 {
					target += rand.Text()
				}
				log.Create("acme", host, code(i), to(target))
			}
			s := open(t, dir, log)
			must(t, s.RunToEnd(soon(t)))
			must(t, s.Close()) // what was in the log of the store becomes a table
			s = open(t, dir, log)
			must(t, s.MarkFresh(time.Now()))
			must(t, s.Close())
			spoilTables(t, dir)
			s = open(t, dir, log)
			defer func() { must(t, s.Close()) }()
			for i := range 500 {
				log.Update(host, code(i), to("https://a.example/2"))
			}
			err := meet(t, s)
			if !disk.IsDamage(err) {
				t.Fatalf("met %v", err)
			}
			stopped := name == "fold"
			if (s.Err() != nil) != stopped {
				t.Errorf("the runner: %v", s.Err())
			}
			if _, err := s.Repair(soon(t), nil); err != nil {
				t.Fatal(err)
			}
			log.Update(host, code(7), to("https://a.example/3"))
			must(t, s.RunToEnd(soon(t)))
			for i := range 500 {
				want := "https://a.example/2"
				if i == 7 {
					want = "https://a.example/3"
				}
				if got := lookup(t, s, code(i)).GetTarget(); got != want {
					t.Fatalf("%s leads to %s, want %s", code(i), got, want)
				}
			}
			names := list(t, dir)
			if text := strings.Join(names, " "); strings.Count(text, ".damaged-") != 1 || strings.Count(text, "gen-") != 2 {
				t.Errorf("kept: %v", names)
			}
		})
	}
}
