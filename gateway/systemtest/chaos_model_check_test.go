package systemtest

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// told is a hand-made operation: asked at from, answered at to.
func told(from, to int64, op linkOp, a linkAnswer) porcupine.Operation {
	return porcupine.Operation{Call: from, Return: to, Input: op, Output: a}
}

func created(from, to int64, key, target string) porcupine.Operation {
	return told(from, to, linkOp{kind: opCreate, key: key, target: target}, linkAnswer{version: 1, target: target})
}

func edited(from, to int64, key, target string, version int) porcupine.Operation {
	return told(from, to, linkOp{kind: opEdit, key: key, target: target}, linkAnswer{version: version, target: target})
}

func read(from, to int64, floor int, exact bool, version int, target string) porcupine.Operation {
	return told(from, to, linkOp{kind: opRead, floor: floor, exact: exact}, linkAnswer{version: version, target: target})
}

func lost(from int64, kind, key, target string) porcupine.Operation {
	return told(from, forever, linkOp{kind: kind, key: key, target: target}, linkAnswer{lost: true})
}

func history(from, to int64, targets ...string) porcupine.Operation {
	return told(from, to, linkOp{kind: opHistory, exact: true}, linkAnswer{version: len(targets), target: "", targets: targets})
}

// TestChaosModel shows the checker histories made by hand: what the contracts promise passes, and each way to break a promise
// is found.
func TestChaosModel(t *testing.T) {
	first := created(0, 10, "k", "a")
	for _, c := range []struct {
		name    string
		allowed bool
		history []porcupine.Operation
	}{
		{"a write and its read", true, []porcupine.Operation{first, edited(20, 30, "", "b", 2), read(40, 50, 2, true, 2, "b")}},
		{"a read beside a write may show either", true, []porcupine.Operation{first, edited(20, 40, "", "b", 2), read(25, 30, 1, true, 1, "a"), read(31, 35, 1, true, 2, "b")}},
		{"a lost write may have taken effect", true, []porcupine.Operation{first, lost(20, opEdit, "", "b"), read(30, 40, 1, true, 2, "b")}},
		{"a lost write may take effect late", true, []porcupine.Operation{first, lost(20, opEdit, "", "b"), read(30, 40, 1, true, 1, "a"), read(50, 60, 1, true, 2, "b")}},
		{"a lost write may never take effect", true, []porcupine.Operation{first, lost(20, opEdit, "", "b"), edited(30, 40, "", "c", 2), history(50, 60, "a", "c")}},
		{"a retry meets the stored outcome", true, []porcupine.Operation{lost(0, opCreate, "k", "a"),
			told(10, 20, linkOp{kind: opCreate, key: "k", target: "a"}, linkAnswer{version: 1, target: "a", replayed: true})}},
		{"a retry after several lost attempts", true, []porcupine.Operation{first, lost(20, opEdit, "e", "b"), lost(30, opEdit, "e", "b"), read(40, 50, 1, true, 1, "a"),
			told(60, 70, linkOp{kind: opEdit, key: "e", target: "b"}, linkAnswer{version: 2, target: "b", replayed: true}), history(80, 90, "a", "b")}},
		{"the refusal of an old version", true, []porcupine.Operation{first, edited(20, 30, "", "b", 2),
			told(40, 50, linkOp{kind: opEdit, target: "c", ifVersion: 1}, linkAnswer{refused: "version_mismatch"})}},
		{"a read elsewhere does not know of a refusal", true, []porcupine.Operation{first, edited(20, 80, "", "b", 2),
			told(30, 40, linkOp{kind: opEdit, target: "c", ifVersion: 1}, linkAnswer{refused: "version_mismatch"}), read(50, 60, 1, false, 1, "a")}},
		{"a read without a floor may lag", true, []porcupine.Operation{first, edited(20, 30, "", "b", 2), read(40, 50, 0, false, 1, "a")}},

		{"lost update: two edits become one version", false, []porcupine.Operation{first, edited(20, 30, "", "b", 2), edited(40, 50, "", "c", 2)}},
		{"lost update: an acknowledged edit is not in the history", false, []porcupine.Operation{first, edited(20, 30, "", "b", 2), history(40, 50, "a")}},
		{"lost create", false, []porcupine.Operation{first, read(20, 30, 0, true, 0, "")}},
		{"both of two edits with one If-Match succeed", false, []porcupine.Operation{first,
			told(20, 40, linkOp{kind: opEdit, target: "b", ifVersion: 1}, linkAnswer{version: 2, target: "b"}),
			told(20, 40, linkOp{kind: opEdit, target: "c", ifVersion: 1}, linkAnswer{version: 3, target: "c"})}},
		{"stale read", false, []porcupine.Operation{first, edited(20, 30, "", "b", 2), read(40, 50, 2, true, 1, "a")}},
		{"stale read after a refusal", false, []porcupine.Operation{first, edited(20, 80, "", "b", 2),
			told(30, 40, linkOp{kind: opEdit, target: "c", ifVersion: 1}, linkAnswer{refused: "version_mismatch"}), read(50, 60, 1, true, 1, "a")}},
		{"stale read below its position", false, []porcupine.Operation{first, edited(20, 30, "", "b", 2), read(40, 50, 2, false, 1, "a")}},
		{"reads that run back", false, []porcupine.Operation{first, lost(20, opEdit, "", "b"), read(30, 40, 1, true, 2, "b"), read(50, 60, 2, true, 1, "a")}},
		{"a target that never was", false, []porcupine.Operation{first, read(20, 30, 0, false, 1, "x")}},
		{"a version from the future", false, []porcupine.Operation{first, read(11, 15, 0, false, 2, "b"), edited(20, 30, "", "b", 2)}},
		{"a retry doubles", false, []porcupine.Operation{first, edited(20, 30, "e", "b", 2), edited(40, 50, "e", "b", 3)}},
		{"a lost edit took effect twice", false, []porcupine.Operation{first, lost(20, opEdit, "e", "b"), history(30, 40, "a", "b", "b")}},
		{"several lost attempts took effect twice", false, []porcupine.Operation{first, lost(20, opEdit, "e", "b"), lost(30, opEdit, "e", "b"), history(40, 50, "a", "b", "b")}},
		{"an effect without a cause", false, []porcupine.Operation{first, read(20, 30, 1, true, 2, "b"), lost(40, opEdit, "e", "b"), lost(50, opEdit, "e", "b")}},
		{"a retry meets a new opinion", false, []porcupine.Operation{first,
			told(20, 30, linkOp{kind: opEdit, key: "e", target: "b", ifVersion: 2}, linkAnswer{refused: "version_mismatch"}), edited(40, 50, "", "c", 2),
			told(60, 70, linkOp{kind: opEdit, key: "e", target: "b", ifVersion: 2}, linkAnswer{version: 3, target: "b"})}},
		{"two keys get one code", false, []porcupine.Operation{first, created(20, 30, "other", "b")}},
		{"a history out of order", false, []porcupine.Operation{first, edited(20, 30, "", "b", 2), history(40, 50, "b", "a")}},
	} {
		if got := porcupine.CheckOperations(linkModel, essential(c.history)); got != c.allowed {
			t.Errorf("%s: the checker says %v, want %v:\n%s", c.name, got, c.allowed, transcript(c.history))
		}
	}
}
