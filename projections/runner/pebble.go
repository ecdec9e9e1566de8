package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events/disk"
)

// Cache is block cache that several stores share.
type Cache = pebble.Cache

// NewCache returns a block cache of that many bytes. Its maker calls Unref when all stores that use it are open.
func NewCache(bytes int64) *Cache { return pebble.NewCache(bytes) }

// PebbleOptions are what a store on disk may be given. All have defaults.
type PebbleOptions struct {
	FS            vfs.FS // default: the disk
	Cache         *Cache // default: 8 MiB of its own
	MemTableBytes uint64 // default 16 MiB; two of them, for a moment three
	BulkBytes     int    // size of a commit that goes around the memtables; default 8 MiB
	Logger        *slog.Logger
	Damaged       func(*disk.Damage) // hears of damage that is found while the store is open
	Full          func() error       // why nothing may be written; commits wait while it says so
}

const defaultBulkBytes = 8 << 20

// Pebble is a Store on disk. Its directory belongs to one process at a time.
type Pebble struct {
	db   *pebble.DB
	bulk bulk
	full func() error
}

const roomPoll = 50 * time.Millisecond

// OpenPebble opens or makes the store in dir. One that is damaged is set aside and begun anew.
func OpenPebble(dir string, o PebbleOptions) (*Pebble, error) {
	if o.BulkBytes == 0 {
		o.BulkBytes = defaultBulkBytes
	}
	opts := o.build()
	db, err := disk.Open(dir, opts, disk.Reports{Logger: o.Logger, Damaged: o.Damaged})
	if err != nil {
		return nil, fmt.Errorf("opening store %s: %w", dir, err)
	}
	p := &Pebble{db: db, full: o.Full}
	if p.bulk, err = newBulk(db, dir, o.BulkBytes, opts); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return p, nil
}

// l0Compaction is how many layers of fresh tables gather before they are merged. Keys come from everywhere in the key space, so
// each merge reads and writes all of the level below: fewer of them save processor time, and a look-up asks a filter more.
const l0Compaction = 8

func (o PebbleOptions) build() *pebble.Options {
	opts := &pebble.Options{
		FS:                          o.FS,
		Cache:                       o.Cache,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       l0Compaction,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		// The kernel writes back in the background; these keep it from doing all of it at once.
		BytesPerSync:    1 << 20,
		WALBytesPerSync: 1 << 20,
		MaxOpenFiles:    512,
		Logger:          pebbleLogger{o.Logger},
	}
	if o.MemTableBytes == 0 {
		opts.MemTableSize = 16 << 20
	}
	// One block of a table's index holds all of it, as a rule: a look-up goes through one, not two.
	opts.Levels[0].IndexBlockSize = 512 << 10
	opts.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // deeper levels take over the setting of the one above
	return opts
}

// DB is for reading.
func (p *Pebble) DB() *pebble.DB { return p.db }

// Close flushes and closes the store. Nobody may be reading.
func (p *Pebble) Close() error {
	if err := p.db.Close(); err != nil {
		return fmt.Errorf("closing store: %w", err)
	}
	return nil
}

// Get implements Store.
func (p *Pebble) Get(dst, key []byte) ([]byte, bool, error) {
	value, closer, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, fmt.Errorf("reading from store: %w", err)
	}
	dst = append(dst, value...)
	return dst, true, closer.Close()
}

// Scan implements Store.
func (p *Pebble) Scan(prefix []byte, f func(key, value []byte) error) error {
	return ScanRange(p.db, prefix, After(prefix), f)
}

// Commit implements Store. It does not sync: see the package comment.
func (p *Pebble) Commit(writes []*Write) error {
	for p.noRoom() {
		time.Sleep(roomPoll) // the log keeps what is not folded; a store that met a full disk would end the process
	}
	err := p.commit(writes)
	if err != nil {
		return fmt.Errorf("committing to store: %w", err)
	}
	return nil
}

func (p *Pebble) noRoom() bool { return p.full != nil && p.full() != nil }

func (p *Pebble) commit(writes []*Write) error {
	size, changes := 0, 0
	for _, w := range writes {
		size, changes = size+w.Size(), changes+w.Len()
	}
	if size >= p.bulk.from {
		return p.bulk.commit(writes)
	}
	p.bulk.unflushed = true
	batch := p.db.NewBatchWithSize(size + 16*changes)
	err := fill(batch, writes)
	if err == nil {
		err = batch.Commit(pebble.NoSync)
	}
	return errors.Join(err, batch.Close())
}

func fill(batch *pebble.Batch, writes []*Write) error {
	for _, w := range writes {
		for key, value := range w.All() {
			if value == nil {
				if err := batch.Delete(key, nil); err != nil {
					return err
				}
				continue
			}
			d := batch.SetDeferred(len(key), len(value))
			copy(d.Key, key)
			copy(d.Value, value)
			if err := d.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ScanRange calls f for every pair with from ≤ key < to, in key order. The slices are lent for the call.
func ScanRange(r pebble.Reader, from, to []byte, f func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("scanning store: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key(), value)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("scanning store: %w", err)
	}
	return nil
}

// After returns the first key after all that begin with prefix; nil when there is none.
func After(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			next := append([]byte(nil), prefix[:i+1]...)
			next[i]++
			return next
		}
	}
	return nil
}

// pebbleLogger keeps what Pebble says of its daily work out of the log.
type pebbleLogger struct{ to *slog.Logger }

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	if l.to != nil {
		l.to.Error("store trouble", "message", fmt.Sprintf(format, args...))
	}
}

// Fatalf must not return: Pebble calls it when going on would lose what it has promised.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	panic(fmt.Sprintf("store: "+format, args...))
}
