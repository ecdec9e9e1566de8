package handler

import (
	"context"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// What a writer of the model does is done by the product's writer: partition.fold, writer.resume, decideAll, append and
// merge run on real encoded envelopes. Every step depends on what the writer has folded and decided alone, so each is run
// once and its result kept by content; the search itself moves numbers.

// bound is one small world: the commands that stand in the command log from the start, and how much may go wrong.
type bound struct {
	// buckets holds each command's bucket, keys the command whose request key it repeats (its own number: none).
	buckets, keys []int8
	// batch is the most envelopes of one append.
	batch int8
	// lives is how many writers begin, two at a time at most; unknown how many appends a writer gives up on while the
	// network may still hold them.
	lives, unknown int8
}

// stance is a writer between two steps: what it folded, in order, where its scan began and what it looks at next. Its low
// watermark is taken from what covered names; only a writer with appends in flight tells that from what it folded.
type stance struct {
	folded, covered int32
	start, next     int8
}

// decided is one batch: by whom it was decided, up to which command, and its envelopes. none: nothing was left.
type decided struct {
	by     int32
	until  int8
	nonces uint32
	envs   []int32
	none   bool
	err    error
}

// drive runs the product's writer for one world and one variant of its rule, and keeps the results.
type drive struct {
	*catalog
	bound
	broken   variant
	commands []eventlog.Record
	stances  intern[stance]
	replays  map[[2]int32]moved
	sends    map[sendKey]int32
	batches  []decided
	confirms map[[2]int32]moved
	verdicts map[verdict]bool
	readings map[int32]*reading
	endings  map[int32]*ending
	latest   *writer
	latestAt stance
	story    func(line string) // told of every step, nil while searching
}

type sendKey struct {
	by     int32
	n      int8
	nonces uint32
}

// moved is where a writer stands after a step, or what stopped it.
type moved struct {
	to  int32
	err error
}

func newDrive(b bound, broken variant) *drive {
	d := &drive{catalog: newCatalog(), bound: b, broken: broken, replays: map[[2]int32]moved{}, sends: map[sendKey]int32{}, confirms: map[[2]int32]moved{},
		verdicts: map[verdict]bool{}, readings: map[int32]*reading{}, endings: map[int32]*ending{}, stances: intern[stance]{numbers: map[stance]int32{}}}
	for i := range b.buckets {
		id := [16]byte{1, byte(i)}
		value, err := (&pb.LinkCommand{SchemaVersion: 1, CommandId: id[:], Request: &pb.RequestRef{Owner: "ann", Key: fmt.Sprint("k", b.keys[i])}}).MarshalVT()
		if err != nil {
			panic(err)
		}
		d.commands = append(d.commands, eventlog.Record{Offset: int64(i), Key: events.BucketKey(uint32(b.buckets[i])), Value: value})
	}
	return d
}

// standing is the product's writer at a stance, to decide with: nothing that it holds may be changed.
func (d *drive) standing(at stance) (*writer, error) {
	if d.latest == nil || d.latestAt.folded != at.folded || d.latestAt.covered != at.covered {
		w, err := d.writer(at)
		if err != nil {
			return nil, err
		}
		d.latest, d.latestAt = w, at
	}
	d.latest.start, d.latest.next = int64(at.start), int64(at.next)
	return d.latest, nil
}

// remember keeps a writer for the decisions that are made from here.
func (d *drive) remember(w *writer, at stance) {
	if !d.broken.noSkip { // there it knows more than that variant's writer
		d.latest, d.latestAt = w, at
	}
}

// writer makes the product's writer as it stands after folding what the stance names.
func (d *drive) writer(at stance) (*writer, error) {
	w := &writer{partition: &partition{stream: events.StreamLink, eventTopic: "events", commandTopic: "commands", count: 1,
		ledger: &modelLedger{broken: d.broken, seen: map[uint32][]string{}, answers: map[answerKey]string{}}, place: newPlace("events", 0, 1)}}
	if err := d.fold(w, d.path(at.folded)); err != nil {
		return nil, err
	}
	if at.covered != at.folded {
		other, err := d.writer(stance{folded: at.covered, covered: at.covered})
		if err != nil {
			return nil, err
		}
		w.covered = other.covered
	}
	if d.broken.noSkip {
		if err := uncover(w.checker); err != nil {
			return nil, err
		}
	}
	w.start, w.next = int64(at.start), int64(at.next)
	return w, nil
}

// fold is partition.fold of the next records, as this variant's readers see them.
func (d *drive) fold(w *writer, envs []int32) error {
	if !d.broken.noPrevHash {
		records := make([]eventlog.Record, len(envs))
		for i, e := range envs {
			records[i] = d.envs[e].record
			records[i].Offset = w.checker.Next() + int64(i)
		}
		return w.fold(records)
	}
	for _, e := range envs {
		r, accepted := d.blindfold(w, e)
		if !accepted {
			w.checker.Restore(w.checker.Next()+1, max(w.checker.MaxLowWatermark(), int64(d.envs[e].low)))
			continue
		}
		if err := w.fold([]eventlog.Record{r}); err != nil {
			return err
		}
	}
	return nil
}

// replay is a writer's begin, or its return after a failure: folded is what it holds already, 0 for a new process.
func (d *drive) replay(folded, log int32) (int32, error) {
	key := [2]int32{folded, log}
	if done, ok := d.replays[key]; ok {
		return done.to, done.err
	}
	value, err := d.replayed(folded, log)
	d.replays[key] = moved{value, err}
	return value, err
}

func (d *drive) replayed(folded, log int32) (int32, error) {
	w, err := d.writer(stance{folded: folded, covered: folded})
	if err != nil {
		return 0, err
	}
	rest := d.path(log)[d.nodes[folded].length:]
	if err := d.fold(w, rest); err != nil {
		return 0, err
	}
	if err := w.resume(0, int64(len(d.commands))); err != nil {
		return 0, err
	}
	for _, e := range rest {
		folded = d.child(folded, e)
	}
	if d.broken.resumeAfterHighest {
		w.next = 0
		w.checker.Heads(func(_ uint32, h events.Head) { w.next = max(w.next, h.CommandOffset+1) })
	}
	at := stance{folded, folded, int8(w.start), int8(w.next)}
	d.remember(w, at)
	return d.stances.number(at), nil
}

// send decides the next n commands that are not covered. nonces makes their stamps different from all others that are
// about: whatever a decision may draw is drawn anew. It returns -1 if fewer are left.
func (d *drive) send(by int32, n int8, nonces uint32) int32 {
	at := d.stances.list[by]
	nonces &= ^uint32(0) << (4 * at.next)
	key := sendKey{by, n, nonces}
	if done, ok := d.sends[key]; ok {
		return done
	}
	number := int32(-1)
	if b := d.decide(by, n, nonces); b.err != nil || b.none && n == 1 || len(b.envs) == int(n) {
		d.batches = append(d.batches, b)
		number = int32(len(d.batches) - 1)
	}
	d.sends[key] = number
	return number
}

func (d *drive) decide(by int32, n int8, nonces uint32) decided {
	at := d.stances.list[by]
	b := decided{until: at.next, none: true}
	for b.until < int8(len(d.commands)) && len(b.envs) < int(n) && b.err == nil {
		b = d.decideUntil(at, b.until+1, nonces)
	}
	b.by = by
	return b
}

// decideUntil is the batch that a writer makes of all commands up to an offset.
func (d *drive) decideUntil(at stance, until int8, nonces uint32) decided {
	b := decided{until: until, nonces: nonces}
	w, err := d.standing(at)
	if err != nil {
		b.err = err
		return b
	}
	_, records, err := d.decideTo(w, until, nonces)
	if err == nil {
		records, err = d.misfit(w, records)
	}
	if b.err = err; err != nil {
		return b
	}
	for _, r := range records {
		b.envs = append(b.envs, d.add(r))
	}
	b.none = len(b.envs) == 0
	return b
}

// decideTo runs the product's decideAll from where the writer stands to an offset.
func (d *drive) decideTo(w *writer, until int8, nonces uint32) (overlay, []eventlog.Record, error) {
	w.ledger.(*modelLedger).nonces = nonces
	o := w.ledger.begin()
	out, err := w.decideAll(context.Background(), o, d.commands[w.next:until])
	return o, out.records, err
}
