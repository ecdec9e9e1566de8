package disk

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Damage says that a store's files are not what was written.
type Damage struct {
	Dir   string // of the store
	Cause error
}

func (d *Damage) Error() string {
	return fmt.Sprintf("the store in %s is damaged: %v; restart this process: it keeps the damaged store beside the new one, which it makes again from the log", d.Dir, d.Cause)
}

func (d *Damage) Unwrap() error { return d.Cause }

// IsDamage reports whether an error says that a store is damaged.
func IsDamage(err error) bool {
	_, ok := errors.AsType[*Damage](err)
	return ok || pebble.IsCorruptionError(err)
}

// Reports are told of a store's damage. Both may be nil.
type Reports struct {
	Logger *slog.Logger
	// Damaged hears of damage that is found while the store is open, once per store. It must not block.
	Damaged func(*Damage)
}

// markFile stands in the directory of a store that was found to be damaged while it was open.
const markFile = "DAMAGED"

// Open opens or makes a store that can be made again from the log. One that is damaged is set aside, and an empty one begun.
func Open(dir string, opts *pebble.Options, to Reports) (*pebble.DB, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if to.Logger == nil {
		to.Logger = slog.New(slog.DiscardHandler)
	}
	watch(dir, opts, to)
	cause := inspect(dir, opts.FS)
	if cause == nil {
		db, err := pebble.Open(dir, opts)
		if err == nil || !isLost(err) {
			return db, err
		}
		cause = err
	}
	aside := dir + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	if err := opts.FS.Rename(dir, aside); err != nil {
		return nil, fmt.Errorf("setting a damaged store aside: %w", errors.Join(err, &Damage{dir, cause}))
	}
	to.Logger.Error("a store is damaged; it is set aside and made again from the log", "store", dir, "error", cause.Error(), "copy", aside)
	return pebble.Open(dir, opts)
}

// isLost reports whether a store that cannot be opened is damaged, not busy, foreign or out of reach.
func isLost(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, os.ErrNotExist) || record.IsInvalidRecord(err) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Condemn marks a store whose content its reader found to be wrong although the checksums hold, so that the next Open sets it
// aside. It returns the damage.
func Condemn(dir string, fs vfs.FS, cause error) error {
	if fs == nil {
		fs = vfs.Default
	}
	return errors.Join(&Damage{dir, cause}, mark(fs, dir, cause))
}

// inspect finds what an open would not: the mark of an earlier process, and a list of tables (the MANIFEST) that does not end
// cleanly. A store takes the rest of such a list for a torn write and forgets tables whose log is gone already: a hole.
func inspect(dir string, fs vfs.FS) error {
	mark, err := readFile(fs, fs.PathJoin(dir, markFile))
	if err == nil {
		return errors.New(string(mark))
	}
	names, err := fs.List(dir)
	if err != nil || len(names) == 0 {
		return nil //nolint:nilerr // there is none yet, or the open says what is wrong
	}
	found, err := pebble.Peek(dir, fs)
	if err == nil && !found.Exists {
		return leftBehind(names)
	}
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	return inspectList(fs, found.ManifestFilename)
}

// inspectList reads a list of tables to its end.
func inspectList(fs vfs.FS, name string) error {
	f, err := fs.Open(name)
	if err != nil {
		return nil // as in inspect
	}
	defer f.Close()
	for list := record.NewReader(f, 0); ; {
		entry, err := list.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = io.Copy(io.Discard, entry)
		}
		if err != nil {
			return fmt.Errorf("%s at byte %d: %w", name, list.Offset(), err)
		}
	}
}

// leftBehind finds the files of a store whose list of tables is gone. An open would make a new list of the logs alone: a state
// without what was in tables, at the position of the last log.
func leftBehind(names []string) error {
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") || strings.HasPrefix(name, "MANIFEST-") {
			return fmt.Errorf("%s is there, and no file names the list of tables it belongs to", name)
		}
	}
	return nil
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// watch has an open store report damage instead of ending the process, which is Pebble's default, and marks its directory. It
// replaces the listener that the options may have.
func watch(dir string, opts *pebble.Options, to Reports) {
	var once sync.Once
	fs := opts.FS
	listener := pebble.EventListener{
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			once.Do(func() {
				d := &Damage{dir, fmt.Errorf("%s: %w", info.Path, info.Details)}
				to.Logger.Error("a store is damaged", "store", dir, "file", info.Path, "error", info.Details.Error())
				if err := mark(fs, dir, d.Cause); err != nil {
					to.Logger.Error("a damaged store cannot be marked: remove its directory before the next start", "store", dir, "error", err)
				}
				if to.Damaged != nil {
					to.Damaged(d)
				}
			})
		},
		BackgroundError: func(err error) { to.Logger.Error("store trouble", "store", dir, "error", err.Error()) },
	}
	opts.EventListener = &listener
}

func mark(fs vfs.FS, dir string, cause error) error {
	f, err := fs.Create(fs.PathJoin(dir, markFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, cause.Error())
	return errors.Join(err, f.Sync(), f.Close())
}
