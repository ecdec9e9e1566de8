package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// freshKey holds an instant of the reader's clock. It is no part of the fold, and a new store has none.
var freshKey = []byte{reserved, 'f'}

// MarkFresh writes down that the store holds all that the log had acknowledged at this instant of this machine's clock. It
// brings all that was committed before onto the disk: commits alone stay in the process's memory for a while, and kill -9 takes
// them. Nothing is written while the disk is full. Safe for concurrent use.
func (p *Pebble) MarkFresh(at time.Time) error {
	if p.noRoom() {
		return nil
	}
	if err := p.db.Set(freshKey, binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())), pebble.Sync); err != nil {
		return fmt.Errorf("marking the store's age: %w", err)
	}
	return nil
}

// FreshAt returns the newest instant that was marked; the zero time for a store that never held all of the log.
func (p *Pebble) FreshAt() (time.Time, error) {
	value, closer, err := p.db.Get(freshKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the store's age: %w", err)
	}
	defer closer.Close()
	if len(value) != 8 {
		return time.Time{}, fmt.Errorf("%w: an age of %d bytes", ErrDamaged, len(value))
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(value))).UTC(), nil
}
