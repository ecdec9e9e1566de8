package gateway

import "github.com/hoplog/hoplog/gateway/eventloop"

// newServer makes what serves plain HTTP/1.1.
func (r *Redirect) newServer() (redirectServer, error) {
	d := &r.deps
	return eventloop.New(eventloop.Config{Handler: r, Logger: d.Logger, Loops: d.Loops, Workers: d.Workers, MaxConnections: d.MaxConnections,
		RequestTimeout: d.ReadTimeout, WriteTimeout: d.WriteTimeout, IdleTimeout: d.IdleTimeout, Proxies: d.Proxies})
}
