package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Generations is a directory of stores, one of them live: the file CURRENT names it. A store that is built beside it takes
// its place by one atomic rename.
type Generations struct {
	dir  string
	fs   vfs.FS
	opts PebbleOptions
	live int
}

const (
	currentFile      = "CURRENT"
	generationPrefix = "gen-"
)

// OpenGenerations opens the live store in dir, or makes the first. What a build that was cut short left behind is removed.
func OpenGenerations(dir string, opts PebbleOptions) (*Generations, *Pebble, error) {
	g := &Generations{dir: dir, fs: opts.FS, opts: opts}
	if g.fs == nil {
		g.fs = vfs.Default
	}
	if err := g.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("making %s: %w", dir, err)
	}
	live, err := g.readCurrent()
	if err != nil {
		return nil, nil, err
	}
	first := live == 0
	if g.live = live; first {
		g.live = 1
	}
	if err := g.removeOthers(); err != nil {
		return nil, nil, err
	}
	store, err := OpenPebble(g.path(g.live), opts)
	if err != nil {
		return nil, nil, err
	}
	if first {
		if err := g.writeCurrent(g.live); err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
	}
	return g, store, nil
}

func (g *Generations) path(n int) string {
	return g.fs.PathJoin(g.dir, fmt.Sprintf("%s%06d", generationPrefix, n))
}

// readCurrent returns the number of the live generation, 0 when there is none yet.
func (g *Generations) readCurrent() (int, error) {
	f, err := g.fs.Open(g.fs.PathJoin(g.dir, currentFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("opening %s of %s: %w", currentFile, g.dir, err)
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("reading %s of %s: %w", currentFile, g.dir, err)
	}
	n, ok := generationNumber(strings.TrimSpace(string(text)))
	if !ok {
		return 0, fmt.Errorf("%w: %s of %s says %.40q", ErrDamaged, currentFile, g.dir, text)
	}
	return n, nil
}

func generationNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, generationPrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0
}

func (g *Generations) writeCurrent(n int) error {
	name := g.fs.PathJoin(g.dir, currentFile)
	f, err := g.fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	_, err = io.WriteString(f, filepath.Base(g.path(n))+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = g.fs.Rename(name+".new", name)
	}
	if err == nil {
		err = g.syncDir()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (g *Generations) syncDir() error {
	d, err := g.fs.OpenDir(g.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeOthers removes every generation but the live one.
func (g *Generations) removeOthers() error {
	names, err := g.fs.List(g.dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", g.dir, err)
	}
	for _, name := range names {
		if n, ok := generationNumber(name); ok && n != g.live {
			if err := g.fs.RemoveAll(g.fs.PathJoin(g.dir, name)); err != nil {
				return fmt.Errorf("removing an old store: %w", err)
			}
		}
	}
	return nil
}

// damagedInfix stands in the names of stores that were set aside.
const damagedInfix = ".damaged-"

// setAside keeps a generation that was found to be damaged, and only the newest of such: a failing disk must not be filled.
func (g *Generations) setAside(n int) error {
	names, err := g.fs.List(g.dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", g.dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, generationPrefix) && strings.Contains(name, damagedInfix) {
			if err := g.fs.RemoveAll(g.fs.PathJoin(g.dir, name)); err != nil {
				return fmt.Errorf("removing a damaged store: %w", err)
			}
		}
	}
	if err := g.fs.Rename(g.path(n), g.path(n)+damagedInfix+time.Now().UTC().Format("20060102T150405.000")); err != nil {
		return fmt.Errorf("setting a damaged store aside: %w", err)
	}
	return nil
}

// create makes an empty store beside the live one.
func (g *Generations) create() (int, *Pebble, error) {
	if err := g.removeOthers(); err != nil {
		return 0, nil, err
	}
	store, err := OpenPebble(g.path(g.live+1), g.opts)
	return g.live + 1, store, err
}

// promote makes generation n the live one, for good.
func (g *Generations) promote(n int) error {
	if err := g.writeCurrent(n); err != nil {
		return err
	}
	g.live = n
	return nil
}
