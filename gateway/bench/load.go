package bench

import (
	"time"
)

// load is a number of connections that each ask, wait for the answer and ask again, for a time.
type load struct {
	addr        string // host:port
	connections int
	during      time.Duration
	// rate is how many requests are due per second, whether earlier ones are answered or not: a request that finds no free
	// connection waits, and its latency counts from when it was due. 0: each connection asks as soon as it was answered.
	rate   float64
	source source
	// tell (may be nil) hears how long the load has run, a few times a second.
	tell func(time.Duration)
}

// source is what the connections ask. One goroutine calls it.
type source interface {
	// request appends the next request of a connection to dst, whole and with a length.
	request(dst []byte, connection int) []byte
	// answered hears the answer to a connection's last request; the body is lent. It returns how many units of work were
	// done right and how many were not.
	answered(connection int, status int, body []byte) (right, wrong int)
}

// loaded is what a load did.
type loaded struct {
	span     time.Duration // in which what counts for rates was answered
	requests int           // answered, also after the time was up
	inTime   int           // units done right while the load ran
	right    int           // units done right
	wrong    int           // units not done right; a request without an answer counts as one
	problem  string        // the first thing that was wrong
	latency  Histogram     // of requests
	rates    []float64     // units per second, a slice of time each
	hungUp   int           // connections that the server closed between requests
}

const (
	// loadSlice is the step of rates.
	loadSlice = 250 * time.Millisecond
	// loadPatience is how long answers are waited for when the time is up.
	loadPatience = 15 * time.Second
)

func (l *loaded) perSecond() float64 { return per(float64(l.inTime), l.span.Seconds()) }

// note counts the units of one answer.
func (l *loaded) note(right, wrong int, since time.Duration) {
	l.requests++
	l.right += right
	l.wrong += wrong
	if since >= l.span {
		return
	}
	l.inTime += right
	if slice := int(since / loadSlice); slice < len(l.rates) {
		l.rates[slice] += float64(right) / loadSlice.Seconds()
	}
}

func (l *loaded) blame(problem string) {
	if l.problem == "" {
		l.problem = problem
	}
}
