package eventloop

import (
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hoplog/hoplog/gateway/http1"
)

// conn is one connection. Between requests it holds no memory but this.
type conn struct {
	fd      int32
	slot    int16 // of the timer wheel, -1: in none
	proxied bool  // a PROXY header comes first
	begun   bool  // part of a request has come
	served  bool  // a request was answered
	inBody  bool  // body is that of the request in head
	waiting bool  // a worker has a request
	again   bool  // there may be more to read than an event will tell
	eof     bool  // the client sends no more
	closing bool  // to be closed when all is written
	linger  bool  // ... but not before the client has stopped sending
	mute    bool  // lingering: our side is closed, what comes is thrown away

	peer    netip.Addr
	pending []byte // has come and is not answered
	seen    int    // of pending, in which no head ends
	head    []byte // of the request whose body is being skipped
	body    http1.Body
	queued  []byte // answers that the socket had no room for

	deadline, looked time.Duration // since the loop began; looked: when the wheel comes to it
	earlier, later   *conn         // in the same slot
}

// close ends a connection for good.
func (l *loop) close(c *conn) {
	l.timer.remove(c)
	l.conns[c.fd] = nil
	l.held -= cap(c.queued)
	c.queued = nil
	l.keepPending(c, nil)
	l.keepHead(c, nil)
	closeFD(int(c.fd))
	l.load.Add(-1)
	l.server.open.Add(-1)
}

func (l *loop) isOpen(c *conn) bool { return l.conns[c.fd] == c }

// ready goes on with a connection that can be read or written again.
func (l *loop) ready(c *conn, events uint32) {
	const over = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	switch {
	case c.mute:
		l.discard(c)
	case len(c.queued) > 0 && !l.flush(c):
	case c.waiting:
		c.again = true // the event will not come again
	case events&(unix.EPOLLIN|over) != 0:
		l.read(c, events&over != 0)
	}
}

// read takes what has come and answers it. toEnd: what is left to read no further event will tell, as the client has closed
// its side.
func (l *loop) read(c *conn, toEnd bool) {
	for range maxReads {
		kept := 0
		if !c.inBody {
			kept = copy(l.in, c.pending)
		}
		n, errno := received(c.fd, l.in[kept:])
		switch {
		case errno == syscall.EAGAIN:
			return
		case errno != 0 && errno != syscall.EINTR:
			l.close(c)
			return
		case n == 0 && errno == 0:
			l.ended(c)
			return
		case errno == 0:
			more := toEnd || kept+n == len(l.in)
			if goOn := l.advance(c, l.in[:kept+n]); !goOn || !more {
				c.again = more && !goOn
				return
			}
		}
	}
	l.readLater(c)
}

// readLater lets the others have their turn first.
func (l *loop) readLater(c *conn) {
	c.again = true
	l.again = append(l.again, c)
}

// ended: the client has sent all that it ever will. What it asked for it still gets.
func (l *loop) ended(c *conn) {
	c.eof = true
	if len(c.queued) == 0 && !c.waiting {
		l.close(c)
	}
}

// advance answers the requests in data, which begins with what was pending, and keeps what is left. False: the connection is
// closed, or stands still.
func (l *loop) advance(c *conn, data []byte) bool {
	l.data = data
	for len(l.data) > 0 && !c.closing && !c.waiting && len(c.queued) == 0 && l.step(c) {
		if len(l.out) >= writeBytes && !l.write(c) {
			return false
		}
	}
	l.keep(c, len(data))
	if l.kept > keptBytes && (len(c.pending) > 0 || c.inBody) && !c.closing && !c.waiting {
		l.refuse(c, ErrBusy) // somebody must go, and this one is not done
		l.keepPending(c, nil)
	}
	if len(l.out) > 0 && !l.write(c) {
		return false
	}
	return l.settle(c)
}

// keep remembers what is left of the so many bytes that there were.
func (l *loop) keep(c *conn, were int) {
	switch {
	case c.closing:
		l.keepPending(c, nil)
	case len(l.data) == were && !c.inBody: // nothing was taken, so what is pending is the beginning
		l.keepPending(c, append(c.pending, l.data[len(c.pending):]...))
	case len(l.data) == 0:
		l.keepPending(c, nil)
	default:
		l.keepPending(c, append([]byte(nil), l.data...))
	}
	l.data = nil
}

// keepPending and keepHead exchange what a connection has of requests that are not answered.
func (l *loop) keepPending(c *conn, b []byte) {
	l.kept += cap(b) - cap(c.pending)
	c.pending = b
}

func (l *loop) keepHead(c *conn, b []byte) {
	l.kept += cap(b) - cap(c.head)
	c.head = b
}

// settle says how long what comes next may take, now that what could be answered was. False: the connection is closed, or
// stands still.
func (l *loop) settle(c *conn) bool {
	switch {
	case len(c.queued) > 0:
		l.timer.set(c, l.now+l.config.WriteTimeout)
		return false
	case c.waiting:
		return false
	case c.closing:
		l.finish(c)
		return false
	case c.eof, l.draining && !c.begun:
		l.close(c)
		return false
	case !c.begun && c.served:
		l.timer.set(c, l.now+l.config.IdleTimeout)
	}
	return true
}

// finish closes a connection after its last answer. While the client is still sending, closing would make the kernel tell it
// so at once, and the answer may be lost on it: our side is closed first (RFC 9112, section 9.6).
func (l *loop) finish(c *conn) {
	if !c.linger || c.eof || unix.Shutdown(int(c.fd), unix.SHUT_WR) != nil {
		l.close(c)
		return
	}
	c.mute = true
	l.timer.set(c, l.now+min(lingerFor, l.config.RequestTimeout))
	l.discard(c)
}

// discard throws away what a client sends that has its last answer.
func (l *loop) discard(c *conn) {
	for range maxReads {
		n, errno := received(c.fd, l.in)
		if errno == syscall.EAGAIN {
			return
		}
		if n == 0 || errno != 0 {
			l.close(c)
			return
		}
	}
	l.readLater(c)
}

// expire strikes a connection's deadline.
func (l *loop) expire(c *conn) {
	switch {
	case c.waiting:
		l.timer.set(c, l.now+l.config.RequestTimeout) // the worker will come back
	case c.begun && !c.proxied && !c.closing && len(c.queued) == 0:
		l.refuse(c, ErrSlow)
		if l.write(c) {
			l.settle(c)
		}
	default:
		if len(c.queued) > 0 || !c.served && !c.closing {
			l.server.counts.timedOut.Add(1)
		}
		l.close(c)
	}
}
