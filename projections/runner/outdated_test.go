package runner_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/projections/runner"
)

// named is a projection under another name.
type named struct {
	*tally
	name string
}

func (n named) Name() string { return n.name }

// A store of another version of the projection is made again from the log, whichever of the two is newer; what is of another
// projection stays as it is.
func TestStoreOfAnotherVersionIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		was, is string
		again   bool
		refused bool
	}{
		{"tally/1", "tally/1", false, false},
		{"tally/1", "tally/2", true, false},
		{"tally/2", "tally/1", true, false},
		{"tally/9", "tally/10", true, false},
		{"tall/1", "tally/1", false, true},
		{"other/1", "tally/2", false, true},
	} {
		t.Run(c.was+" to "+c.is, func(t *testing.T) {
			fs, log := vfs.NewMem(), logOf(100)
			options := runner.PebbleOptions{FS: fs}
			open := func(name string) (*runner.Pebble, *runner.Runner, error) {
				store, err := runner.OpenPebbleOf(name, "dir", options)
				must(t, err)
				r, err := runner.New(config(log, store, named{&tally{}, name}))
				return store, r, err
			}
			store, r, err := open(c.was)
			must(t, err)
			must(t, r.RunToEnd(soon(t)))
			must(t, store.Close())
			must(t, fs.MkdirAll("dir.outdated/half removed", 0o755))
			store, r, err = open(c.is)
			defer func() { must(t, store.Close()) }()
			if errors.Is(err, runner.ErrOtherStore) != c.refused {
				t.Fatalf("refused: %v, want %v", err, c.refused)
			}
			if names, err := fs.List(""); err != nil || len(names) != 1 {
				t.Errorf("there are %q: %v", names, err)
			}
			if c.refused {
				wantTally(t, store, 100)
				return
			}
			if met := r.Positions() != nil; met == c.again {
				t.Errorf("it has positions: %v", met)
			}
			must(t, r.RunToEnd(soon(t)))
			wantTally(t, store, 100)
		})
	}
}
