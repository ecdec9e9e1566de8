package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// bulk commits many changes at once: it writes them as tables and has the store take these up, without its log, its
// memtables and their flush, which would be half of a replay's CPU.
type bulk struct {
	db   *pebble.DB
	opts *pebble.Options
	dir  string // for tables that are not the store's yet
	from int    // bytes of a commit that make it one for tables
	// unflushed: a batch was committed since the store was opened or flushed. A crash of the machine may take it away, so it
	// must be on disk before a table that follows it.
	unflushed bool
}

// bulkTables is how many tables are written side by side.
const bulkTables = 2

// newBulk removes what an earlier process has left unfinished.
func newBulk(db *pebble.DB, dir string, from int, opts *pebble.Options) (bulk, error) {
	opts.EnsureDefaults() // the store has filled in a copy of its own
	b := bulk{db: db, opts: opts, from: from, unflushed: true}
	b.dir = b.opts.FS.PathJoin(dir, "bulk")
	err := b.opts.FS.RemoveAll(b.dir)
	if err == nil {
		err = b.opts.FS.MkdirAll(b.dir, 0o755)
	}
	if err != nil {
		return b, fmt.Errorf("clearing %s: %w", b.dir, err)
	}
	return b, nil
}

// commit makes all of the writes visible and durable at once.
func (b *bulk) commit(writes []*Write) error {
	if b.unflushed {
		if err := b.db.Flush(); err != nil {
			return fmt.Errorf("flushing what came before: %w", err)
		}
		b.unflushed = false
	}
	var tables []string
	var errs [bulkTables]error
	var all sync.WaitGroup
	for i, part := range split(writes) {
		if len(part) == 0 {
			continue
		}
		name := b.opts.FS.PathJoin(b.dir, fmt.Sprintf("%d.sst", i))
		tables = append(tables, name)
		all.Go(func() { errs[i] = b.write(name, part) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := b.db.Ingest(context.Background(), tables); err != nil {
		return fmt.Errorf("taking up tables: %w", err)
	}
	return nil
}

// write writes sorted runs, merged, as a table.
func (b *bulk) write(name string, runs []run) error {
	f, err := b.opts.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: b.opts.BytesPerSync})
	table := sstable.NewWriter(objstorageprovider.NewFileWritable(f), b.opts.MakeWriterOptions(0, b.db.TableFormat()))
	for key, value := range merge(runs) {
		if value == nil {
			err = table.Delete(key)
		} else {
			err = table.Set(key, value)
		}
		if err != nil {
			break
		}
	}
	if err = errors.Join(err, table.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
