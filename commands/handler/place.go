package handler

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// savePlace puts the partition's place in the log beside the state that it stands for: its heads into the journal, the
// commands that are covered into the checkpoint.
func (o *linkOverlay) savePlace(at *place) error {
	moved, err := at.checker.Moved()
	if err != nil {
		return err
	}
	o.journal.Add(journalPairs{&o.changes, o.partition}, at.checker.Place(), moved)
	covered, ids := make([]pb.CoveredCommand, len(at.covered)), make([]byte, 0, len(commandID{})*len(at.covered))
	checkpoint := &pb.WriterCheckpoint{Next: at.checker.Next(), LowWatermark: at.checker.MaxLowWatermark(), Covered: make([]*pb.CoveredCommand, 0, len(at.covered))}
	for offset, id := range at.covered {
		c := &covered[len(checkpoint.Covered)]
		ids = append(ids, id[:]...)
		c.Offset, c.CommandId = offset, ids[len(ids)-len(id):]
		checkpoint.Covered = append(checkpoint.Covered, c)
	}
	return save(&o.changes, bucketKey(prefixPlace, uint32(o.partition), 0), checkpoint)
}

// journalPairs puts a partition's journal into the changes at hand.
type journalPairs struct {
	changes   *changes
	partition int32
}

// Put implements events.JournalPairs.
func (p journalPairs) Put(number uint64, size int) []byte {
	value := p.changes.room(size)
	p.changes.set(journalKey(p.partition, number), value)
	return value
}

// Drop implements events.JournalPairs.
func (p journalPairs) Drop(number uint64) { p.changes.set(journalKey(p.partition, number), nil) }

// loadPlace reads where the partition stood, and its journal; the zero place of a new store.
func (l *linkLedger) loadPlace(topic string) (place, error) {
	at := newPlace(topic, l.partition, l.count)
	checkpoint, err := load[pb.WriterCheckpoint](l.store, bucketKey(prefixPlace, uint32(l.partition), 0))
	if err != nil || checkpoint == nil {
		return at, err
	}
	for _, c := range checkpoint.GetCovered() {
		at.covered[c.GetOffset()] = commandID(c.GetCommandId())
	}
	if err := l.loadJournal(); err != nil {
		return at, err
	}
	if l.journal.Empty() {
		return at, l.adopt(at.checker, checkpoint)
	}
	if next := l.journal.Place().Next; next != checkpoint.GetNext() {
		return at, fmt.Errorf("command state of partition %d stands at %d, its heads at %d: an older version has written it; remove it, and it is built again from the log", l.partition, checkpoint.GetNext(), next)
	}
	return at, l.journal.Restore(at.checker)
}

func (l *linkLedger) loadJournal() (err error) {
	it, err := l.store.db.NewIter(&pebble.IterOptions{LowerBound: journalKey(l.partition, 0), UpperBound: journalKey(l.partition+1, 0)})
	if err != nil {
		return fmt.Errorf("reading heads: %w", err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		err = l.journal.Replay(binary.BigEndian.Uint64(it.Key()[len(it.Key())-8:]), it.Value())
	}
	return errors.Join(err, it.Error(), it.Close())
}

// adopt puts the heads of a store that has no journal into one, and takes them from where they stood.
func (l *linkLedger) adopt(c *events.Checker, checkpoint *pb.WriterCheckpoint) error {
	var found []events.SavedHead
	l.changes.reset(l.store, &l.filter)
	first, last := events.BucketsOf(l.partition, l.count)
	for bucket := range uint32(2 * events.Buckets) {
		if (bucket < first || bucket > last) && bucket != events.BadKeyBucket(l.partition) {
			continue
		}
		key := bucketKey(prefixHead, bucket, 0)
		encoded, err := l.store.get(key)
		if err != nil {
			return err
		}
		if encoded != nil {
			found = append(found, events.SavedHead{Bucket: bucket, Encoded: encoded})
			l.changes.set(key, nil)
		}
	}
	at := events.Place{Next: checkpoint.GetNext(), MaxL: checkpoint.GetLowWatermark()}
	l.journal.Add(journalPairs{&l.changes, l.partition}, at, found)
	return errors.Join(l.journal.Restore(c), l.changes.commit())
}
