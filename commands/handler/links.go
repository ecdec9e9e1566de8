package handler

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Bounds on a command's time, seen from the writer's clock. Outside of them the command is expired.
const (
	maxAge  = 24 * time.Hour
	maxLead = 60 * time.Second
)

// controlWait is how long a writer waits for the control positions that the commands of a batch name.
const controlWait = 2 * time.Second

// codeDraws bounds how often a code that is taken in its bucket is drawn again.
const codeDraws = 64

// linkLedger is the content of one partition of links, in a store that all partitions of the process share.
type linkLedger struct {
	store     *store
	partition int32
	count     int
	control   *Control
	now       func() time.Time
	filter    keyFilter
	// journal is where the heads of the partition's buckets are kept.
	journal events.Journal
	// changes are those of the overlay at hand; their memory serves one after the other.
	changes changes
	// firstWait is how long a life's first draw waits for ids; 0: mint's default.
	firstWait time.Duration
	// mint is the minter of the writer's life, nil while standing by.
	mint *mint.Minter
	// mints is what stats of the life at hand are read through.
	mints atomic.Pointer[mint.Minter]
	// sweeping is the bucket whose old request keys are dropped next, swept when the last one was.
	sweeping uint32
	swept    time.Time
}

func (l *linkLedger) begin() overlay {
	l.changes.reset(l.store, &l.filter)
	return &linkOverlay{linkLedger: l}
}

// linkOverlay is changes in memory: reads go through them to the confirmed state.
type linkOverlay struct {
	*linkLedger
	// patience is when the waiting for control positions ends; zero before the first command.
	patience time.Time
}

// drop forgets nothing yet: begin does.
func (o *linkOverlay) drop() {}

func (o *linkOverlay) commit(at *place) error {
	if err := o.savePlace(at); err != nil {
		return err
	}
	if err := o.changes.commit(); err != nil {
		return err
	}
	return o.sweep(at)
}

// sweepEvery is the pause between cleaning one bucket and the next: a partition of 1024 buckets is through in three hours.
const sweepEvery = 10 * time.Second

// sweep cleans the next bucket of the partition when it is time.
func (l *linkLedger) sweep(at *place) error {
	if l.now().Sub(l.swept) < sweepEvery {
		return nil
	}
	l.swept = l.now()
	first, last := events.BucketsOf(l.partition, l.count)
	bucket := max(l.sweeping, first)
	l.sweeping = bucket + 1
	if l.sweeping > last {
		l.sweeping = first
	}
	return l.store.sweep(bucket, at.checker.Head(bucket).TimeUS)
}

func (o *linkOverlay) stamp(ctx context.Context, r eventlog.Record, bucket uint32, misplaced error, head events.Head) (*pb.Envelope, decision, error) {
	id := idOf(r.Value)
	e := &pb.Envelope{CommandId: id[:]}
	command := &pb.LinkCommand{}
	refusal := unreadable(command.UnmarshalVTUnsafe(r.Value), misplaced)
	if refusal == nil {
		refusal = commands.CheckForm(command, bucket)
	}
	if refusal != nil {
		e.Stamp = unreadStamp(r, o.now(), head)
		return e, refusal.Decision, nil //nolint:nilerr // the decision says it
	}
	e.Actor, e.Request = command.GetActor(), command.GetRequest()
	c := commands.LinkCommand{LinkCommand: command, Bucket: bucket}
	state, err := o.load(c)
	if err != nil {
		return nil, nil, err
	}
	if c.Stamp, err = o.judge(ctx, c, head); err != nil {
		return nil, nil, err
	}
	if commands.WantsCandidate(state, c) {
		if err := o.draw(c); err != nil {
			return nil, nil, err
		}
	}
	e.Stamp = c.Stamp
	return e, func() commands.Decision { return decide(state, c, head) }, nil
}

// decide leaves the bucket's time where it is when the clocks are too far apart and the answer is another than that: a
// repeat is answered all the same, and its stamp must not carry a time that may be wrong.
func decide(state commands.State, c commands.LinkCommand, head events.Head) commands.Decision {
	d := commands.Decide(state, c)
	if c.Stamp.GetFailed() == commands.CodeCommandExpired && d.Outcome.GetError() != commands.CodeCommandExpired {
		c.Stamp.TimeUs = head.TimeUS
	}
	return d
}

// unreadable is the refusal of a record that is no command of this partition, nil if it is one.
func unreadable(decoding, misplaced error) *commands.Refusal {
	switch {
	case misplaced != nil:
		return commands.Refuse(commands.CodeInvalidRequest, "", misplaced.Error())
	case decoding != nil:
		return commands.Refuse(commands.CodeInvalidRequest, "", "the record is not a command")
	}
	return nil
}

// load reads what the decision on c needs of its bucket, as the overlay has it.
func (o *linkOverlay) load(c commands.LinkCommand) (s commands.State, err error) {
	if c.GetCode() != "" {
		if s.Link, err = o.link(c.Bucket, events.RouteKey(c.GetNamespace(), c.GetCode())); err != nil {
			return s, err
		}
	}
	if c.GetRequest().GetKey() != "" {
		if s.Request, err = load[pb.StoredRequest](&o.changes, requestKey(c.Bucket, c.GetRequest())); err != nil {
			return s, err
		}
	}
	if print := commands.Fingerprint(c.LinkCommand); print != nil {
		routeKey, err := o.changes.get(fingerprintKey(c.Bucket, print))
		if err != nil || routeKey == nil {
			return s, err
		}
		s.Twin, err = o.link(c.Bucket, string(routeKey))
		return s, err
	}
	return s, nil
}

func (o *linkOverlay) link(bucket uint32, routeKey string) (*pb.Link, error) {
	return load[pb.Link](&o.changes, linkKey(bucket, routeKey))
}

// stampTime says when a command of this time is decided: never before its bucket's last, and not at all if the writer's
// clock and the sender's are too far apart.
func stampTime(sentUS int64, now time.Time, head events.Head) *pb.Stamp {
	s := &pb.Stamp{TimeUs: max(now.UnixMicro(), head.TimeUS), ControlSeq: head.ControlSeq}
	if age := now.Sub(time.UnixMicro(sentUS)); age > maxAge || age < -maxLead {
		s.TimeUs, s.Failed = now.UnixMicro(), commands.CodeCommandExpired
	}
	return s
}

// unreadStamp is the stamp of a record that is no command. Clocks are compared by the record's own time; if they are too far
// apart, the bucket's time stays.
func unreadStamp(r eventlog.Record, now time.Time, head events.Head) *pb.Stamp {
	s := stampTime(r.Time.UnixMicro(), now, head)
	if s.GetFailed() != "" {
		s.TimeUs, s.Failed = head.TimeUS, ""
	}
	return s
}

// judge says when the command is decided and what the control state says of it. It waits for the control position that
// the command or the bucket's last envelope names.
func (o *linkOverlay) judge(ctx context.Context, c commands.LinkCommand, head events.Head) (*pb.Stamp, error) {
	s := stampTime(c.GetTimeUs(), o.now(), head)
	if s.GetFailed() != "" {
		return s, nil
	}
	if o.patience.IsZero() {
		o.patience = time.Now().Add(controlWait)
	}
	control, err := o.control.At(ctx, max(c.GetControlSeq(), head.ControlSeq), time.Until(o.patience))
	if errors.Is(err, ErrControlBehind) {
		s.Failed = commands.CodeUnavailable
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	commands.Judge(s, c.LinkCommand, control)
	return s, nil
}

// draw puts a candidate into the stamp whose code is free in its bucket and not a reserved word. Without one the decider answers that no id could be
// drawn.
func (o *linkOverlay) draw(c commands.LinkCommand) error {
	if o.mint == nil {
		return nil
	}
	if c.GetCode() != "" {
		c.Stamp.CandidateId, _ = o.mint.DrawID()
		return nil
	}
	control := o.control.State()
	o.mint.UseKey(newestKey(control))
	create, draw := c.GetCreate(), o.mint.Draw
	length := int(create.GetCodeLength())
	if create.GetCodeMode() == pb.CodeMode_CODE_MODE_RANDOM {
		draw = o.mint.DrawRandom
	}
	for range codeDraws {
		id, code, err := draw(c.GetNamespace(), length, c.Bucket)
		if err != nil {
			return nil //nolint:nilerr // the missing candidate says it
		}
		taken, err := o.link(c.Bucket, events.RouteKey(c.GetNamespace(), code))
		if err != nil {
			return err
		}
		if taken == nil && !control.Reserved(code) {
			c.Stamp.CandidateId, c.Stamp.CandidateCode = id, code
			return nil
		}
	}
	return nil
}

func (o *linkOverlay) apply(e *pb.Envelope) error {
	bucket := e.GetBucket()
	if bucket >= events.Buckets {
		return nil
	}
	var s commands.State
	ref := linkOf(e)
	if ref != nil && e.GetEvents()[0].GetLinkCreated() == nil { // a created link has no record before: codes are never given out again
		link, err := o.link(bucket, events.RouteKey(ref.GetNamespace(), ref.GetCode()))
		if err != nil {
			return err
		}
		s.Link = link
	}
	next := commands.Evolve(s, e)
	if ref != nil {
		routeKey := events.RouteKey(ref.GetNamespace(), ref.GetCode())
		if err := save(&o.changes, linkKey(bucket, routeKey), next.Link); err != nil {
			return err
		}
		if print := next.Link.GetFingerprint(); s.Link == nil && len(print) > 0 {
			o.changes.set(fingerprintKey(bucket, print), []byte(routeKey))
		}
	}
	if next.Request != nil {
		return save(&o.changes, requestKey(bucket, e.GetRequest()), next.Request)
	}
	return nil
}

// linkOf returns the link that an envelope's events are about; they are all about one.
func linkOf(e *pb.Envelope) *pb.LinkRef {
	if len(e.GetEvents()) == 0 {
		return nil
	}
	return events.LinkOf(e.GetEvents()[0])
}
