package handler

const (
	maxWriters  = 2 // alive at once
	maxInFlight = 2 // of one writer; more than one in variants only
	maxOrphans  = 3
)

// inflight is a batch on its way to the broker: landed of its n envelopes are in the log, at these offsets.
type inflight struct {
	batch     int32
	n, landed int8
	offsets   [maxBatch]int8
}

// queue is the appends of one producer session, in order.
type queue struct {
	n int8
	b [maxInFlight]inflight
}

func (q *queue) push(b inflight) {
	q.b[q.n] = b
	q.n++
}

func (w *writing) pop() {
	copy(w.b[:], w.b[1:w.n])
	w.n--
	w.b[w.n] = inflight{}
	w.stale = max(w.stale-1, 0)
}

// writing is a writer that lives; life 0: nobody does. In variants, shift is by how much it is wrong about where it stands
// in the log, and stale how many of its appends it sent before it began again.
type writing struct {
	life, shift, stale int8
	stance             int32
	queue
}

// state is the log, the writers, and the appends that nobody waits for and the network still holds.
type state struct {
	log            int32
	writers        [maxWriters]writing
	orphans        [maxOrphans]queue
	orphaned       int8
	lives, unknown int8
}

// kinds of steps.
const (
	begins  = iota // a new writer begins, as a new process, and sends a batch of n
	lands          // what the writer's session sends arrives at the log
	answers        // the writer gets the answer of its oldest append, and sends a batch of n
	expires        // the writer gives up its appends, which the network may still hold, begins again and sends a batch of n
	dies           // the writer dies and what it sent and is not in the log is gone (n = 1) or still on its way (n = 2)
	late           // what nobody waits for arrives at the log
	more           // the writer sends another batch of n before the answer
	kinds
)

type step struct{ kind, who, n int8 }

// staleEnd in n: the writer was told an older end of the log, in variants.
const staleEnd = 8

// steps lists all that may happen.
func (d *drive) steps() (list []step) {
	for kind := range int8(kinds) {
		who, most := int8(maxWriters), d.batch
		switch kind {
		case lands:
			most = 1
		case dies:
			most = 2
		case late:
			who, most = maxOrphans, 1
		}
		for w := range who {
			for n := int8(1); n <= most; n++ {
				list = append(list, step{kind, w, n})
				if d.broken.foldsToStaleEnd && (kind == begins || kind == answers || kind == expires) {
					list = append(list, step{kind, w, n + staleEnd})
				}
			}
		}
	}
	return list
}

func (d *drive) possible(s *state, a step) bool {
	if a.kind == late {
		return a.who < s.orphaned
	}
	w := &s.writers[a.who]
	oldest := w.b[0]
	switch a.kind {
	case begins: // slots are alike: the first free one
		return w.life == 0 && s.lives < d.lives && (a.who == 0 || s.writers[a.who-1].life > 0)
	case lands:
		return w.next() >= 0
	case answers:
		return w.n > 0 && oldest.landed == oldest.n
	case expires:
		return w.n > 0 && s.unknown < d.unknown
	case dies:
		return w.life > 0 && (a.n == 1 || w.next() >= 0 && s.unknown < d.unknown)
	case more:
		return d.broken.pipelined && w.n > 0 && w.n < maxInFlight
	}
	return false
}

// next is the first append of a session that is not in the log yet, -1 if all are.
func (q *queue) next() int {
	for i := range int(q.n) {
		if q.b[i].landed < q.b[i].n {
			return i
		}
	}
	return -1
}
