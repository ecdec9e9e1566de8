package proxyproto

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// NewListener returns a listener whose connections from these networks begin with a PROXY header, which must come within the
// time and says whose they are; other connections are who they seem to be. The header is read where the connection is first
// used, not in Accept.
func NewListener(ln net.Listener, networks []netip.Prefix, within time.Duration) net.Listener {
	return &listener{Listener: ln, networks: networks, within: within}
}

type listener struct {
	net.Listener
	networks []netip.Prefix
	within   time.Duration
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	trusted := err == nil && slices.ContainsFunc(l.networks, func(p netip.Prefix) bool { return p.Contains(peer.Addr().Unmap()) })
	if !trusted {
		return c, nil
	}
	return &conn{Conn: c, within: l.within}, nil
}

// conn reads its header before anything else is done with it.
type conn struct {
	net.Conn
	within time.Duration

	once   sync.Once
	source netip.Addr
	rest   []byte // came along with the header
	err    error
}

func (c *conn) Read(b []byte) (int, error) {
	if c.header(); c.err != nil {
		return 0, c.err
	}
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// RemoteAddr is the visitor's, with port 0, where the header names one.
func (c *conn) RemoteAddr() net.Addr {
	if c.header(); c.source.IsValid() {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.source, 0))
	}
	return c.Conn.RemoteAddr()
}

func (c *conn) header() {
	c.once.Do(func() {
		_ = c.SetReadDeadline(time.Now().Add(c.within))
		c.source, c.rest, c.err = readHeader(c.Conn)
		_ = c.SetReadDeadline(time.Time{})
	})
}

func readHeader(from net.Conn) (source netip.Addr, rest []byte, err error) {
	var got []byte
	b := make([]byte, MaxHeader)
	for {
		n, err := from.Read(b)
		got = append(got, b[:n]...)
		took, source, wrong := Parse(got)
		switch {
		case wrong != nil:
			return source, nil, wrong
		case took > 0:
			return source, got[took:], nil
		case err != nil:
			return source, nil, fmt.Errorf("reading the PROXY header: %w", err)
		}
	}
}
