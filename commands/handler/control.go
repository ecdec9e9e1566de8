package handler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Errors of the control fold.
var (
	// ErrControlBehind: the control log was not read up to the position asked for in time.
	ErrControlBehind = errors.New("control log not read that far yet")
	// ErrNoAnswer: a control command was sent and its envelope did not come in time. It may still take effect.
	ErrNoAnswer = errors.New("control command not answered in time")
)

// Control is this process's fold of the control log, in memory, from its first envelope. Safe for concurrent use.
type Control struct {
	log    *eventlog.Log
	logger *slog.Logger
	now    func() time.Time
	fold   *partition

	mu      sync.Mutex
	state   *commands.Control
	moved   chan struct{} // closed when state moves on
	waiting map[commandID]chan *pb.Envelope
	err     error // the alarm that stopped the fold
}

func newControl(log *eventlog.Log, logger *slog.Logger, now func() time.Time) *Control {
	c := &Control{log: log, logger: logger, now: now, moved: make(chan struct{}), waiting: map[commandID]chan *pb.Envelope{}}
	c.fold = &partition{stream: events.StreamControl, commandTopic: eventlog.CommandsControl, eventTopic: eventlog.EventsControl, count: 1, log: log,
		ledger: &controlLedger{changed: c.advance}, place: newPlace(eventlog.EventsControl, 0, 1)}
	return c
}

// WaitEnd returns once State holds all that the control log held at the call.
func (c *Control) WaitEnd(ctx context.Context) error {
	ends, err := c.log.Ends(ctx, eventlog.EventsControl)
	if err != nil {
		return fmt.Errorf("asking for the control log's end: %w", err)
	}
	for {
		c.mu.Lock()
		moved, err := c.moved, c.err
		c.mu.Unlock()
		if err != nil || c.fold.standing.next.Load() >= ends[0] {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(endPoll): // the position moves a moment after the state
		}
	}
}

const endPoll = 5 * time.Millisecond

// State returns the latest state; nil before the first envelope.
func (c *Control) State() *commands.Control {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// At returns the state once it is at seq or later. It waits at most this long, then it says ErrControlBehind.
func (c *Control) At(ctx context.Context, seq uint64, wait time.Duration) (*commands.Control, error) {
	var timer <-chan time.Time
	for {
		c.mu.Lock()
		state, moved, err := c.state, c.moved, c.err
		c.mu.Unlock()
		switch {
		case seq == 0 || state != nil && state.Seq >= seq:
			return state, nil
		case err != nil:
			return nil, err
		}
		if timer == nil {
			timer = time.After(wait)
		}
		select {
		case <-moved:
		case <-timer:
			return nil, ErrControlBehind
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run folds the control log until ctx is done or an alarm stops it.
func (c *Control) run(ctx context.Context) error {
	err := keepFollowing(ctx, c.fold, c.logger)
	c.mu.Lock()
	c.err = err
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
	return err
}

func (c *Control) advance(state *commands.Control, accepted []*pb.Envelope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
	close(c.moved)
	c.moved = make(chan struct{})
	for _, e := range accepted {
		var id commandID
		copy(id[:], e.GetCommandId())
		if waiter, ok := c.waiting[id]; ok {
			delete(c.waiting, id)
			waiter <- e
		}
	}
}

// Propose sends a control command and waits for its envelope. Besides ErrNoAnswer it returns what the log says.
func (c *Control) Propose(ctx context.Context, command *pb.ControlCommand) (*pb.Envelope, error) {
	var id commandID
	_, _ = rand.Read(id[:]) // never fails
	command.SchemaVersion, command.CommandId, command.TimeUs = events.SchemaVersion, id[:], c.now().UnixMicro()
	value, err := command.MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("encoding control command: %w", err)
	}
	answer := make(chan *pb.Envelope, 1)
	c.mu.Lock()
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	session, err := c.log.NewAppender(eventlog.CommandsControl)
	if err != nil {
		return nil, fmt.Errorf("opening producer session: %w", err)
	}
	defer session.Close()
	record := eventlog.Record{Key: events.BucketKey(events.ControlBucket), Value: value}
	if err := session.Append(ctx, 0, []eventlog.Record{record}, eventlog.AnyOffset); err != nil {
		return nil, fmt.Errorf("sending control command: %w", err)
	}
	select {
	case e := <-answer:
		return e, nil
	case <-ctx.Done():
		return nil, ErrNoAnswer
	}
}

// controlLedger is the content of the control partition: the control state in memory.
type controlLedger struct {
	state *commands.Control
	now   func() time.Time
	// changed is told of every commit; nil for the writer's own ledger.
	changed func(state *commands.Control, accepted []*pb.Envelope)
}

func (l *controlLedger) begin() overlay { return &controlOverlay{ledger: l, state: l.state} }

type controlOverlay struct {
	ledger   *controlLedger
	state    *commands.Control
	accepted []*pb.Envelope
}

func (o *controlOverlay) stamp(_ context.Context, r eventlog.Record, _ uint32, misplaced error, head events.Head) (*pb.Envelope, decision, error) {
	id, now := idOf(r.Value), o.ledger.now()
	e := &pb.Envelope{CommandId: id[:]}
	command := &pb.ControlCommand{}
	refusal := unreadable(proto.Unmarshal(r.Value, command), misplaced) // refuses what is not UTF-8 anywhere
	if refusal == nil {
		refusal = commands.CheckRecord(command)
	}
	if refusal != nil {
		e.Stamp = unreadStamp(r, now, head)
	} else if e.Stamp = stampTime(command.GetTimeUs(), now, head); e.Stamp.GetFailed() != "" {
		refusal = commands.Failed(e.Stamp.GetFailed())
	}
	e.Stamp.ControlSeq = head.Seq
	if refusal != nil {
		return e, refusal.Decision, nil //nolint:nilerr // the decision says it
	}
	e.Actor, e.Request = command.GetActor(), command.GetRequest()
	return e, func() commands.Decision { return commands.DecideControl(o.state, command, e.Stamp.GetTimeUs()) }, nil
}

func (o *controlOverlay) apply(e *pb.Envelope) error {
	if e.GetBucket() == events.ControlBucket {
		o.state = commands.EvolveControl(o.state, e)
	}
	o.accepted = append(o.accepted, e)
	return nil
}

func (o *controlOverlay) commit(*place) error {
	o.ledger.state = o.state
	if o.ledger.changed != nil {
		o.ledger.changed(o.state, o.accepted)
	}
	return nil
}

func (o *controlOverlay) drop() {}
