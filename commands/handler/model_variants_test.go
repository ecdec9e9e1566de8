package handler

import (
	"crypto/sha256"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// variant is the chain rule with something taken away or put in its place. The zero value is the rule as it is kept.
type variant struct {
	// harm is the rule of the model that the search is for; "": any.
	harm string

	resumeAfterHighest bool // 2: the scan begins after the highest answered command instead of at the largest L
	foldsToStaleEnd    bool // 2: the end that a writer folds to may be an older one
	expectsLogEnd      bool // 2: ... while it expects to append at the real one
	noPrevHash         bool // 1: readers look at seq alone
	noSkip             bool // 3: covered commands are decided again
	blind              bool // 3: each command is decided on the confirmed state, not on what came before it in the batch
	silentRepeats      bool // 4: a repeated request gets no envelope of its own
	lowFromOverlay     bool // 5: L counts what is only about to be appended
	anyOffset          bool // 6: any answer confirms
	splits             bool // the client library sends a batch record by record
	firstOffsetOnly    bool // 6: only the first record's offset is compared
	noReplay           bool // 7: after a failure the writer expects the log's end and keeps its state
	pipelined          bool // two appends may be in flight
	laterStand         bool // 7: a later append stays in flight although an earlier one failed
	crossBuckets       bool // decisions read the other buckets of the partition too
	noKeys             bool // request keys are not looked up
}

// What follows reads or writes other records than the product does.

// uncover makes a checker forget which commands are answered, and nothing else.
func uncover(c *events.Checker) error {
	heads := map[uint32]*pb.BucketHead{}
	err := c.Saved(func(bucket uint32, head *pb.BucketHead) error {
		heads[bucket] = proto.Clone(head).(*pb.BucketHead)
		return nil
	})
	for bucket, head := range heads {
		head.CommandOffset = -1
		if err == nil {
			err = c.RestoreHead(bucket, head)
		}
	}
	return err
}

// blindfold is an envelope as a reader sees it that does not look at prev_hash: it names the head, whatever that is.
func (d *drive) blindfold(w *writer, env int32) (r eventlog.Record, accepted bool) {
	e := d.envs[env]
	head := w.checker.Head(uint32(e.bucket))
	if uint64(e.seq) != head.Seq+1 {
		return r, false
	}
	r = d.rewrite(e.record, func(pbe *pb.Envelope) { pbe.PrevHash = head.Hash[:] })
	r.Offset = w.checker.Next()
	if _, known := d.byHash[sha256.Sum256(r.Value)]; !known {
		d.byHash[sha256.Sum256(r.Value)] = env
	}
	return r, true
}

func (d *drive) rewrite(r eventlog.Record, change func(*pb.Envelope)) eventlog.Record {
	e := &pb.Envelope{}
	if err := e.UnmarshalVT(r.Value); err != nil {
		panic(err)
	}
	change(e)
	value, _, err := events.EncodeEnvelope(e)
	if err != nil {
		panic(err)
	}
	return eventlog.Record{Key: r.Key, Value: value}
}

// seen is a writer's own batch as this variant's readers see it.
func (d *drive) seen(at stance, envs []int32) ([]eventlog.Record, error) {
	var list []eventlog.Record
	if !d.broken.noPrevHash {
		for _, e := range envs {
			list = append(list, d.envs[e].record)
		}
		return list, nil
	}
	w, err := d.writer(at)
	if err != nil {
		return nil, err
	}
	for _, e := range envs {
		r, _ := d.blindfold(w, e)
		list = append(list, r)
		if err := w.fold([]eventlog.Record{r}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// misfit changes a batch that the product's writer decided into what the variant's would have sent.
func (d *drive) misfit(w *writer, records []eventlog.Record) ([]eventlog.Record, error) {
	if !d.broken.lowFromOverlay && !d.broken.silentRepeats {
		return records, nil
	}
	var list []eventlog.Record
	heads := map[uint32]events.Head{}
	over := &place{checker: w.checker, covered: maps.Clone(w.covered)}
	for _, r := range records {
		e, err := events.DecodeEnvelope(r.Value)
		if err != nil {
			return nil, err
		}
		if d.broken.silentRepeats && e.GetOutcome().GetReplayed() {
			continue
		}
		head, ok := heads[e.GetBucket()]
		if !ok {
			head = w.checker.Head(e.GetBucket())
		}
		low := e.GetLowWatermark()
		if d.broken.lowFromOverlay {
			low = over.lowWatermark(w.start)
			over.cover(e)
		}
		next, after, err := seal(w.stream, proto.Clone(e.Envelope).(*pb.Envelope), e.GetBucket(), head, e.GetCommandOffset(), low)
		if err != nil {
			return nil, err
		}
		heads[e.GetBucket()] = after
		list = append(list, next)
	}
	return list, nil
}
