package eventloop

import "syscall"

// write sends the loop's answers, and queues what the socket has no room for. False: the connection is closed.
func (l *loop) write(c *conn) bool {
	out := l.out
	l.out = l.out[:0]
	if len(c.queued) == 0 {
		n, ok := l.send(c, out)
		if !ok {
			return false
		}
		if out = out[n:]; len(out) == 0 {
			return true
		}
	}
	before := cap(c.queued)
	c.queued = append(c.queued, out...)
	if l.held += cap(c.queued) - before; l.held > heldBytes {
		l.server.counts.refused.Add(1)
		l.close(c) // somebody must go, and this one does not read
		return false
	}
	return true
}

// send writes as much as the socket takes. False: the connection is closed.
func (l *loop) send(c *conn, b []byte) (n int, ok bool) {
	for {
		n, errno := sent(c.fd, b)
		switch errno {
		case 0:
			return n, true
		case syscall.EAGAIN:
			return 0, true
		case syscall.EINTR:
		default:
			l.close(c)
			return 0, false
		}
	}
}

// flush sends what was queued and then goes on with what is pending. True: there may be more to read.
func (l *loop) flush(c *conn) bool {
	n, ok := l.send(c, c.queued)
	if !ok {
		return false
	}
	if n < len(c.queued) {
		c.queued = c.queued[n:]
		return false
	}
	l.held -= cap(c.queued)
	c.queued = nil
	if c.begun {
		l.timer.set(c, l.now+l.config.RequestTimeout)
	}
	return l.goOn(c)
}

// goOn answers what is pending.
func (l *loop) goOn(c *conn) bool {
	if len(c.pending) > 0 && !c.inBody && !c.waiting && !c.closing {
		return l.advance(c, l.in[:copy(l.in, c.pending)])
	}
	return l.settle(c)
}
