package systemtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// This file is what a link promises to those who write and read it by HTTP, as a model that porcupine checks histories
// against. Each link is an object of its own: one link lies in one bucket, and nothing is promised across buckets.
//
// Which operations are linearizable, and which are less:
//
//   - Writes are: the bucket's chain puts them in one order, and an answer comes after its place in it. A write with a request
//     key that was decided before is answered with the outcome stored then, and changes nothing. A write whose answer was lost
//     may take effect at any later moment, once, or never: it returns at infinity.
//   - A read shows the state of one API process's own fold, which follows the chain and may lag. Promised is a floor: a read
//     shows no less than the Hoplog-Position it names, and no less than anything that was answered by the same process in the
//     same life before (an answer is given after the process's own stores hold it, and the fold never runs back). Where that
//     floor covers everything that anyone was answered about this link before the read began, the read is linearizable, and is
//     checked as such (exact). Otherwise (a read without a position at another process or after a restart) it is sequentially
//     consistent: it shows some state of the chain, not below the floor. No read ever shows what never was.
//   - A history is a read of all versions up to the one it shows.

// linkOp is what was asked.
type linkOp struct {
	link      int // the partition of porcupine
	kind      string
	key       string // request key of a write, "": none that the client knows
	target    string
	ifVersion int  // of an edit, 0: any
	floor     int  // of a read: the least version it may show
	exact     bool // of a read: it must show the newest
}

const (
	opCreate  = "create"
	opEdit    = "edit"
	opRead    = "read"
	opHistory = "history"
)

// linkAnswer is what was answered.
type linkAnswer struct {
	lost     bool // nobody knows
	version  int  // 0: there is no link
	target   string
	refused  string // stable code of a refusal
	replayed bool
	targets  []string // of a history, oldest first
}

// linkState is a link after its latest decision. It is never changed; nil: nothing was decided yet.
type linkState struct {
	before  *linkState
	key     string
	outcome linkAnswer // of this decision
	version int
	target  string
}

func (s *linkState) at(version int) (target string, ok bool) {
	for ; s != nil; s = s.before {
		if s.version == version {
			return s.target, true
		}
	}
	return "", version == 0
}

func (s *linkState) current() int {
	if s == nil {
		return 0
	}
	return s.version
}

// stored finds the outcome under a request key.
func (s *linkState) stored(key string) (linkAnswer, bool) {
	for ; key != "" && s != nil; s = s.before {
		if s.key == key {
			return s.outcome, true
		}
	}
	return linkAnswer{}, false
}

// write decides a write whose key is new.
func (s *linkState) write(op linkOp) *linkState {
	next := &linkState{before: s, key: op.key, version: s.current()}
	next.target, _ = s.at(next.version)
	switch {
	case op.kind == opCreate && next.version > 0:
		next.outcome.refused = "code_taken"
	case op.kind == opEdit && next.version == 0:
		next.outcome.refused = "not_found"
	case op.ifVersion != 0 && op.ifVersion != next.version:
		next.outcome.refused = "version_mismatch"
	default:
		next.version, next.target = next.version+1, op.target
		next.outcome.version, next.outcome.target = next.version, next.target
	}
	return next
}

// shows reports whether a read may answer this on a state.
func (s *linkState) shows(op linkOp, a linkAnswer) bool {
	target, was := s.at(a.version)
	if !was || a.version < op.floor || op.exact && a.version != s.current() {
		return false
	}
	if op.kind == opRead {
		return a.target == target
	}
	for i, shown := range a.targets {
		if was, _ := s.at(i + 1); shown != was {
			return false
		}
	}
	return len(a.targets) == a.version
}

func stepLink(s *linkState, op linkOp, a linkAnswer) (bool, *linkState) {
	if op.kind == opRead || op.kind == opHistory {
		return s.shows(op, a), s
	}
	want, met := s.stored(op.key)
	next := s
	if !met {
		decided := s.write(op)
		want = decided.outcome
		if op.key != "" || want.refused == "" { // a refusal without a key leaves nothing behind
			next = decided
		}
	}
	same := a.version == want.version && a.target == want.target && a.refused == want.refused && a.replayed == met
	return a.lost || same, next
}

func sameLink(a, b *linkState) bool {
	for ; a != b; a, b = a.before, b.before {
		if a == nil || b == nil || a.key != b.key || a.version != b.version || a.target != b.target || a.outcome.refused != b.outcome.refused {
			return false
		}
	}
	return true
}

// linkModel is the promise for porcupine.
var linkModel = porcupine.Model{
	Partition: byLink,
	Init:      func() any { return (*linkState)(nil) },
	Step: func(state, input, output any) (bool, any) {
		return stepLink(state.(*linkState), input.(linkOp), output.(linkAnswer))
	},
	Equal:             func(a, b any) bool { return sameLink(a.(*linkState), b.(*linkState)) },
	DescribeOperation: func(input, output any) string { return describe(input.(linkOp), output.(linkAnswer)) },
}

func byLink(history []porcupine.Operation) [][]porcupine.Operation {
	links := map[int][]porcupine.Operation{}
	var order []int
	for _, op := range history {
		link := op.Input.(linkOp).link
		if links[link] == nil {
			order = append(order, link)
		}
		links[link] = append(links[link], op)
	}
	parts := make([][]porcupine.Operation, len(order))
	for i, link := range order {
		parts[i] = links[link]
	}
	return parts
}

// essential leaves out what cannot change the verdict and makes it slow to find: of the lost attempts with one key all but the
// first. Whichever of them took effect, the first may have at that moment, and the rest only met what it left.
func essential(history []porcupine.Operation) []porcupine.Operation {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	lost := map[string]bool{}
	return slices.DeleteFunc(history, func(op porcupine.Operation) bool {
		key := op.Input.(linkOp).key
		if key == "" || !op.Output.(linkAnswer).lost {
			return false
		}
		again := lost[key]
		lost[key] = true
		return again
	})
}

func describe(op linkOp, a linkAnswer) string {
	var b strings.Builder
	fmt.Fprint(&b, op.kind)
	for _, part := range []struct {
		name, value string
		shown       bool
	}{
		{"key", op.key, op.key != ""}, {"target", op.target, op.target != ""}, {"if", fmt.Sprint(op.ifVersion), op.ifVersion != 0},
		{"floor", fmt.Sprint(op.floor), op.floor != 0}, {"exact", "", op.exact},
	} {
		if part.shown {
			fmt.Fprintf(&b, " %s %s", part.name, part.value)
		}
	}
	switch {
	case a.lost:
		return b.String() + " → lost"
	case a.refused != "":
		fmt.Fprintf(&b, " → %s", a.refused)
	default:
		fmt.Fprintf(&b, " → %d %s", a.version, a.target)
	}
	if a.replayed {
		b.WriteString(" replayed")
	}
	if len(a.targets) > 0 {
		fmt.Fprintf(&b, " %v", a.targets)
	}
	return b.String()
}

// transcript is a history in words, in the order of the calls.
func transcript(history []porcupine.Operation) string {
	history = slices.Clone(history)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range history {
		returned := "∞"
		if op.Return != forever {
			returned = fmt.Sprintf("%.3f", float64(op.Return)/1e6)
		}
		fmt.Fprintf(&b, "  %.3f–%s ms client %d: %s\n", float64(op.Call)/1e6, returned, op.ClientId, describe(op.Input.(linkOp), op.Output.(linkAnswer)))
	}
	return b.String()
}
