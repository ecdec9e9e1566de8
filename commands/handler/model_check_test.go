package handler

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/hoplog/hoplog/events"
)

// What must hold of every history. A violation names one of them.
const (
	lost       = "every command is answered"
	doubled    = "no command is answered twice, and a repeat as its first"
	disordered = "a bucket's commands are answered in their order"
	untrue     = "every decision was made on what is true where it stands"
	mistaken   = "what a writer holds for confirmed, every reader accepts"
	overstated = "below a low watermark every command is answered"
	restless   = "what arrives late changes nothing"
	alarmed    = "a legal log raises no alarm"
	unnoticed  = "a log that lost an envelope with a successor raises one"
)

type violation struct{ rule, what string }

func wrongly(rule, format string, args ...any) *violation {
	return &violation{rule, fmt.Sprintf(format, args...)}
}

// reading is what a reader makes of a log.
type reading struct {
	chains  [modelBuckets]events.Chain
	lists   [modelBuckets][]int32 // accepted envelopes
	covered uint32                // commands, by bit
	wrong   *violation
}

// read takes a log through the product's chain and checks what must hold of every log.
func (d *drive) read(log int32) *reading {
	if known, ok := d.readings[log]; ok {
		return known
	}
	r := &reading{}
	for offset, env := range d.path(log) {
		if wrong := d.readOne(r, offset, env); r.wrong == nil {
			r.wrong = wrong
		}
	}
	d.readings[log] = r
	return r
}

func (d *drive) readOne(r *reading, offset int, env int32) *violation {
	e := &d.envs[env]
	wrong := d.checkLow(r, env)
	accepted, err := d.accepts(r, env)
	if err != nil {
		return wrongly(alarmed, "a reader of this legal log stops at offset %d: %v", offset, err)
	}
	if !accepted {
		return wrong
	}
	if wrong == nil {
		wrong = d.checkAccepted(r, env)
	}
	r.covered |= 1 << e.cmd
	r.lists[e.bucket] = append(r.lists[e.bucket], env)
	return wrong
}

// accepts is sentence 1, by the product's chain, and moves it on.
func (d *drive) accepts(r *reading, env int32) (bool, error) {
	e := &d.envs[env]
	if d.broken.noPrevHash {
		return int(e.seq) == len(r.lists[e.bucket])+1, nil
	}
	return r.chains[e.bucket].Next(uint64(e.seq), e.prev, e.hash)
}

func (d *drive) checkLow(r *reading, env int32) *violation {
	for c := range d.envs[env].low {
		if r.covered>>c&1 == 0 {
			return wrongly(overstated, "%s says that all below c%d is answered, and c%d is not", d.envs[env].name, d.envs[env].low, c)
		}
	}
	return nil
}

func (d *drive) checkAccepted(r *reading, env int32) *violation {
	e := &d.envs[env]
	if r.covered>>e.cmd&1 == 1 {
		return wrongly(doubled, "c%d is answered a second time, by %s", e.cmd, e.name)
	}
	for c, bucket := range d.buckets {
		if bucket == e.bucket && (r.covered>>c&1 == 1) != (int8(c) < e.cmd) {
			return wrongly(disordered, "%s is accepted out of turn with c%d", e.name, c)
		}
	}
	if truth := d.truth(r, e.bucket); e.sight != truth {
		return wrongly(untrue, "%s was decided on the state [%s] of its bucket, the truth is [%s]", e.name, e.sight, truth)
	}
	for _, other := range r.lists[e.bucket] {
		if o := &d.envs[other]; d.keys[o.cmd] == d.keys[e.cmd] && o.answer != e.answer {
			return wrongly(doubled, "c%d repeats c%d and is answered %s instead of %s", e.cmd, o.cmd, e.answer, o.answer)
		}
	}
	return nil
}

// truth is what a decision in the bucket should have been made on.
func (d *drive) truth(r *reading, bucket int8) string {
	var names []string
	for b, list := range r.lists {
		if int8(b) == bucket || d.broken.crossBuckets {
			for _, env := range list {
				names = append(names, d.envs[env].name)
			}
		}
	}
	return strings.Join(names, " ")
}

// checkConfirmed compares what a writer folded with what is in the log.
func (d *drive) checkConfirmed(s *state, w *writing) *violation {
	ours, truth := d.read(d.stances.list[w.stance].folded), d.read(s.log)
	for b, list := range ours.lists {
		for i, env := range list {
			if i >= len(truth.lists[b]) || truth.lists[b][i] != env {
				return wrongly(mistaken, "W%d holds %s for confirmed, readers do not accept it", w.life, d.envs[env].name)
			}
		}
	}
	return nil
}

// checkDone judges a log to which a writer has nothing to add.
func (d *drive) checkDone(log int32, life int8) *violation {
	for c := range d.commands {
		if d.read(log).covered>>c&1 == 0 {
			return wrongly(lost, "W%d has nothing left to do, and c%d is not answered", life, c)
		}
	}
	return nil
}

// checkHoles takes out of a log each accepted envelope that another one extends, as if it had never been written.
func (d *drive) checkHoles(log int32) *violation {
	if d.broken.noPrevHash {
		return nil
	}
	path := d.path(log)
	for _, list := range d.read(log).lists {
		for i := 0; i < len(list)-1; i++ {
			r, noticed := &reading{}, false
			for _, env := range path {
				if env != list[i] && !noticed {
					_, err := d.accepts(r, env)
					noticed = err != nil
				}
			}
			if !noticed {
				return wrongly(unnoticed, "without %s nobody notices", d.envs[list[i]].name)
			}
		}
	}
	return nil
}

// ending is how a log is finished by a writer that nothing disturbs.
type ending struct {
	reading *reading
	wrong   *violation
}

// end lets a new writer decide all that it finds left, and land it.
func (d *drive) end(log int32) *ending {
	if known, ok := d.endings[log]; ok {
		return known
	}
	e := &ending{}
	d.endings[log] = e
	by, err := d.replay(0, log)
	if err != nil {
		e.wrong = wrongly(alarmed, "the next writer stops: %v", err)
		return e
	}
	at := d.stances.list[by]
	b := decided{}
	if all := int8(len(d.commands)); at.next < all {
		b = d.decideUntil(at, all, ^uint32(0))
	}
	if b.err != nil {
		e.wrong = wrongly(alarmed, "the next writer stops: %v", b.err)
		return e
	}
	for _, env := range b.envs {
		log = d.child(log, env)
	}
	e.reading = d.read(log)
	then := func() string {
		return fmt.Sprintf("a writer that begins now scans from c%d and sends [%s]", at.next, d.describeAll(b.envs))
	}
	if e.wrong = e.reading.wrong; e.wrong != nil {
		e.wrong = wrongly(e.wrong.rule, "%s: %s", then(), e.wrong.what)
	} else if d.checkDone(log, 0) != nil {
		e.wrong = wrongly(lost, "%s; it has nothing left to do, and c%d is not answered", then(), bits.TrailingZeros32(^e.reading.covered))
	}
	return e
}

// checkLate lands, after such an end, what the network still holds.
func (d *drive) checkLate(s *state, e *ending) *violation {
	for i := range s.writers {
		if wrong := d.lateFrom(&s.writers[i].queue, e.reading); wrong != nil {
			return wrong
		}
	}
	for i := range int(s.orphaned) {
		if wrong := d.lateFrom(&s.orphans[i], e.reading); wrong != nil {
			return wrong
		}
	}
	return nil
}

func (d *drive) lateFrom(q *queue, r *reading) *violation {
	end := *r // the chains' own memory is shared: read the ending no further than by such copies
	for i := range int(q.n) {
		b := &q.b[i]
		for _, env := range d.batches[b.batch].envs[b.landed:] {
			accepted, err := d.accepts(&end, env)
			if err != nil {
				return wrongly(alarmed, "after the end %s arrives, and a reader stops: %v", d.envs[env].name, err)
			}
			if accepted {
				return wrongly(restless, "after the end %s arrives and is accepted", d.envs[env].name)
			}
		}
	}
	return nil
}
