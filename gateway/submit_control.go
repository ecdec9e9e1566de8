package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ControlSubmitter sends commands to the control stream and hands each sender the envelope that answers its command: the
// process's control read model shows every accepted envelope to Committed.
type ControlSubmitter struct {
	log CommandLog

	mu      sync.Mutex
	waiting map[commandID]*controlWait
}

// controlWait is one command that is waited for. ControlSubmitter.mu guards answer until done is closed.
type controlWait struct {
	answer Answer
	done   chan struct{}
}

// NewControlSubmitter makes a ControlSubmitter that appends to the topic of control commands.
func NewControlSubmitter(log CommandLog) *ControlSubmitter {
	return &ControlSubmitter{log: log, waiting: map[commandID]*controlWait{}}
}

// Submit sends a command with an id of its own and waits for its answer, as long as given at most or until ctx is done. What is
// not answered by then may be decided later.
func (s *ControlSubmitter) Submit(ctx context.Context, c *pb.ControlCommand, wait time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	value, err := c.MarshalVT()
	if err != nil {
		return Answer{Err: fmt.Errorf("%w: %w", errNotSent, err)}
	}
	id := commandID(c.GetCommandId())
	w := &controlWait{done: make(chan struct{})}
	s.mu.Lock()
	s.waiting[id] = w
	s.mu.Unlock()
	record := eventlog.Record{Key: events.BucketKey(events.ControlBucket), Value: value}
	s.log.AppendAsync(ctx, 0, record, func(_ int64, err error) { s.acknowledge(id, w, sendError(err)) })
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
	return w.answer
}

// acknowledge notes the log's answer. An error ends the wait, unless the envelope was there before.
func (s *ControlSubmitter) acknowledge(id commandID, w *controlWait, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.answer.Acknowledged = err == nil
	if err != nil && w.answer.Envelope == nil {
		w.answer.Err = err
		s.settle(id, w)
	}
}

// settle ends a wait, once. The caller holds mu.
func (s *ControlSubmitter) settle(id commandID, w *controlWait) {
	if s.waiting[id] == w {
		delete(s.waiting, id)
		close(w.done)
	}
}

// Committed takes the envelopes that the control read model accepted and can show, in order. It does not block.
func (s *ControlSubmitter) Committed(accepted []runner.Accepted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range accepted {
		if len(a.GetCommandId()) != len(commandID{}) {
			continue
		}
		id := commandID(a.GetCommandId())
		if w := s.waiting[id]; w != nil {
			w.answer.Envelope = a.Envelope
			s.settle(id, w)
		}
	}
}
