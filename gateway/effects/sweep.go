package effects

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ControlState is what a Sweeper knows of the control log: readmodels/control has it.
type ControlState interface {
	Current() *commands.Control
	Positions() []int64
	Err() error
}

// SweepConfig is what a Sweeper needs.
type SweepConfig struct {
	Log     *eventlog.Log
	Fold    *Fold
	Control ControlState
	// For names the handler that is told of each link that it finds.
	For string
	// Settle is how long after it was read a change of the control log waits: until redirect nodes follow it.
	Settle time.Duration
}

const (
	sweepLinks = 4096 // that are looked at in one go
	sweepBatch = 500  // messages of one append
)

// Sweeper finds the links whose answers are others because of a list, a switch or trust, and tells another handler of each
// that caches may hold. There is no index to find them by: it reads all links that may be cached, in pieces, and what is asked
// for meanwhile shares the next reading. Between pieces it rests as long as the last took, so it takes half a processor at most.
//
// What it finds goes to the topic of what is to be tried again, so that each link has its own attempts and its own dead letter.
// Killed in between, it reads from the beginning and tells of some links twice.
type Sweeper struct {
	cfg  SweepConfig
	pub  *pubsub.Publisher
	life context.Context //nolint:containedctx // of readings: several messages wait for one
	stop context.CancelFunc
	work sync.WaitGroup

	sweeps, read, found atomic.Uint64

	mu      sync.Mutex // guards what follows
	next    *sweep     // nil: nothing is asked for
	running bool
	last    time.Duration
}

// sweep is one reading of the links, for several changes.
type sweep struct {
	changes []*Change
	done    chan struct{}
	err     error // once done
}

// NewSweeper makes a Sweeper; Close ends it.
func NewSweeper(cfg SweepConfig) *Sweeper {
	s := &Sweeper{cfg: cfg, pub: pubsub.NewPublisher(cfg.Log, pubsub.PublisherConfig{})}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends a reading that is under way. No handler of it runs any more.
func (s *Sweeper) Close() error {
	s.stop()
	s.work.Wait()
	return s.pub.Close()
}

// Handler is the handler that follows the control log.
func (s *Sweeper) Handler() Handler {
	return Handler{Name: "lists", Do: s.Do, topic: eventlog.EventsControl, follow: s.unmarshal}
}

// unmarshal makes messages of the control log. A void envelope needs no look-up: the lists as they are decide what is found.
func (s *Sweeper) unmarshal(ctx context.Context, partition int32, r *eventlog.Record) (*message.Message, error) {
	if err := passed(ctx, s.cfg.Control, partition, r.Offset); err != nil {
		return nil, fmt.Errorf("waiting for the control state: %w", err)
	}
	e, err := events.DecodeEnvelope(r.Value)
	if err != nil {
		return nil, fmt.Errorf("reading control events: %w", err)
	}
	concerns := concernsOf(e)
	if len(concerns) == 0 {
		return nil, nil
	}
	c := &Change{Position: e.Position(events.StreamControl).String(), TimeUS: e.GetStamp().GetTimeUs(), Lists: concerns}
	payload, err := c.encode()
	if err != nil {
		return nil, err
	}
	return message.NewMessage(c.Position, payload), nil
}

// Do returns when all links that a change concerns are told of.
func (s *Sweeper) Do(ctx context.Context, c *Change) error {
	if err := wait(ctx, s.cfg.Settle); err != nil {
		return err
	}
	its := s.join(c)
	select {
	case <-its.done:
		return its.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join adds a change to the next reading.
func (s *Sweeper) join(c *Change) *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &sweep{done: make(chan struct{})}
	}
	s.next.changes = append(s.next.changes, c)
	if !s.running {
		s.running = true
		s.work.Go(s.run)
	}
	return s.next
}

// run reads until nothing is asked for.
func (s *Sweeper) run() {
	for {
		s.mu.Lock()
		its := s.next
		if s.next = nil; its == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		began := time.Now()
		its.err = s.sweep(s.life, its.changes)
		if its.err == nil {
			s.sweeps.Add(1)
			s.mu.Lock()
			s.last = time.Since(began)
			s.mu.Unlock()
		}
		close(its.done)
	}
}

func (s *Sweeper) sweep(ctx context.Context, changes []*Change) error {
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	what, lists := searchFor(changes), s.cfg.Control.Current().Lists()
	if err := s.sweepCodes(ctx, what, lists); err != nil || !what.reads() {
		return err
	}
	for next := []byte{keyCached}; ; {
		began := time.Now()
		var err error
		if next, err = s.sweepPiece(ctx, next, what, lists); err != nil || next == nil {
			return err
		}
		if err := wait(ctx, min(time.Since(began), longestPause)); err != nil {
			return err
		}
	}
}

// sweepPiece looks at so many links from a key on, and returns the key at which to go on.
func (s *Sweeper) sweepPiece(ctx context.Context, from []byte, what *search, lists *commands.Lists) (next []byte, err error) {
	var found []*Change
	read, nowUS := uint64(0), time.Now().UnixMicro()
	next, err = s.cfg.Fold.eachCached(from, sweepLinks, func(routeKey []byte, link *pb.Redirect) {
		read++
		if c := what.causeOf(routeKey, link, lists, nowUS); c != nil {
			found = append(found, foundBy(c, string(routeKey), link))
		}
	})
	if err != nil {
		return nil, err
	}
	s.read.Add(read)
	return next, s.tell(ctx, found)
}

// catchUp waits until the fold knows every link that a node may have served before it knew the lists: what the log gets from
// here on is answered by them already.
func (s *Sweeper) catchUp(ctx context.Context) error {
	ends, err := s.cfg.Log.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		return fmt.Errorf("asking for the end of the links: %w", err)
	}
	for partition, end := range ends {
		if err := passed(ctx, s.cfg.Fold, int32(partition), end-1); err != nil {
			return fmt.Errorf("waiting for the links: %w", err)
		}
	}
	return nil
}

// sweepCodes looks up the links that are named by their codes.
func (s *Sweeper) sweepCodes(ctx context.Context, what *search, lists *commands.Lists) error {
	var found []*Change
	for i := range what.codes {
		c := &what.codes[i]
		namespace, code, _ := strings.Cut(c.Value, "/")
		link, err := s.cfg.Fold.Link(namespace, code)
		if err != nil {
			return err
		}
		if link == nil {
			continue
		}
		s.read.Add(1)
		routeKey := events.RouteKey(namespace, code)
		change := foundBy(c, routeKey, link)
		cached, err := s.cfg.Fold.cached(change)
		if err != nil {
			return err
		}
		if cached && !lasting([]byte(routeKey), link, lists, time.Now().UnixMicro()) {
			found = append(found, change)
		}
	}
	return s.tell(ctx, found)
}

// foundBy is the change of which the other handler is told.
func foundBy(c *cause, routeKey string, link *pb.Redirect) *Change {
	namespace, code, _ := strings.Cut(routeKey, "\x00")
	return &Change{Namespace: namespace, Code: code, Version: link.GetVersion(), Position: c.of.Position, TimeUS: c.of.TimeUS, Cached: true, By: c.String()}
}

// tell has the other handler act on links.
func (s *Sweeper) tell(ctx context.Context, found []*Change) error {
	for len(found) > 0 {
		batch := found[:min(sweepBatch, len(found))]
		found = found[len(batch):]
		messages := make([]*message.Message, len(batch))
		for i, c := range batch {
			payload, err := c.encode()
			if err != nil {
				return err
			}
			messages[i] = message.NewMessage(c.Position, payload)
			messages[i].Metadata.Set(metaHandler, s.cfg.For)
			messages[i].SetContext(ctx)
		}
		if err := s.pub.Publish(eventlog.EffectsRetry, messages...); err != nil {
			return fmt.Errorf("telling of links that lists concern: %w", err)
		}
		s.found.Add(uint64(len(batch)))
	}
	return nil
}

// SweepStatus is what a Sweeper did since the start.
type SweepStatus struct {
	Sweeps uint64 `json:"sweeps"`      // readings of the links
	Read   uint64 `json:"links_read"`  // links that were looked at
	Found  uint64 `json:"links_found"` // of those, links that the other handler was told of
	// LastSeconds is how long the last reading took, its rests included.
	LastSeconds float64 `json:"last_seconds"`
}

// Status returns the figures.
func (s *Sweeper) Status() SweepStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SweepStatus{s.sweeps.Load(), s.read.Load(), s.found.Load(), s.last.Seconds()}
}
