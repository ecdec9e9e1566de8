package handler

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// history is what led to a violation.
type history struct {
	violation
	steps []step
}

// explored is what a search has seen.
type explored struct {
	states, logs, steps int
	found               *history
}

func (x *explored) add(other explored) {
	x.states, x.logs, x.steps = x.states+other.states, x.logs+other.logs, x.steps+other.steps
}

func (x *explored) String() string {
	return fmt.Sprintf("%d states, %d logs, %d steps", x.states, x.logs, x.steps)
}

type origin struct {
	before int32
	step   step
}

// search visits every state of the world, nearest first. It ends at the first violation; if the variant has a harm, at the
// first of that rule.
func (d *drive) search() (x explored) {
	seen, logs := map[uint64]struct{}{}, map[uint64]struct{}{}
	steps := d.steps()
	origins := []origin{{before: -1}}
	now, nowAt := []state{{}}, []int32{0}
	for len(now) > 0 && x.found == nil {
		var next []state
		var nextAt []int32
		for i := range now {
			for _, a := range steps {
				s := now[i]
				ok, wrong := d.take(&s, a)
				if !ok {
					continue
				}
				if x.steps++; !d.matters(wrong) {
					if wrong != nil && wrong.rule == alarmed {
						continue // the product noticed, and stopped
					}
					key := d.key(&s)
					if _, old := seen[key]; old {
						continue
					}
					seen[key] = struct{}{}
					wrong = d.checkState(&s, logs)
				}
				origins = append(origins, origin{nowAt[i], a})
				next, nextAt = append(next, s), append(nextAt, int32(len(origins)-1))
				if d.matters(wrong) && x.found == nil {
					x.found = &history{*wrong, trace(origins)}
				}
			}
			if x.found != nil {
				break
			}
		}
		now, nowAt = next, nextAt
	}
	x.states, x.logs = len(origins), len(logs)
	return x
}

func (d *drive) matters(wrong *violation) bool {
	return wrong != nil && (d.broken.harm == "" || d.broken.harm == wrong.rule)
}

// checkState checks a state that was not met before.
func (d *drive) checkState(s *state, logs map[uint64]struct{}) *violation {
	class := d.nodes[s.log].class
	_, old := logs[class]
	if !old {
		logs[class] = struct{}{}
		if wrong := d.read(s.log).wrong; d.matters(wrong) {
			return wrong
		}
		if wrong := d.checkHoles(s.log); d.matters(wrong) {
			return wrong
		}
	}
	e := d.end(s.log)
	if !old && d.matters(e.wrong) {
		return e.wrong
	}
	if e.reading == nil {
		return nil
	}
	return d.checkLate(s, e)
}

func trace(origins []origin) (steps []step) {
	for at := len(origins) - 1; at > 0; at = int(origins[at].before) {
		steps = append(steps, origins[at].step)
	}
	slices.Reverse(steps)
	return steps
}

// key tells states apart but for what does not matter: the names of writers, the order of orphans, what was drawn. Two
// different states share one with a probability of 2⁻⁶⁴.
func (d *drive) key(s *state) uint64 {
	var parts [1 + maxWriters + maxOrphans]uint64
	parts[0] = d.nodes[s.log].class
	writers, orphans := parts[1:1+maxWriters], parts[1+maxWriters:]
	for i := range s.writers {
		if w := &s.writers[i]; w.life > 0 {
			writers[i] = d.keyOfWriter(s.log, w)
		}
	}
	for i := range int(s.orphaned) {
		d.buf = d.encodeQueue(d.buf[:0], s.log, &s.orphans[i])
		orphans[i] = xxhash.Sum64(d.buf)
	}
	slices.Sort(writers)
	slices.Sort(orphans)
	buf := d.buf[:0]
	buf = append(buf, byte(s.lives), byte(s.unknown))
	for _, p := range parts {
		buf = binary.LittleEndian.AppendUint64(buf, p)
	}
	d.buf = buf
	return xxhash.Sum64(buf)
}

func (d *drive) keyOfWriter(log int32, w *writing) uint64 {
	at := d.stances.list[w.stance]
	buf := d.buf[:0]
	buf = append(buf, byte(at.start), byte(at.next), byte(w.shift), byte(w.stale), byte(d.nodes[at.folded].length))
	if prefix := d.prefix(log, d.nodes[at.folded].length); prefix != at.folded {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(at.folded))
	}
	d.buf = d.encodeQueue(buf, log, &w.queue)
	return xxhash.Sum64(d.buf)
}

func (d *drive) prefix(log int32, length int8) int32 {
	for d.nodes[log].length > length {
		log = d.nodes[log].before
	}
	return log
}

func (d *drive) encodeQueue(buf []byte, log int32, q *queue) []byte {
	var with []int32
	for i := range int(q.n) {
		b := &q.b[i]
		envs := d.batches[b.batch].envs
		with = append(with, envs...)
		buf = append(buf, 100, byte(b.n), byte(b.landed), byte(d.batches[b.batch].until))
		for j, env := range envs {
			if j < int(b.landed) {
				buf = append(buf, byte(b.offsets[j]))
			} else {
				buf = d.encode(buf, log, env, with)
			}
		}
	}
	return buf
}

// retell writes a history down as somebody who watches it would.
func (d *drive) retell(h *history) string {
	var out strings.Builder
	fmt.Fprint(&out, "commands")
	for c, bucket := range d.buckets {
		fmt.Fprintf(&out, " c%d:%c", c, 'A'+bucket)
		if d.keys[c] != int8(c) {
			fmt.Fprintf(&out, " (repeats c%d)", d.keys[c])
		}
	}
	d.story = func(line string) { fmt.Fprintf(&out, "\n    %s", line) }
	s := state{}
	for i, a := range h.steps {
		if i == 0 {
			fmt.Fprint(&out, "\n")
		}
		_, _ = d.take(&s, a)
	}
	d.story = nil
	fmt.Fprintf(&out, "\n  broken: %s:\n  %s", h.rule, h.what)
	return out.String()
}

func (d *drive) tell(format string, args ...any) {
	if d.story != nil {
		d.story(fmt.Sprintf(format, args...))
	}
}
