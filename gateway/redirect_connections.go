package gateway

import (
	"net"
	"net/http"
	"sync/atomic"

	"github.com/hoplog/hoplog/gateway/eventloop"
)

// RedirectConnections is what happened to the connections of one kind of listener.
type RedirectConnections struct {
	Listener string // http or https
	eventloop.Stats
}

// Connections returns what happened to connections since the start. Of TLS only Open and Accepted are known.
func (r *Redirect) Connections() []RedirectConnections {
	r.mu.Lock()
	defer r.mu.Unlock()
	plain, tls := r.standard[0].stats(), r.standard[1].stats()
	for _, server := range r.servers {
		if s, ok := server.(interface{ Stats() eventloop.Stats }); ok {
			one := s.Stats()
			plain.Open += one.Open
			plain.Accepted += one.Accepted
			plain.Refused += one.Refused
			plain.TimedOut += one.TimedOut
			plain.Malformed += one.Malformed
		}
	}
	return []RedirectConnections{{"http", plain}, {"https", tls}}
}

func (r *Redirect) connectionsOf(s *redirectStandardServer) *redirectConnections {
	if s.TLSConfig != nil {
		return &r.standard[1]
	}
	return &r.standard[0]
}

// redirectConnections counts connections of net/http.
type redirectConnections struct {
	open     atomic.Int64
	accepted atomic.Uint64
}

func (c *redirectConnections) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.open.Add(1)
		c.accepted.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	case http.StateActive, http.StateIdle: // it was counted
	}
}

func (c *redirectConnections) stats() eventloop.Stats {
	return eventloop.Stats{Open: c.open.Load(), Accepted: c.accepted.Load()}
}
