//go:build synctests

package simulation

import (
	"fmt"
	"net/http"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// patience is how long a healed world may take to come to rest: its slowest parts wait for seconds before they try again.
const patience = 4 * time.Minute

// quiet is how long nothing must be written before the world is at rest: what an API gave up may arrive for so long.
const quiet = 8 * time.Second

// rest waits until every command is answered and everybody has read all, and holds everything against the truth.
func (w *world) rest() bool {
	w.joined = time.Now()
	if !w.eventually("rest", patience, w.atRest) {
		return false
	}
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	for p := range w.truth.judged {
		if err := w.truth.judged[p].judgeAll(); err != nil {
			w.fail("%v", err)
			return false
		}
	}
	w.checkPromises()
	w.checkHeads()
	w.checkLinks()
	w.trace.note("at rest: %d links, %d void envelopes", len(w.truth.links), w.truth.voids)
	return w.ctx.Err() == nil
}

// atRest says what is still to come.
func (w *world) atRest() error {
	w.freeGroup()
	commandEnds, err := w.truth.log.Ends(w.ctx, eventlog.CommandsLink)
	if err != nil {
		return err
	}
	ends, err := w.truth.log.Ends(w.ctx, eventlog.EventsLink)
	if err != nil {
		return err
	}
	if now := fmt.Sprint(commandEnds, ends); now != w.ends {
		w.ends, w.ended = now, time.Now()
	}
	if err := w.truth.caughtUp(commandEnds, ends); err != nil {
		return err
	}
	for _, p := range w.processes() {
		if err := p.caughtUp(ends); err != nil {
			w.nudge()
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if time.Since(w.ended) < quiet {
		return fmt.Errorf("the log ends at %s since a moment", w.ends)
	}
	return nil
}

// stuck is how long the writers' group may wait for its members: the broker's own timeouts, and then those of its attendants.
const stuck = 30 * time.Second

// freeGroup restarts the broker when the writers' group is stuck in it (see virtualkafka.Broker.Rebalancing).
func (w *world) freeGroup() {
	if !w.broker.Rebalancing(handler.Group) {
		w.joined = time.Now()
		return
	}
	if time.Since(w.joined) < stuck {
		return
	}
	w.joined = time.Now()
	w.trace.note("broker: restarted, the writers' group is stuck in it")
	synctest.Wait()
	w.must(w.broker.Stop(false))
	w.must(w.broker.Start())
}

// nudge sends a command to every partition: a writer learns of a foreign record behind its own only when it appends again.
func (w *world) nudge() {
	if !w.nudged.IsZero() && time.Since(w.nudged) < 3*time.Second {
		return
	}
	w.nudged = time.Now()
	for found, i := [partitions]bool{}, 0; found != [partitions]bool{true, true}; i++ {
		key := fmt.Sprintf("nudge-%d-%d", w.nudged.UnixNano(), i)
		p := events.PartitionOf(events.BucketOfKey([]byte(bob+"\x00"+key)), partitions)
		if found[p] {
			continue
		}
		found[p] = true
		w.apis[0].send(w.ctx, &request{method: http.MethodPost, path: "/v1/links", owner: bob, key: key, body: encode(map[string]any{"target": "https://example.com/nudge"})})
	}
}

func (t *truth) caughtUp(commandEnds, ends []int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	answered := [partitions]int64{}
	for bucket, list := range t.buckets {
		answered[events.PartitionOf(bucket, partitions)] += int64(len(list))
	}
	for p := range t.checkers {
		if t.checkers[p].Next() < ends[p] || int64(len(t.commands[p])) < commandEnds[p] {
			return fmt.Errorf("the truth reads partition %d", p)
		}
		if answered[p] < commandEnds[p] {
			return fmt.Errorf("%d of %d commands of partition %d have an accepted envelope", answered[p], commandEnds[p], p)
		}
	}
	return nil
}

// caughtUp says what a process has not read yet, or what stopped it.
func (p *process) caughtUp(ends []int64) error {
	l := p.current()
	if l == nil {
		return fmt.Errorf("it is down")
	}
	if err := l.fault(); err != nil {
		p.w.fail("%s stopped: %v", p.name, err)
		return err
	}
	var positions [][]int64
	switch {
	case l.handler != nil:
		var next []int64
		for _, s := range l.handler.Status()[:partitions] {
			next = append(next, s.Next)
		}
		positions = append(positions, next)
	case l.links != nil:
		positions = append(positions, l.links.Positions())
	case l.redirects != nil:
		positions = append(positions, l.redirects.Positions())
	}
	for _, list := range positions {
		for i, end := range ends {
			if i >= len(list) || list[i] < end {
				return fmt.Errorf("it stands at %v, the log ends at %v", list, ends)
			}
		}
	}
	return nil
}

// checkPromises: what was acknowledged is in the log, and no key has two outcomes in seven days, whoever heard of them.
// t.mu is held.
func (w *world) checkPromises() {
	for id, p := range w.book.keys {
		if p.acked && len(w.truth.requests[id]) == 0 {
			w.fail("%s was acknowledged, and the log has no answer to it", &p.request)
		}
	}
	for id, list := range w.truth.requests {
		w.checkKey(id, list)
	}
}

// checkKey: of the envelopes under one key in one bucket, the first that is stored counts for seven days.
func (w *world) checkKey(id string, list []accepted) {
	first := map[uint32]accepted{}
	for _, a := range list {
		if !commands.Stores(a.Envelope.Envelope) && !a.GetOutcome().GetReplayed() {
			continue
		}
		f, known := first[a.GetBucket()]
		if !known {
			first[a.GetBucket()] = a
			continue
		}
		age := time.Duration(a.GetStamp().GetTimeUs()-f.GetStamp().GetTimeUs()) * time.Microsecond
		switch o, was := a.GetOutcome(), f.GetOutcome(); {
		case age >= promisedTTL && !o.GetReplayed():
			first[a.GetBucket()] = a
		case age >= keptTTL:
			w.fail("the outcome of %q is repeated at %d/%d after %v", id, a.GetBucket(), a.GetSeq(), age)
		case !o.GetReplayed() || len(a.GetEvents()) > 0:
			w.fail("the key %q is decided twice: at %d/%d and at %d/%d, %v later", id, f.GetBucket(), f.GetSeq(), a.GetBucket(), a.GetSeq(), age)
		case o.GetError() != was.GetError() || o.GetCode() != was.GetCode() || o.GetVersion() != was.GetVersion():
			w.fail("the key %q leads to %v at %d/%d, it led to %v", id, o, a.GetBucket(), a.GetSeq(), was)
		}
	}
}

// checkHeads: every reader stands at the head of every bucket. t.mu is held.
func (w *world) checkHeads() {
	for bucket, list := range w.truth.buckets {
		want := list[len(list)-1].GetSeq()
		for _, p := range w.processes() {
			l := p.current()
			if l == nil || l.handler != nil {
				continue // writers: their stores are compared at the end
			}
			heads := map[string]uint64{}
			if l.links != nil {
				heads["links"] = l.links.Head(bucket)
			} else {
				heads["redirects"] = l.redirects.Head(bucket)
			}
			for model, got := range heads {
				if got != want {
					w.fail("%s: %s of bucket %d stand at %d, the log's head is %d", p.name, model, bucket, got, want)
				}
			}
		}
	}
}

// checkLinks: every link is everywhere what it is in the log. t.mu is held.
func (w *world) checkLinks() {
	for route, versions := range w.truth.links {
		want := versions[len(versions)-1].Link
		for _, p := range w.apis {
			got, err := p.current().links.Get(want.GetRef().GetNamespace(), want.GetRef().GetCode())
			if err != nil || !proto.Equal(got, want) {
				w.fail("%s has %v, the log says %v: %v", p.name, got, want, err)
			}
		}
		got, err := w.node.current().redirects.Lookup([]byte(route))
		if err != nil || got == nil || got.GetVersion() != want.GetVersion() {
			w.fail("%s has %v, the log says %v: %v", w.node.name, got, want, err)
		}
	}
}
