package app

import (
	"errors"
	"net"
	"sync"
)

// Visitors and callers must not take the descriptors that the stores and the log need: who asks opens sockets, who answers
// opens files.
const (
	ownDescriptors  = 2048   // of stores, the log, and whatever else
	mostConnections = 65_536 // of one listener
	apiShare        = 8      // the API's part of what a listener of redirects may have
)

// connections is how many one of so many listeners of the redirects may have, of so many descriptors in all.
func connections(descriptors, listeners uint64) int {
	if descriptors == 0 {
		return mostConnections
	}
	own := min(ownDescriptors, descriptors/2)
	return int(max(1, min(mostConnections, (descriptors-own)*apiShare/(listeners*apiShare+1))))
}

// apiConnections is how many the API may have.
func apiConnections(descriptors uint64) int { return max(1, connections(descriptors, 2)/apiShare) }

// redirectListeners is how many listeners the redirects have: plain, and perhaps TLS.
func (s settings) redirectListeners() uint64 {
	if s.GetString("redirect-tls") != "" {
		return 2
	}
	return 1
}

// limitConnections returns a listener that has so many connections at once; more wait. Its connections can be closed one side
// at a time, as those of netutil.LimitListener cannot: a server that refuses a request needs that, or the kernel takes its
// answer back.
func limitConnections(ln net.Listener, most int) net.Listener {
	return &limited{Listener: ln, room: make(chan struct{}, most), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	room   chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		<-l.room
		return nil, errors.Join(errors.New("limiting connections: not TCP"), conn.Close())
	}
	return &limitedConn{TCPConn: tcp, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	*net.TCPConn
	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
