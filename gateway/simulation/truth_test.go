//go:build synctests

package simulation

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/virtualkafka"
	"github.com/hoplog/hoplog/schemas/pb"
)

// truth is an independent fold of the log, in memory, by a reader that no fault but the broker's own concerns. It keeps
// everything, so that any answer can be held against the moment that it names.
type truth struct {
	w      *world
	net    *virtualkafka.Node
	log    *eventlog.Log
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	moved    chan struct{} // closed when anything was folded
	checkers [partitions]*events.Checker
	voids    uint64
	buckets  map[uint32][]accepted
	links    map[string][]state // by route key, by version - 1
	requests map[string][]accepted
	control  []*commands.Control // by sequence - 1
	commands [partitions][]eventlog.Record
	judged   [partitions]judge
}

// accepted is an envelope that counts.
type accepted struct {
	*events.Envelope
	partition int32
}

// state is a link at a version, and the sequence in its bucket that brought it there.
type state struct {
	*pb.Link
	seq uint64
}

func (w *world) watch(rng *rand.Rand) *truth {
	t := &truth{w: w, net: w.broker.Node(rng), moved: make(chan struct{}), buckets: map[uint32][]accepted{}, links: map[string][]state{},
		requests: map[string][]accepted{}}
	for p := range t.checkers {
		t.checkers[p] = events.NewChecker(eventlog.EventsLink, int32(p), partitions)
		t.judged[p] = newJudge(t, int32(p))
	}
	var err error
	t.log, err = eventlog.Open(eventlog.Config{Brokers: []string{w.broker.Addr()}, Dial: t.net.Dial}, w.logger)
	w.must(err)
	return t
}

func (t *truth) start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	control := events.NewChecker(eventlog.EventsControl, 0, 1)
	t.follow(ctx, eventlog.EventsControl, 1, func(_ int32, r eventlog.Record) error { return t.foldControl(control, r) })
	t.follow(ctx, eventlog.EventsLink, partitions, t.foldLink)
	t.follow(ctx, eventlog.CommandsLink, partitions, t.foldCommand)
}

func (t *truth) stop() {
	t.cancel()
	t.work.Wait()
	t.log.Close()
}

func (t *truth) follow(ctx context.Context, topic string, count int32, fold func(int32, eventlog.Record) error) {
	from := map[int32]int64{}
	for p := range count {
		from[p] = 0
	}
	tail, err := t.log.NewTail(topic, from)
	t.w.must(err)
	t.work.Go(func() {
		defer tail.Close()
		for {
			batches, err := tail.Poll(ctx, 0)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.w.fail("reading %s: %v", topic, err)
				return
			}
			t.mu.Lock()
			for _, b := range batches {
				for _, r := range b.Records {
					if err := fold(b.Partition, r); err != nil {
						t.w.fail("%s partition %d offset %d: %v", topic, b.Partition, r.Offset, err)
					}
				}
			}
			close(t.moved)
			t.moved = make(chan struct{})
			t.mu.Unlock()
		}
	})
}

func (t *truth) foldControl(checker *events.Checker, r eventlog.Record) error {
	e, ok, err := checker.Check(r.Offset, r.Key, r.Value)
	if err != nil || !ok || e.GetBucket() != events.ControlBucket {
		return err
	}
	var before *commands.Control
	if n := len(t.control); n > 0 {
		before = t.control[n-1]
	}
	t.control = append(t.control, commands.EvolveControl(before, e.Envelope))
	return nil
}

func (t *truth) foldCommand(partition int32, r eventlog.Record) error {
	if want := int64(len(t.commands[partition])); r.Offset != want {
		return fmt.Errorf("gap in offsets: expected %d", want)
	}
	t.commands[partition] = append(t.commands[partition], r)
	return nil
}

// foldLink takes the next record of a partition of the links' events, and checks what holds of every step.
func (t *truth) foldLink(partition int32, r eventlog.Record) error {
	e, ok, err := t.checkers[partition].Check(r.Offset, r.Key, r.Value)
	if err != nil {
		return err
	}
	if !ok {
		t.voids++
		t.w.trace.note("log: void %d/%d at %d answers command %d: %s", e.GetBucket(), e.GetSeq(), r.Offset, e.GetCommandOffset(), brief(e))
		return nil
	}
	t.w.trace.note("log: %d/%d at %d answers command %d/%d of %s: %s", e.GetBucket(), e.GetSeq(), r.Offset, partition, e.GetCommandOffset(),
		e.GetRequest().GetKey(), brief(e))
	a := accepted{e, partition}
	if err := t.follows(a); err != nil {
		return err
	}
	t.buckets[e.GetBucket()] = append(t.buckets[e.GetBucket()], a)
	if key := e.GetRequest().GetKey(); key != "" {
		id := requestID(e.GetRequest().GetOwner(), key)
		t.requests[id] = append(t.requests[id], a)
	}
	for _, event := range e.GetEvents() {
		t.foldEvent(a, event)
	}
	return nil
}

// follows checks the order of a bucket: it is dense, answers commands in the order in which they came, and neither its time
// nor its control position runs back.
func (t *truth) follows(a accepted) error {
	list := t.buckets[a.GetBucket()]
	if a.GetSeq() != uint64(len(list))+1 {
		return fmt.Errorf("envelope %d of bucket %d follows %d others", a.GetSeq(), a.GetBucket(), len(list))
	}
	if len(list) == 0 {
		return nil
	}
	last := list[len(list)-1]
	switch {
	case a.GetCommandOffset() <= last.GetCommandOffset():
		return fmt.Errorf("command %d of bucket %d is answered after command %d", a.GetCommandOffset(), a.GetBucket(), last.GetCommandOffset())
	case a.GetStamp().GetControlSeq() < last.GetStamp().GetControlSeq():
		return fmt.Errorf("the control position of bucket %d runs back from %d to %d", a.GetBucket(), last.GetStamp().GetControlSeq(), a.GetStamp().GetControlSeq())
	}
	return nil
}

func (t *truth) foldEvent(a accepted, event *pb.Event) {
	ref := events.LinkOf(event)
	route := events.RouteKey(ref.GetNamespace(), ref.GetCode())
	versions := t.links[route]
	var before *pb.Link
	if n := len(versions); n > 0 {
		before = versions[n-1].Link
	}
	after := commands.EvolveLink(before, event, a.GetStamp().GetTimeUs())
	if want := uint64(len(versions)) + 1; after.GetVersion() != want || event.GetLinkCreated() != nil && before != nil {
		t.w.fail("the link %s/%s comes to version %d after %d others", ref.GetNamespace(), ref.GetCode(), after.GetVersion(), len(versions))
	}
	t.links[route] = append(versions, state{after, a.GetSeq()})
}

func requestID(owner, key string) string { return owner + "\x00" + key }

func brief(e *events.Envelope) string {
	o := e.GetOutcome()
	text := fmt.Sprintf("%s/%s v%d", o.GetNamespace(), o.GetCode(), o.GetVersion())
	if o.GetError() != "" {
		text = o.GetError() + " " + text
	}
	if o.GetReplayed() {
		text += " replayed"
	}
	return text + fmt.Sprintf(" L=%d id=%s", e.GetLowWatermark(), hex.EncodeToString(e.GetCommandId()[:4]))
}

// until waits until the truth says yes, or the simulation ends. A healthy broker is a matter of seconds, a broken one comes
// back.
func (t *truth) until(yes func() bool) bool {
	deadline := time.After(2 * time.Minute)
	for {
		t.mu.Lock()
		done, moved := yes(), t.moved
		t.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-moved:
		case <-t.w.ctx.Done():
			return false
		case <-deadline:
			return false
		}
	}
}

// at returns the envelope at a position, once the log holds it; nil if it does not come to.
func (t *truth) at(p events.Position) *events.Envelope {
	var found *events.Envelope
	t.until(func() bool {
		if list := t.buckets[p.Bucket]; p.Seq > 0 && uint64(len(list)) >= p.Seq {
			found = list[p.Seq-1].Envelope
		}
		return found != nil
	})
	return found
}

// version returns a link at a version, once the log holds it; nil if it does not come to.
func (t *truth) version(domain, code string, version uint64) *pb.Link {
	var found *pb.Link
	t.until(func() bool {
		if list := t.links[events.RouteKey(domain, code)]; version > 0 && uint64(len(list)) >= version {
			found = list[version-1].Link
		}
		return found != nil
	})
	return found
}

// versionAt returns the version that a link has at a sequence of its bucket, 0 if it is not there yet.
func (t *truth) versionAt(domain, code string, seq uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	version := uint64(0)
	for i, s := range t.links[events.RouteKey(domain, code)] {
		if s.seq <= seq {
			version = uint64(i) + 1
		}
	}
	return version
}

// controlSeq returns the control position that the truth knows.
func (t *truth) controlSeq() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(len(t.control))
}
