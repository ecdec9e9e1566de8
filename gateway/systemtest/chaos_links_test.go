package systemtest

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// forever is when an operation returns whose answer was lost.
const forever = math.MaxInt64

// chaosLink is one link under load, with all that was asked and answered about it.
type chaosLink struct {
	number int
	began  time.Time // of the clock that all links share

	mu   sync.Mutex
	code string
	ops  []porcupine.Operation
	// lost counts the operations that return at infinity.
	lost int
	// newest is the highest version in any answer, told the highest that a position covers, position that one.
	newest, told int
	seq          uint64
	position     string
	// shownBy is the highest version that a life of an API process has answered.
	shownBy map[life]int
	// refused is the place of the newest refusal, which tells of the state before it without naming a version; refusedBy is
	// that by a life of an API process.
	refused   uint64
	refusedBy map[life]uint64
	targets   map[string]int64 // when a write of this target was first sent
	keys      []string         // of creates
	acks      []chaosAck
	visits    []chaosVisit
}

// life is one run of a process, from its start to its end.
type life struct {
	server *chaosServer
	number int64
}

// chaosAck is a write that was acknowledged with an effect.
type chaosAck struct {
	version  int
	target   string
	position string
}

// chaosVisit is what a visitor of a redirect process was answered.
type chaosVisit struct {
	life       life
	call, back int64
	target     string // "": 404
}

// asked is an operation under way.
type asked struct {
	op   linkOp
	call int64
	life life
	told int // the floor that holds in whatever life answers
}

func (l *chaosLink) now() int64 { return time.Since(l.began).Nanoseconds() }

// ask begins an operation. For a read it works out what the answer may be: see the promises of linkModel.
func (l *chaosLink) ask(op linkOp, server *chaosServer, withPosition bool) (a asked, position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a = asked{life: server.life()}
	op.link = l.number
	if op.kind == opRead || op.kind == opHistory {
		if withPosition {
			position, a.told = l.position, l.told
		}
		op.floor = max(a.told, l.shownBy[a.life])
		op.exact = op.floor >= l.newest && (withPosition || l.refusedBy[a.life] >= l.refused)
	} else if _, sent := l.targets[op.target]; !sent {
		l.targets[op.target] = l.now()
	}
	a.op, a.call = op, l.now()
	return a, position
}

// answered ends an operation with an answer, and notes what follows from it for later reads. position is the answer's
// Hoplog-Position, or that of the last event of a history.
func (l *chaosLink) answered(client int, a asked, out linkAnswer, position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.life != a.life.server.life() { // it restarted meanwhile: either life may have answered
		if a.op.floor > a.told {
			a.op.floor, a.op.exact = a.told, false
		}
	} else {
		l.shownBy[a.life] = max(l.shownBy[a.life], out.version)
	}
	l.newest = max(l.newest, out.version)
	if seq := seqOf(position); seq > 0 { // it covers all that was answered with a lower one, too
		if seq > l.seq {
			l.seq, l.position = seq, position
		}
		l.told = max(l.told, out.version)
	}
	if out.refused != "" {
		l.refused = max(l.refused, seqOf(position))
		if a.life == a.life.server.life() {
			l.refusedBy[a.life] = max(l.refusedBy[a.life], seqOf(position))
		}
	}
	if (a.op.kind == opCreate || a.op.kind == opEdit) && out.version > 0 && !out.replayed {
		l.acks = append(l.acks, chaosAck{out.version, out.target, position})
	}
	l.ops = append(l.ops, porcupine.Operation{ClientId: client, Input: a.op, Output: out, Call: a.call, Return: l.now()})
}

// loses ends a write whose answer nobody got.
func (l *chaosLink) loses(client int, a asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost++
	l.ops = append(l.ops, porcupine.Operation{ClientId: client, Input: a.op, Output: linkAnswer{lost: true}, Call: a.call, Return: forever})
}

// full reports that the link has as many operations as can be checked quickly.
func (l *chaosLink) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ops) >= opsPerLink || l.lost >= lostPerLink
}

func (l *chaosLink) version() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

func seqOf(position string) uint64 {
	seq, _ := strconv.ParseUint(position[strings.LastIndexByte(position, '/')+1:], 10, 64)
	return seq
}

func bucketOf(position string) int {
	parts := strings.Split(position, "/")
	if len(parts) != 3 {
		return -1
	}
	bucket, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1
	}
	return bucket
}
