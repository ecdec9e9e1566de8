// Package perconn serves HTTP/1.1 with a goroutine per connection, on any listener, with TLS or without: what gateway/eventloop
// does with epoll on plain sockets. Requests are read by the same parser and answered by the same handler, so a client cannot
// tell the two apart. Over TLS it speaks HTTP/2 too, by gateway/h2.
//
// Invariant: a connection is always under a deadline, holds at most one head in memory (and all of them together at most
// keptBytes, beyond a small sum for each), and is counted until it is closed, whoever closes it.
//
// It must not import net/http or anything of this module but http1, h2, proxyproto and the
// handler's side of eventloop.
package perconn
