package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// CommandLog appends to the topic of link commands. The contract is eventlog.Appender's: answer is called exactly once,
// from another goroutine.
type CommandLog interface {
	AppendAsync(ctx context.Context, partition int32, rec eventlog.Record, answer func(offset int64, err error))
}

// Errors of submitting. Each is part of an Answer.
var (
	// errNotSent: the log does not have the command and never will.
	errNotSent = errors.New("the command was not sent")
	// errTooLarge: the command is larger than the log takes.
	errTooLarge = errors.New("the command is too large")
)

// Answer is what the sender of a command learns.
type Answer struct {
	// Envelope is what the log accepted for the command, and what it changed can be read. Nil: not in time.
	Envelope *events.Envelope
	// Acknowledged: the log has the command.
	Acknowledged bool
	// Err says why the command was not sent, or why it may not have been; nil when it was, or when no answer came.
	Err error
}

// Submitter sends commands and hands each sender the envelope that answers its command. There is no reply topic: the
// API's own projection of links shows every accepted envelope to Committed.
type Submitter struct {
	log        CommandLog
	partitions int

	mu      sync.Mutex
	waiting map[commandID]waitingRow
}

type commandID [16]byte

// waitingRow is one row of a submission.
type waitingRow struct {
	of  *submission
	row int
}

// submission is a number of commands that are waited for together. Submitter.mu guards it.
type submission struct {
	answers []Answer
	open    int
	done    chan struct{}
}

// NewSubmitter makes a Submitter that appends to a topic with this many partitions.
func NewSubmitter(log CommandLog, partitions int) *Submitter {
	return &Submitter{log: log, partitions: partitions, waiting: map[commandID]waitingRow{}}
}

// Submit sends the commands, each with an id of its own, and waits for their answers, as long as given at most or until
// ctx is done. What is not answered by then may be decided later. The answers are in the order of the commands.
func (s *Submitter) Submit(ctx context.Context, list []*pb.LinkCommand, wait time.Duration) []Answer {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	sub := s.enter(list)
	for row, c := range list {
		s.send(ctx, sub, row, c)
	}
	select {
	case <-sub.done:
	case <-ctx.Done():
	}
	return s.leave(sub, list)
}

// enter registers the commands before any is sent: an envelope may come sooner than the log's acknowledgement.
func (s *Submitter) enter(list []*pb.LinkCommand) *submission {
	sub := &submission{answers: make([]Answer, len(list)), open: len(list), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	for row, c := range list {
		s.waiting[commandID(c.GetCommandId())] = waitingRow{sub, row}
	}
	if len(list) == 0 {
		close(sub.done)
	}
	return sub
}

// leave forgets what is still open and returns a copy of the answers, which nobody changes any more.
func (s *Submitter) leave(sub *submission, list []*pb.LinkCommand) []Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.open > 0 {
		for _, c := range list {
			delete(s.waiting, commandID(c.GetCommandId()))
		}
	}
	return append([]Answer(nil), sub.answers...)
}

func (s *Submitter) send(ctx context.Context, sub *submission, row int, c *pb.LinkCommand) {
	value, err := c.MarshalVT()
	if err != nil {
		s.acknowledge(sub, row, c, fmt.Errorf("%w: %w", errNotSent, err))
		return
	}
	bucket := commands.BucketFor(c)
	rec := eventlog.Record{Key: events.BucketKey(bucket), Value: value}
	s.log.AppendAsync(ctx, events.PartitionOf(bucket, s.partitions), rec, func(_ int64, err error) {
		s.acknowledge(sub, row, c, sendError(err))
	})
}

// sendError sorts the log's errors into those after which the command is surely not in the log, and the rest.
func sendError(err error) error {
	if errors.Is(err, eventlog.ErrTooLarge) {
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	for _, nothingSent := range []error{eventlog.ErrNotSent, eventlog.ErrAppenderDead, eventlog.ErrClosed, eventlog.ErrNoTopic} {
		if errors.Is(err, nothingSent) {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	return err
}

// acknowledge notes the log's answer. An error ends the wait for the row, unless its envelope was there before.
func (s *Submitter) acknowledge(sub *submission, row int, c *pb.LinkCommand, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &sub.answers[row]
	answer.Acknowledged = err == nil
	if err == nil || answer.Envelope != nil {
		return
	}
	answer.Err = err
	s.settle(commandID(c.GetCommandId()))
}

// settle ends the wait for a command. The caller holds mu.
func (s *Submitter) settle(id commandID) {
	p, open := s.waiting[id]
	if !open {
		return
	}
	delete(s.waiting, id)
	if p.of.open--; p.of.open == 0 {
		close(p.of.done)
	}
}

// Committed takes the envelopes that the API's own projection of links accepted and can show, in order. It does not block.
func (s *Submitter) Committed(accepted []runner.Accepted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return
	}
	for _, a := range accepted {
		if len(a.GetCommandId()) != len(commandID{}) {
			continue
		}
		id := commandID(a.GetCommandId())
		if p, open := s.waiting[id]; open {
			p.of.answers[p.row].Envelope = a.Envelope
			s.settle(id)
		}
	}
}
