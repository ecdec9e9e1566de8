package runner

import (
	"encoding/binary"
	"fmt"

	"github.com/hoplog/hoplog/events"
)

// journal is a partition's place and heads in the store of a projection.
type journal struct {
	events.Journal
	partition int32
}

func newJournal(partition int32) *journal { return &journal{partition: partition} }

func (j *journal) key(number uint64) []byte {
	key := binary.BigEndian.AppendUint32(journalPrefix[:2:2], uint32(j.partition))
	return binary.BigEndian.AppendUint64(key, number)
}

func decodeJournalKey(key []byte) (partition int, number uint64, err error) {
	if len(key) != len(journalPrefix)+12 {
		return 0, 0, fmt.Errorf("%w: position under %x", ErrDamaged, key)
	}
	key = key[len(journalPrefix):]
	return int(binary.BigEndian.Uint32(key)), binary.BigEndian.Uint64(key[4:]), nil
}

// add writes where a batch has led.
func (j *journal) add(w *Write, at events.Place, moved []events.SavedHead) {
	j.Add(journalPairs{j, w}, at, moved)
}

// rewrite writes all heads and takes away what was written before.
func (j *journal) rewrite(w *Write) { j.Rewrite(journalPairs{j, w}) }

// journalPairs puts a journal's pairs into a commit. Nothing reads them back within it.
type journalPairs struct {
	*journal
	write *Write
}

// Put implements events.JournalPairs.
func (p journalPairs) Put(number uint64, size int) []byte {
	return p.write.append(p.key(number), size)
}

// Drop implements events.JournalPairs.
func (p journalPairs) Drop(number uint64) { p.write.remove(p.key(number)) }

// replay reads the next pair back.
func (j *journal) replay(number uint64, value []byte) error {
	if err := j.Replay(number, value); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// restore puts a new checker where the journal stands.
func (j *journal) restore(c *events.Checker) error {
	if err := j.Restore(c); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
