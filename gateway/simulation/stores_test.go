//go:build synctests

package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// fresh are processes that never saw a fault: they fold the whole log anew, at the end.
func (w *world) fresh() []*process {
	var list []*process
	for i, r := range []role{roleWriter, roleAPI, roleNode} {
		p := w.process("fresh", r, generator(w.rng.Uint64(), uint64(i)))
		p.start()
		list = append(list, p)
	}
	w.eventually("fresh processes at the end of the log", patience, func() error {
		ends, err := w.truth.log.Ends(w.ctx, eventlog.EventsLink)
		if err != nil {
			return err
		}
		for _, p := range append(w.processes(), list...) {
			if err := p.caughtUp(ends); err != nil {
				w.nudge()
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
	return list
}

// verify reads the log with the full memory that `audit verify` has.
func (w *world) verify() {
	v := projections.NewVerification()
	w.verifyPartition(v.Control(eventlog.EventsControl), eventlog.EventsControl, eventlog.CommandsControl, 0)
	for p := range int32(partitions) {
		w.verifyPartition(v.Partition(eventlog.EventsLink, p, partitions), eventlog.EventsLink, eventlog.CommandsLink, p)
	}
	v.Finish()
	if len(v.Problems) > 0 {
		w.fail("the verification of the log finds %+v", v.Problems)
	}
}

func (w *world) verifyPartition(v *projections.Verifier, topic, commands string, partition int32) {
	ends, err := w.truth.log.Ends(w.ctx, topic)
	w.must(err)
	commandEnds, err := w.truth.log.Ends(w.ctx, commands)
	w.must(err)
	if ends[partition] > 0 {
		tail, err := w.truth.log.NewTail(topic, map[int32]int64{partition: 0})
		w.must(err)
		defer tail.Close()
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		for next := int64(0); next < ends[partition]; {
			batches, err := tail.Poll(ctx, 0)
			w.must(err)
			for _, b := range batches {
				for _, r := range b.Records {
					if next = r.Offset + 1; next <= ends[partition] {
						v.Add(r.Offset, r.Key, r.Value)
					}
				}
			}
		}
	}
	v.End(ends[partition], commandEnds[partition])
}

// storeOf names the directories of each role's stores.
var storesOf = map[role][]string{roleWriter: {"commands"}, roleAPI: {"links"}, roleNode: {"redirects/gen-000001"}}

// checkStores holds every store that lived through the faults against one that did not. All processes are stopped.
func (w *world) checkStores(fresh []*process) {
	for _, f := range fresh {
		for _, dir := range storesOf[f.role] {
			want := w.contents(f, dir)
			for _, p := range w.processes() {
				if p.role == f.role {
					w.compare(p.name+"/"+dir, w.contents(p, dir), want)
				}
			}
		}
	}
}

// contents reads a store but for what differs between processes that hold the same: where they stand, and how that is
// written down. Of a writer's heads it keeps the chain.
func (w *world) contents(p *process, dir string) map[string][]byte {
	db, err := pebble.Open(dir, &pebble.Options{FS: p.fs, ReadOnly: true, Logger: silent{}})
	if err != nil {
		w.fail("opening %s of %s: %v", dir, p.name, err)
		return nil
	}
	defer db.Close()
	all := map[string][]byte{}
	err = runner.ScanRange(db, []byte{1}, nil, func(key, value []byte) error {
		switch {
		case p.role == roleWriter && key[0] == 'p', p.role == roleWriter && key[0] == 'r' && time.Duration(w.ahead.Load()) > 6*24*time.Hour:
			return nil // the place; keys that the one has swept and the other not yet
		case p.role == roleWriter && key[0] == 'h':
			head := &pb.BucketHead{}
			if err := head.UnmarshalVT(value); err != nil {
				return err
			}
			value = fmt.Appendf(nil, "%d %x %d %d %d", head.GetSeq(), head.GetHash(), head.GetCommandOffset(), head.GetTimeUs(), head.GetControlSeq())
			if err := w.checkHead(key, head); err != nil {
				return err
			}
		}
		all[string(key)] = bytes.Clone(value)
		return nil
	})
	if err != nil {
		w.fail("reading %s of %s: %v", dir, p.name, err)
	}
	return all
}

// checkHead holds a writer's head of a bucket against the truth.
func (w *world) checkHead(key []byte, head *pb.BucketHead) error {
	bucket := uint32(key[1])<<8 | uint32(key[2])
	list := w.truth.buckets[bucket]
	if len(list) == 0 || head.GetSeq() != uint64(len(list)) || !bytes.Equal(head.GetHash(), list[len(list)-1].Hash[:]) {
		return fmt.Errorf("bucket %d stands at %d, %x; the log has %d envelopes", bucket, head.GetSeq(), head.GetHash(), len(list))
	}
	return nil
}

func (w *world) compare(store string, got, want map[string][]byte) {
	for key, value := range want {
		if other, ok := got[key]; !ok || !bytes.Equal(other, value) {
			w.fail("%s has %x under %q, a fold of the log has %x", store, other, key, value)
			return
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			w.fail("%s has %q, a fold of the log has not", store, key)
			return
		}
	}
}

var errEmpty = errors.New("the log has no links: the simulation tries nothing")

// checkTried fails a simulation in which nothing happened.
func (w *world) checkTried() {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	if len(w.truth.links) < 2 {
		w.fail("%v", errEmpty)
	}
	for bucket := range w.truth.buckets {
		if bucket >= events.Buckets {
			w.fail("a command has a key that names no bucket: the simulation sends none")
		}
	}
}

// silent is Pebble's logger for reading.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
