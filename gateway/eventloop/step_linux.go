package eventloop

import (
	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/gateway/proxyproto"
)

// step takes one thing off the loop's data: a PROXY header, a part of a body, or a request. False: more must come first.
func (l *loop) step(c *conn) bool {
	switch {
	case c.proxied:
		return l.proxyHeader(c)
	case c.inBody:
		return l.skipBody(c)
	}
	if c.seen > 0 && !http1.Ended(l.data, c.seen) {
		c.seen = len(l.data)
		return false
	}
	n, err := l.request.Parse(l.data)
	switch {
	case err != nil:
		return l.refuse(c, err)
	case n == 0:
		l.begin(c)
		c.seen = len(l.data)
		return false
	}
	c.seen = 0
	head := l.data[:n]
	l.data = l.data[n:]
	if l.request.Length != 0 {
		return l.startBody(c, head)
	}
	return l.answer(c, head)
}

// begin starts the clock of a request whose first bytes have come. That of a connection's first request runs already.
func (l *loop) begin(c *conn) {
	if !c.begun && c.served {
		l.timer.set(c, l.now+l.config.RequestTimeout)
	}
	c.begun = true
}

// answer hands the request that was read from head to the handler, or to a worker.
func (l *loop) answer(c *conn, head []byte) bool {
	q := &l.request
	if l.draining {
		q.Close = true
	}
	out, ok := l.config.Handler.Respond(l.out, q, c.peer, false)
	if !ok {
		if !l.hand(c, head) {
			return l.refuse(c, ErrBusy)
		}
		return false
	}
	l.out = out
	l.answered(c, q.Close, l.data)
	return !c.closing
}

// answered: the answer to a request is there, and rest is what came after the request.
func (l *loop) answered(c *conn, last bool, rest []byte) {
	c.begun, c.served = false, true
	if last {
		c.closing, c.linger = true, c.linger || len(rest) > 0
	}
}

// refuse ends a connection with an answer.
func (l *loop) refuse(c *conn, why error) bool {
	l.server.counts.End(why)
	c.closing, c.linger = true, true
	l.out = l.config.Handler.Refuse(l.out, why)
	return false
}

// startBody begins to skip a body. A client that waits for a 100 is told the outcome instead (RFC 9110, section 10.1.1).
func (l *loop) startBody(c *conn, head []byte) bool {
	q := &l.request
	err := c.body.Start(q.Length)
	switch {
	case err != nil && q.Method != http1.Other:
		return l.refuse(c, err)
	case err != nil, q.Expect:
		q.Close, c.linger = true, true
		return l.answer(c, head)
	}
	l.begin(c)
	c.inBody = true
	l.keepHead(c, append([]byte(nil), head...))
	return true
}

func (l *loop) skipBody(c *conn) bool {
	n, err := c.body.Skip(l.data)
	if err != nil {
		return l.refuse(c, err)
	}
	l.data = l.data[n:]
	if !c.body.Done() {
		return false
	}
	head := c.head
	c.inBody = false
	l.keepHead(c, nil)
	if _, err := l.request.Parse(head); err != nil { // it was read before
		return l.refuse(c, err)
	}
	return l.answer(c, head)
}

func (l *loop) proxyHeader(c *conn) bool {
	n, source, err := proxyproto.Parse(l.data)
	if err != nil {
		l.server.counts.malformed.Add(1)
		c.closing = true // what does not keep the protocol gets no answer
		return false
	}
	if n == 0 {
		return false
	}
	c.proxied = false
	if source.IsValid() {
		c.peer = source
	}
	l.data = l.data[n:]
	return true
}
