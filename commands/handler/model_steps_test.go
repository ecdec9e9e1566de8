package handler

import (
	"fmt"
	"math/bits"
	"strings"
)

// take makes one step; it reports false if there is no such step, and what rule the step broke.
func (d *drive) take(s *state, a step) (ok bool, wrong *violation) {
	if !d.possible(s, a) {
		return false, nil
	}
	if a.kind == late {
		q := &s.orphans[a.who]
		d.tell("what the network still held arrives:")
		wrong = d.land(s, q)
		if q.next() < 0 {
			copy(s.orphans[a.who:], s.orphans[a.who+1:s.orphaned])
			s.orphaned--
			s.orphans[s.orphaned] = queue{}
		}
		return true, wrong
	}
	w := &s.writers[a.who]
	switch a.kind {
	case begins:
		s.lives++
		w.life = s.lives
		d.tell("W%d begins", w.life)
		return d.replayAndSend(s, w, 0, a.n)
	case lands:
		d.tell("what W%d sent arrives:", w.life)
		return true, d.land(s, &w.queue)
	case answers:
		return d.answered(s, w, a.n)
	case expires:
		s.unknown++
		d.tell("W%d gives up waiting", w.life)
		return d.failed(s, w, a.n)
	case dies:
		d.tell("W%d dies%s", w.life, map[bool]string{true: "; what it sent is still on its way"}[a.n == 2])
		if a.n == 2 {
			s.unknown++
			if !s.orphan(w) {
				return false, nil
			}
		}
		*w = writing{}
		return true, nil
	}
	d.tell("W%d does not wait for the answer", w.life)
	return d.sendMore(s, w, a.n)
}

// land puts the next append of a session into the log: all of it, or one record where the client splits batches.
func (d *drive) land(s *state, q *queue) *violation {
	b := &q.b[q.next()]
	for {
		env := d.batches[b.batch].envs[b.landed]
		b.offsets[b.landed] = d.nodes[s.log].length
		b.landed++
		s.log = d.child(s.log, env)
		if d.story != nil {
			d.tell("  offset %d: %s", d.nodes[s.log].length-1, d.describe(env))
		}
		if b.landed == b.n || d.broken.splits {
			return nil
		}
	}
}

// orphan leaves to the network what of a writer's appends is not in the log.
func (s *state) orphan(w *writing) bool {
	if w.next() < 0 {
		return true
	}
	if s.orphaned == maxOrphans {
		return false
	}
	g := &s.orphans[s.orphaned]
	for i := w.next(); i < int(w.n); i++ {
		g.push(w.b[i])
	}
	s.orphaned++
	return true
}

func (d *drive) answered(s *state, w *writing, n int8) (bool, *violation) {
	b := w.b[0]
	session := answered{offsets: b.offsets, records: b.n, checked: b.n}
	for i := range session.offsets {
		session.offsets[i] -= w.shift
	}
	if d.broken.anyOffset {
		session.checked = 0
	} else if d.broken.firstOffsetOnly {
		session.checked = 1
	}
	next, confirmed, err := d.answer(w.stance, b.batch, session)
	if err != nil {
		return true, &violation{alarmed, fmt.Sprintf("W%d stops: %v", w.life, err)}
	}
	if !confirmed {
		d.tell("W%d is answered offset %d: not what it expected", w.life, b.offsets[0])
		w.pop()
		return d.failed(s, w, n)
	}
	d.tell("W%d is answered offset %d: confirmed", w.life, b.offsets[0])
	w.stance = next
	w.pop()
	if wrong := d.checkConfirmed(s, w); wrong != nil {
		return true, wrong
	}
	if w.n > 0 {
		return n == 1, nil
	}
	return d.sendMore(s, w, n)
}

// failed is what a writer does when an append is not confirmed.
func (d *drive) failed(s *state, w *writing, n int8) (bool, *violation) {
	switch {
	case d.broken.laterStand:
		w.stale = w.n
	case !s.orphan(w):
		return false, nil
	default:
		w.queue = queue{}
	}
	at := d.stances.list[w.stance]
	if d.broken.noReplay {
		w.shift = d.nodes[s.log].length - d.nodes[at.folded].length
		w.stance = d.stances.number(stance{at.folded, at.folded, at.start, at.start})
		d.tell("  it keeps its state and now expects offset %d", d.nodes[s.log].length)
		return d.sendMore(s, w, n)
	}
	return d.replayAndSend(s, w, at.folded, n)
}

func (d *drive) replayAndSend(s *state, w *writing, folded int32, n int8) (bool, *violation) {
	end := s.log
	if n > staleEnd {
		if n -= staleEnd; end == 0 || end == folded {
			return false, nil
		}
		end = d.nodes[end].before
		d.tell("  it is told an older end of the log")
	}
	next, err := d.replay(folded, end)
	if err != nil {
		return true, &violation{alarmed, fmt.Sprintf("W%d stops: %v", w.life, err)}
	}
	w.stance, w.shift = next, 0
	if d.broken.expectsLogEnd {
		w.shift = d.nodes[s.log].length - d.nodes[end].length
	}
	d.tell("  it reads the log up to %d; its scan begins at c%d", d.nodes[end].length, d.stances.list[next].next)
	return d.sendMore(s, w, n)
}

// sendMore decides a batch on top of what the writer has in flight.
func (d *drive) sendMore(s *state, w *writing, n int8) (bool, *violation) {
	at := d.stances.list[w.stance]
	by := w.stance
	if w.n > w.stale {
		for i := int(w.stale); i < int(w.n); i++ {
			for _, env := range d.batches[w.b[i].batch].envs {
				at.folded = d.child(at.folded, env)
			}
			at.next = d.batches[w.b[i].batch].until
		}
		by = d.stances.number(at)
	}
	batch := d.send(by, n, d.fresh(s))
	if batch < 0 {
		return false, nil
	}
	b := &d.batches[batch]
	switch {
	case b.err != nil:
		return true, &violation{alarmed, fmt.Sprintf("W%d stops: %v", w.life, b.err)}
	case w.n > 0 && (b.none || w.n == maxInFlight):
		return false, nil
	case b.none:
		d.tell("  it has nothing left to do")
		wrong := d.checkDone(s.log, w.life)
		*w = writing{}
		return true, wrong
	}
	w.push(inflight{batch: batch, n: int8(len(b.envs))})
	if d.story != nil {
		d.tell("  it sends %s", d.describeAll(b.envs))
	}
	return true, nil
}

// fresh finds for every command the first nonce that no envelope of the state has, four bits each.
func (d *drive) fresh(s *state) (nonces uint32) {
	used := d.nodes[s.log].nonces
	mark := func(q *queue) {
		for i := range int(q.n) {
			for _, env := range d.batches[q.b[i].batch].envs {
				used[d.envs[env].cmd] |= 1 << d.envs[env].nonce
			}
		}
	}
	for i := range s.writers {
		mark(&s.writers[i].queue)
	}
	for i := range int(s.orphaned) {
		mark(&s.orphans[i])
	}
	for c := range d.commands {
		nonces |= uint32(bits.TrailingZeros16(^used[c])) << (4 * c)
	}
	return nonces
}

func (d *drive) describe(env int32) string {
	e := &d.envs[env]
	after := "first"
	if e.follows >= 0 {
		after = "after " + d.envs[e.follows].name
	}
	return fmt.Sprintf("%s (%c seq %d, %s, L %d)", e.name, 'A'+e.bucket, e.seq, after, e.low)
}

func (d *drive) describeAll(envs []int32) string {
	var list []string
	for _, e := range envs {
		list = append(list, d.describe(e))
	}
	return strings.Join(list, ", ")
}
