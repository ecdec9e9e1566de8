package handler

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A model of the chain rule, exhaustive over small histories: some commands in a log, two writers at once, several lives,
// appends that land late, land unanswered or never land, batches of one to three, up to three buckets in one partition.
// Its state is a log, the writers and what the network holds; what a writer does is the product's own code on real
// envelopes (model_writer_test.go), what a reader accepts is the product's chain (model_check_test.go).
//
// HOPLOG_MODEL=large searches larger worlds (make model). What the appender does for sentence 6 is not in the model: it
// compares each record's offset, which the tests of eventlog hold it to.

// large is set by HOPLOG_MODEL=large: the bounds that were run once, instead of those that every run can afford.
var large = os.Getenv("HOPLOG_MODEL") == "large"

// The rule as it is kept: in no history of the bounded worlds is a command lost or answered twice, a decision made on what
// is not true, or an alarm raised; and no hole goes unnoticed.
func TestModelOfTheRuleAsKept(t *testing.T) {
	for _, k := range []struct {
		name string
		rule variant
		// commands bounds the worlds; large is that of the large form. repeats: also worlds in which a request is repeated.
		commands, large int
		rest            bound
		repeats         bool
	}{
		{"three lives", variant{}, 3, 4, bound{batch: 3, lives: 3, unknown: 1}, false},
		{"two unknown appends", variant{}, 2, 3, bound{batch: 3, lives: 3, unknown: 2}, false},
		{"repeated requests", variant{}, 2, 3, bound{batch: 3, lives: 3, unknown: 1}, true},
		{"batches that the client splits", variant{splits: true}, 2, 3, bound{batch: 3, lives: 3, unknown: 1}, false},
		{"two appends in flight", variant{pipelined: true}, 2, 2, bound{batch: 2, lives: 3, unknown: 1}, false},
		{"a stale end that the writer expects to append at", variant{foldsToStaleEnd: true}, 2, 3, bound{batch: 3, lives: 3, unknown: 1}, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			if large {
				k.commands = k.large
			}
			var all explored
			began := time.Now()
			worldsOf(k.commands, k.repeats, k.rest, func(b bound) {
				d := newDrive(b, k.rule)
				x := d.search()
				all.add(x)
				if x.found != nil {
					t.Fatalf("after %d states:\n%s", x.states, d.retell(x.found))
				}
			})
			t.Logf("up to %d commands, %d lives, %d unknown appends: %v, in %v", k.commands, k.rest.lives, k.rest.unknown, &all, time.Since(began).Round(time.Millisecond))
		})
	}
}

// Every sentence, taken away or put wrongly, breaks what the kept rule keeps; the shortest history that does is printed.
// The one of the rule's first draft is the second: commands c0:A c1:A c2:B.
func TestModelWithoutASentence(t *testing.T) {
	for _, k := range []struct {
		name string
		rule variant
	}{
		{"1 prev_hash", variant{noPrevHash: true, harm: untrue}},
		{"2 resume after the highest answered command", variant{resumeAfterHighest: true, harm: lost}},
		{"2 fold to a stale end and expect the log's", variant{foldsToStaleEnd: true, expectsLogEnd: true, harm: mistaken}},
		{"3 skip of covered commands", variant{noSkip: true, harm: doubled}},
		{"3 overlay", variant{blind: true, harm: untrue}},
		{"4 an envelope for every repeat", variant{silentRepeats: true, harm: lost}},
		{"5 confirmed state for L", variant{lowFromOverlay: true, harm: lost}},
		{"6 offset check", variant{anyOffset: true, harm: mistaken}},
		{"6 offset of every record", variant{splits: true, firstOffsetOnly: true, harm: mistaken}},
		{"7 replay after a failure", variant{noReplay: true, harm: mistaken}},
		{"7 drop of appends in flight", variant{laterStand: true, harm: alarmed}},
		{"decisions on their own bucket", variant{crossBuckets: true, harm: untrue}},
		{"request keys", variant{noKeys: true, harm: doubled}},
	} {
		t.Run(k.name, func(t *testing.T) {
			var found string
			var all explored
			for n := 1; n <= 3 && found == ""; n++ {
				worlds(n, k.rule.noKeys || k.rule.silentRepeats, bound{batch: 3, lives: 3, unknown: 1}, func(b bound) {
					if found != "" {
						return
					}
					d := newDrive(b, k.rule)
					x := d.search()
					if all.add(x); x.found != nil {
						found = d.retell(x.found)
					}
				})
			}
			if found == "" {
				t.Fatalf("%v, and no harm was done: the sentence is not needed, or the model does not see what for", &all)
			}
			t.Logf("after %v:\n%s", &all, found)
			if first := "commands c0:A c1:A c2:B\n"; k.rule.resumeAfterHighest && !strings.HasPrefix(found, first) {
				t.Errorf("wanted the history of the first draft, which begins with %s", first)
			}
		})
	}
}

// worlds calls f with every way to spread n commands over the buckets, up to the buckets' names: each without repeats,
// and if repeats, with each command repeating each earlier one of its bucket.
func worlds(n int, repeats bool, rest bound, f func(bound)) {
	b := rest
	b.buckets, b.keys = make([]int8, n), make([]int8, n)
	var spread func(i int, used int8)
	spread = func(i int, used int8) {
		if i < n {
			for bucket := range min(used+1, modelBuckets) {
				b.buckets[i] = bucket
				spread(i+1, max(used, bucket+1))
			}
			return
		}
		for c := range b.keys {
			b.keys[c] = int8(c)
		}
		f(b)
		for later := range b.keys {
			for first := range later {
				if repeats && b.buckets[later] == b.buckets[first] {
					b.keys[later] = int8(first)
					f(b)
					b.keys[later] = int8(later)
				}
			}
		}
	}
	spread(0, 0)
}

// worldsOf is worlds of up to n commands.
func worldsOf(n int, repeats bool, rest bound, f func(bound)) {
	for ; n > 0; n-- {
		worlds(n, repeats, rest, f)
	}
}
