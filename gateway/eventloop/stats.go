package eventloop

import (
	"errors"
	"sync/atomic"
)

// Stats is what happened to the connections of a listener since its start.
type Stats struct {
	Open      int64  // there are now
	Accepted  uint64 // were taken
	Refused   uint64 // were turned away, or ended, because there were too many, of them or of requests that wait
	TimedOut  uint64 // were ended because a request did not come in time, or an answer was not taken; idle ones are not counted
	Malformed uint64 // were ended because what came is no request
}

// Counts is what Stats shows. None of it changes with each request.
type Counts struct{ accepted, refused, timedOut, malformed atomic.Uint64 }

// Accept counts a connection that was taken.
func (c *Counts) Accept() { c.accepted.Add(1) }

// End counts a connection that is turned away or ended for a reason that Handler.Refuse is given.
func (c *Counts) End(why error) {
	switch {
	case errors.Is(why, ErrSlow):
		c.timedOut.Add(1)
	case errors.Is(why, ErrBusy):
		c.refused.Add(1)
	default:
		c.malformed.Add(1)
	}
}

// Stats returns the counts beside how many connections are open.
func (c *Counts) Stats(open int64) Stats {
	return Stats{Open: open, Accepted: c.accepted.Load(), Refused: c.refused.Load(), TimedOut: c.timedOut.Load(), Malformed: c.malformed.Load()}
}
