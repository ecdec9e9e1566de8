package gateway

import (
	"net"
	"sync"
	"time"
)

// redirectTimeouts are how long a visitor may take for what.
type redirectTimeouts struct {
	request time.Duration // to send a request, from its first byte on; on a new connection, from the connection on
	write   time.Duration // to take an answer
	idle    time.Duration // between requests
}

// redirectListener hands out connections that keep their timeouts by themselves. It may be closed again and again.
type redirectListener struct {
	net.Listener
	timeouts redirectTimeouts
	closing  sync.Once
	err      error
}

func (l *redirectListener) Close() error {
	l.closing.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

func (l *redirectListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &redirectConn{Conn: c, timeouts: l.timeouts, now: now, until: now.Add(l.timeouts.request)}, nil
}

// redirectDeadlineSlack is by which part of its timeout a deadline may strike too early.
const redirectDeadlineSlack = 8

// redirectConn reads the clock once for each request and arms deadlines only where something will wait for them, and not again
// where the armed one is nearly the same. The HTTP server's own timeouts read the clock and set timers three times for each
// request, which costs as much as parsing it.
//
// What follows a Write and is not read yet is the next request. As with any connection, one goroutine reads and writes; Close
// may come from another.
type redirectConn struct {
	net.Conn
	timeouts redirectTimeouts
	idle     bool      // all that was read is answered
	now      time.Time // when the last Read returned
	until    time.Time // when the request that is under way must be there, unless idle

	readArmed, writeArmed time.Time
}

func (c *redirectConn) Read(b []byte) (int, error) {
	until, timeout := c.until, c.timeouts.request
	if c.idle {
		until, timeout = c.now.Add(c.timeouts.idle), c.timeouts.idle
	}
	if !redirectNear(c.readArmed, until, timeout) {
		if err := c.SetReadDeadline(until); err != nil {
			return 0, err
		}
		c.readArmed = until
	}
	n, err := c.Conn.Read(b)
	c.now = time.Now()
	if c.idle {
		c.idle, c.until = false, c.now.Add(c.timeouts.request)
	}
	return n, err
}

func (c *redirectConn) Write(b []byte) (int, error) {
	c.idle = true
	if until := c.now.Add(c.timeouts.write); !redirectNear(c.writeArmed, until, c.timeouts.write) {
		if err := c.SetWriteDeadline(until); err != nil {
			return 0, err
		}
		c.writeArmed = until
	}
	return c.Conn.Write(b)
}

// redirectNear reports whether an armed deadline will do for the one asked for.
func redirectNear(armed, asked time.Time, timeout time.Duration) bool {
	early := asked.Sub(armed)
	return early >= 0 && early < timeout/redirectDeadlineSlack
}
