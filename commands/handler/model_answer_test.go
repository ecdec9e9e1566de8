package handler

import (
	"context"
	"fmt"
	"slices"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// answered is a producer session whose records landed at these offsets, as the writer counts them. checked is how many of
// them are compared: all, but for variants. What it does is the appender's part of sentence 6, which the tests of
// eventlog hold the appender to.
type answered struct {
	offsets          [maxBatch]int8
	records, checked int8
}

type verdict struct {
	stands  int8
	session answered
}

func (a answered) Append(_ context.Context, _ int32, records []eventlog.Record, expect int64) error {
	for i := range records[:a.checked] {
		if int64(a.offsets[i]) != expect+int64(i) {
			return eventlog.ErrForeignOffset
		}
	}
	return nil
}

func (answered) Close() {}

// answer is sentences 6 and 7 for a batch that landed: where the writer stands then, or that it is not confirmed.
func (d *drive) answer(by, batch int32, session answered) (next int32, confirmed bool, err error) {
	at := d.stances.list[by]
	if !d.judge(d.nodes[at.folded].length, session) {
		return 0, false, nil
	}
	key := [2]int32{by, batch}
	done, ok := d.confirms[key]
	if !ok {
		done.to, done.err = d.confirm(at, d.batches[batch])
		d.confirms[key] = done
	}
	return done.to, true, done.err
}

// judge lets the product's writer, which stands at an offset, append to a session with this answer.
func (d *drive) judge(offset int8, session answered) bool {
	key := verdict{offset, session}
	confirmed, ok := d.verdicts[key]
	if !ok {
		at := newPlace("events", 0, 1)
		at.checker.Restore(int64(offset), 0)
		w := &writer{partition: &partition{place: at}, session: session}
		confirmed = w.append(context.Background(), make([]eventlog.Record, session.records)) == nil
		d.verdicts[key] = confirmed
	}
	return confirmed
}

func (d *drive) confirm(at stance, b decided) (int32, error) {
	w, err := d.writer(stance{at.folded, at.folded, at.start, d.stances.list[b.by].next})
	if err != nil {
		return 0, err
	}
	o, _, err := d.decideTo(w, b.until, b.nonces)
	if err != nil {
		return 0, err
	}
	records, err := d.seen(at, b.envs)
	if err != nil {
		return 0, err
	}
	out := outgoing{records: records}
	for _, r := range records {
		e, err := events.DecodeEnvelope(r.Value)
		if err != nil {
			return 0, err
		}
		out.envelopes = append(out.envelopes, *e)
	}
	if err := w.merge(o, out); err != nil {
		return 0, err
	}
	folded := at.folded
	for _, e := range b.envs {
		folded = d.child(folded, e)
	}
	if err := d.same(w, folded); err != nil {
		return 0, err
	}
	at = stance{folded, folded, int8(w.start), b.until}
	d.remember(w, at)
	return d.stances.number(at), nil
}

// same checks that what a writer merged is what a reader of the same records folds.
func (d *drive) same(w *writer, folded int32) error {
	reader, err := d.writer(stance{folded: folded, covered: folded})
	if err != nil {
		return err
	}
	for bucket := range uint32(modelBuckets) {
		ours, theirs := w.checker.Head(bucket), reader.checker.Head(bucket)
		list, want := w.ledger.(*modelLedger).seen[bucket], reader.ledger.(*modelLedger).seen[bucket]
		if ours.Seq != theirs.Seq || ours.Hash != theirs.Hash || !d.broken.blind && !slices.Equal(list, want) {
			return fmt.Errorf("the writer's state of bucket %c is %v at sequence %d, a reader's %v at %d", 'A'+bucket, list, ours.Seq, want, theirs.Seq)
		}
	}
	if fmt.Sprint(w.covered) != fmt.Sprint(reader.covered) || w.checker.Next() != reader.checker.Next() {
		return fmt.Errorf("the writer holds %v for covered at %d, a reader %v at %d", w.covered, w.checker.Next(), reader.covered, reader.checker.Next())
	}
	return nil
}
