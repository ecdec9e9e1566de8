//go:build !linux

package gateway

// newServer makes what serves plain HTTP/1.1. Where there is no event loop of ours, it is the server of TLS without TLS.
func (r *Redirect) newServer() (redirectServer, error) { return r.newPerConnServer(nil) }
