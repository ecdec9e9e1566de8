package eventloop

import "sync/atomic"

// Stats is what happened to the connections of a listener since its start.
type Stats struct {
	Open      int64  // there are now
	Accepted  uint64 // were taken
	Refused   uint64 // were turned away, or ended, because there were too many, of them or of requests that wait
	TimedOut  uint64 // were ended because a request did not come in time, or an answer was not taken; idle ones are not counted
	Malformed uint64 // were ended because what came is no request
}

// counts is what Stats shows. None of it changes with each request.
type counts struct{ accepted, refused, timedOut, malformed atomic.Uint64 }
