package gateway

import "github.com/hoplog/hoplog/gateway/eventloop"

// RedirectConnections is what happened to the connections of one kind of listener.
type RedirectConnections struct {
	Listener string // http or https
	eventloop.Stats
}

// Connections returns what happened to connections since the start.
func (r *Redirect) Connections() []RedirectConnections {
	r.mu.Lock()
	defer r.mu.Unlock()
	plain, secure := RedirectConnections{Listener: "http"}, RedirectConnections{Listener: "https"}
	for _, server := range r.servers {
		if s, ok := server.(interface{ IsTLS() bool }); ok && s.IsTLS() {
			secure.add(server)
		} else {
			plain.add(server)
		}
	}
	return []RedirectConnections{plain, secure}
}

func (c *RedirectConnections) add(server redirectServer) {
	s, ok := server.(interface{ Stats() eventloop.Stats })
	if !ok {
		return
	}
	one := s.Stats()
	c.Open += one.Open
	c.Accepted += one.Accepted
	c.Refused += one.Refused
	c.TimedOut += one.TimedOut
	c.Malformed += one.Malformed
}
