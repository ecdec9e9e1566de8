package app

import (
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
)

// advice is something in a status that is off, and what to do about it.
type advice struct {
	Part string `json:"part"`
	Off  string `json:"off"`
	Do   string `json:"do"`
}

// What is called off.
const (
	muchBehind = 10_000           // records
	staleReads = 10 * time.Second // of the read models
)

// attention lists what an operator should look at, the worst first: what stopped, what will stop, what is late.
func (r *statusReport) attention(now time.Time) (list []advice) {
	say := func(part, off, do string) { list = append(list, advice{part, off, do}) }
	r.stopped(say)
	r.writersOff(say)
	if r.AsOf != nil && now.Sub(*r.AsOf) > staleReads {
		say("read models", fmt.Sprintf("as of %s ago", now.Sub(*r.AsOf).Round(time.Second)),
			"writes answer 503 until they have caught up; is the broker reachable (`hoplog topics`), is the disk slow?")
	}
	if r.AsOf == nil && r.DataAge != nil && *r.DataAge > staleReads.Seconds() {
		say("redirects", fmt.Sprintf("may be %.0f s old", *r.DataAge), "known links are served as of then: is the broker reachable (`hoplog topics`)?")
	}
	if r.ListsAge != nil && *r.ListsAge > staleReads.Seconds() {
		say("lists and switches", fmt.Sprintf("may be %.0f s old", *r.ListsAge), "links of low trust answer 503 meanwhile: is the broker reachable, does a process write the control stream (`hoplog status` of the commands role)?")
	}
	for _, p := range r.Projections {
		if n := total(p.Lag); n > muchBehind {
			say("projection "+p.Projection, fmt.Sprintf("%d records behind", n), "it is catching up, or the machine is too busy: watch whether the number falls")
		}
	}
	r.clicksOff(say)
	r.scansOff(say)
	r.sharedOff(now, say)
	r.effectsOff(say)
	return list
}

const afterDamage = "run `hoplog audit verify` to see what the log holds; when the log is whole, delete this part's directory under the data directory and start again: it is built anew from the log"

func (r *statusReport) stopped(say func(part, off, do string)) {
	for _, p := range r.Projections {
		if p.Error != "" {
			say("projection "+p.Projection, p.Error, afterDamage)
		}
	}
	for _, w := range r.Writers {
		if w.Stopped() {
			say(w.name(), w.Error, afterDamage)
		}
	}
}

func (r *statusReport) writersOff(say func(part, off, do string)) {
	for _, w := range r.Writers {
		if !w.Writing() {
			continue
		}
		if w.Behind > muchBehind {
			say(w.name(), fmt.Sprintf("%d commands wait", w.Behind), "callers get 202 or 503 meanwhile: slow the load down, or give the commands role more processors")
		}
		if w.Unconfirmed > 0 && w.Unconfirmed*10 > w.Batches {
			say(w.name(), fmt.Sprintf("%d of %d appends were not confirmed", w.Unconfirmed, w.Batches+w.Unconfirmed),
				"nothing is lost, each was decided again; look for a second process that writes the same topics outside of this group, and for brokers that time out")
		}
		if w.Mint == nil {
			continue
		}
		for _, s := range w.Mint.Spaces {
			if s.Low() {
				say(w.name(), fmt.Sprintf("%d of %d leased ids left for %s, %d attempts at more failed", s.Left, s.Segment, spaceName(s.Space), s.Failures),
					"creating links stops when they are used up: bring the partition of "+events.StreamControl+" commands back")
			}
		}
	}
}

func (r *statusReport) clicksOff(say func(part, off, do string)) {
	if c := r.Clicks; c != nil && c.Dropped > 0 {
		say("clicks of this node", fmt.Sprintf("%d dropped since the start", c.Dropped), "the log did not take them in time; the loss is counted, `hoplog reconcile` shows it")
	}
	if c := r.Clicks; c != nil {
		if c.SpoolError != "" {
			say("clicks of this node", "they wait in memory: "+c.SpoolError, "kill -9 would lose those that the log does not have: make room or mend the directory, and start this node again")
		}
		if c.SpoolBytes > 0 && c.WaitingBytes > c.SpoolBytes/2 {
			say("clicks of this node", fmt.Sprintf("the spool is %d%% full", 100*c.WaitingBytes/c.SpoolBytes), "when it is full, new clicks are lost: is the broker reachable (`hoplog topics`)?")
		}
		if c.Damaged > 0 {
			say("clicks of this node", fmt.Sprintf("%d were unreadable in the spool at the start", c.Damaged), "the machine stopped without a word, or the disk is failing; they are lost")
		}
	}
	for _, s := range r.Sink {
		if s.Error != "" {
			say(fmt.Sprintf("sink %d", s.Partition), s.Error, "clicks wait in the log, statistics are old meanwhile: is ClickHouse up?")
		}
		if s.Gaps > 0 {
			say(fmt.Sprintf("sink %d", s.Partition), fmt.Sprintf("%d clicks never arrived", s.Gaps), "a redirect node was killed or dropped them; bills built on these clicks are short by this number")
		}
	}
}

// sharedOff: visitors notice nothing of it.
func (r *statusReport) sharedOff(now time.Time, say func(part, off, do string)) {
	s := r.Shared
	if s == nil {
		return
	}
	if s.State != "closed" && now.Sub(s.Since) > staleReads {
		say("shared tier", "Redis does not answer: "+s.Error, "redirects go on without it; is the URL right, is Redis up, do its users and passwords agree?")
	}
	if s.Refusal != "" && s.Lost > s.Written {
		say("shared tier", fmt.Sprintf("%d writes failed, the last with %q", s.Lost, s.Refusal), "its user needs GET, SET, DEL, PEXPIRE, GETRANGE, TIME and scripts on the keys of --redis-prefix")
	}
	if s.Late > s.Written {
		say("shared tier", fmt.Sprintf("%d links were refused as late", s.Late), "compare the clocks of this machine and of Redis")
	}
}

func (r *statusReport) effectsOff(say func(part, off, do string)) {
	if r.DeadLetters > 0 {
		say("dead letters", fmt.Sprintf("%d wait", r.DeadLetters), "these links may be old in caches outside: see why with `hoplog effects dead`; when the reason is gone, `hoplog effects dead --requeue`")
	}
	for _, e := range r.Effects {
		if e.Error != "" && e.FailingSeconds > failsLong.Seconds() {
			say("effects "+e.Handler, fmt.Sprintf("every attempt has failed for %.0f s: %s", e.FailingSeconds, e.Error),
				"they are tried again, and become dead letters if it lasts: is the address right, does the other side answer?")
		}
		if n := total(e.Lag); n > muchBehind {
			say("effects "+e.Handler, fmt.Sprintf("%d records behind", n), "it is catching up, or the other side is slow: watch whether the number falls; another effects process shares the work")
		}
		if e.Queued != nil && *e.Queued > muchBehind {
			say("effects "+e.Handler, fmt.Sprintf("%d links wait that lists concern, or that were put back", *e.Queued),
				"caches outside may hold answers that are refused by now: watch whether the number falls; more links in a request (--purge-batch) go faster")
		}
	}
	for _, p := range r.Propagation {
		if p.Late > 0 {
			say("changes to "+p.Cache, fmt.Sprintf("%d of %d measured in the last ten minutes were late, %d ms at worst; writes promise %d ms", p.Late, p.Count, p.WorstMS, p.BoundMS),
				"visitors saw the old for longer than callers were told: is the machine busy, the broker slow, a clock wrong (NTP)? If this is how it is here, promise more (--"+setPropagation+", --purge-within)")
		}
	}
}

func total(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}
