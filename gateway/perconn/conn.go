package perconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/gateway/eventloop"
	"github.com/hoplog/hoplog/gateway/h2"
	"github.com/hoplog/hoplog/gateway/http1"
)

const (
	readBytes   = 2 << 10  // of memory for what comes, as long as no head needs more
	writeBytes  = 16 << 10 // of answers that are written at once
	pageBytes   = 8 << 10  // of answers that any connection may have, whatever the others have
	lingerFor   = time.Second
	lingerBytes = 256 << 10
)

// States of a connection: only one that is idle may be closed by who drains the server.
const (
	stateIdle int32 = iota // nothing of a request has come
	stateBusy
	stateClosed
	stateHTTP2
)

// conn is one connection; its goroutine has it alone, but for state.
type conn struct {
	server *Server
	raw    *counted
	net    net.Conn // raw, or TLS over it
	peer   netip.Addr
	busy   bool // it is one too many
	state  atomic.Int32

	request http1.Request
	memory  []byte // for what comes
	have    []byte // of memory: has come and is not answered
	out     []byte // answers that are not written
	kept    int    // bytes that the server counts for this connection
	served  bool   // a request was answered
	unread  bool   // the client may be sending a body that is not read
}

// errQuiet ends a connection without an answer.
var errQuiet = errors.New("perconn: the connection is over")

// serve serves a connection to its end.
func (c *conn) serve() {
	c.net = c.raw
	if address, err := netip.ParseAddrPort(c.raw.RemoteAddr().String()); err == nil { // this reads a PROXY header
		c.peer = address.Addr().Unmap().WithZone("")
	}
	within := c.server.config.RequestTimeout
	if c.busy {
		within = min(within, turnAwayFor)
	}
	_ = c.raw.SetDeadline(time.Now().Add(within))
	if c.server.config.TLS != nil && !c.handshake() {
		return
	}
	defer func() { _ = c.net.Close() }()
	if c.busy {
		c.refuse(eventloop.ErrBusy)
		return
	}
	c.memory = make([]byte, readBytes)
	defer func() { c.release(c.kept) }()
	for {
		size, err := c.head()
		if err == nil {
			err = c.answer(size)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// handshake brings TLS about. False: there is nothing left to do here, for it failed or the connection speaks HTTP/2.
func (c *conn) handshake() bool {
	over := tls.Server(c.raw, c.server.config.TLS)
	if err := over.HandshakeContext(context.Background()); err != nil {
		var wrong tls.RecordHeaderError
		if errors.As(err, &wrong) && wrong.Conn != nil && isHTTP(wrong.RecordHeader) {
			c.refuse(http1.ErrMalformed) // who speaks plain HTTP to this port is told so in plain HTTP
		}
		c.server.config.Logger.Debug("a TLS handshake failed", "error", err)
		_ = c.raw.Close()
		return false
	}
	if over.ConnectionState().NegotiatedProtocol == "h2" && c.server.config.HTTP2 != nil {
		c.http2(over)
		return false
	}
	c.net = over
	return true
}

// http2 serves a connection that speaks HTTP/2. On one that is too many every request is told so, and the first is the last.
func (c *conn) http2(over *tls.Conn) {
	if !c.state.CompareAndSwap(stateIdle, stateHTTP2) {
		return // closed by who drains
	}
	d := &c.server.config
	config := h2.Config{Handler: d.HTTP2, RequestTimeout: d.RequestTimeout, WriteTimeout: d.WriteTimeout, IdleTimeout: d.IdleTimeout, Draining: c.server.draining.Load}
	if c.busy {
		turn := &turnAway{Handler: d.HTTP2}
		config.Handler, config.Draining, config.RequestTimeout = turn, func() bool { return turn.told }, min(d.RequestTimeout, turnAwayFor)
	}
	h2.Serve(over, c.peer, config)
}

// turnAway tells every request that there are too many connections.
type turnAway struct {
	h2.Handler
	told bool
}

func (t *turnAway) Answer(w *h2.Writer, _ *http1.Request, _ netip.Addr) {
	t.told = true
	t.Refuse(w, eventloop.ErrBusy)
}

// isHTTP reports whether a client that should have begun TLS began with a method of HTTP.
func isHTTP(record [5]byte) bool {
	switch string(record[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// end ends a connection for a reason, which the client is told if it is one.
func (c *conn) end(why error) {
	switch {
	case errors.Is(why, errQuiet):
		_ = c.flush()
	case errors.Is(why, errLast):
		if c.flush() == nil && (c.unread || len(c.have) > 0) {
			c.linger()
		}
	default:
		c.refuse(why)
	}
}

// errLast: the answer that was made is the connection's last.
var errLast = errors.New("perconn: the last answer")

// refuse ends a connection with an answer.
func (c *conn) refuse(why error) {
	c.server.counts.End(why)
	c.have, c.memory = nil, nil
	c.request.Reset()
	c.release(c.kept)
	c.out = c.server.config.Handler.Refuse(c.out, why)
	if c.flush() == nil {
		c.linger()
	}
}

// linger waits until the client has stopped sending: closing while it does makes the kernel tell it so at once, and the answer
// may be lost on it (RFC 9112, section 9.6).
func (c *conn) linger() {
	if half, can := c.net.(interface{ CloseWrite() error }); !can || half.CloseWrite() != nil {
		if tcp, is := c.raw.Conn.(*net.TCPConn); !is || tcp.CloseWrite() != nil {
			return
		}
	}
	_ = c.net.SetReadDeadline(time.Now().Add(min(lingerFor, c.server.config.RequestTimeout)))
	if c.memory == nil {
		c.memory = make([]byte, readBytes)
	}
	for left := lingerBytes; left > 0; {
		n, err := c.net.Read(c.memory)
		if err != nil {
			return
		}
		left -= n
	}
}

// head waits for the next request and returns how many bytes its head takes of what there is.
func (c *conn) head() (size int, err error) {
	begun, seen := len(c.have) > 0, 0
	if begun {
		c.begin()
	}
	for {
		if len(c.have) > 0 && (seen == 0 || http1.Ended(c.have, seen)) {
			if size, err = c.request.Parse(c.have); size > 0 || err != nil {
				return size, err
			}
		}
		seen = len(c.have)
		if err := c.flush(); err != nil {
			return 0, errQuiet
		}
		if !begun {
			if !c.awaits() {
				return 0, errQuiet
			}
			begun = true
			continue
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
}

// awaits waits for the first bytes of a request. False: none will come.
func (c *conn) awaits() bool {
	c.state.CompareAndSwap(stateBusy, stateIdle)
	if c.server.draining.Load() {
		return false
	}
	if c.served {
		_ = c.net.SetReadDeadline(time.Now().Add(c.server.config.IdleTimeout))
	}
	if cap(c.out) > readBytes {
		c.out = nil // one that is idle needs none
	}
	if c.fill() != nil || !c.state.CompareAndSwap(stateIdle, stateBusy) {
		return false
	}
	c.begin()
	return true
}

// begin starts the clock of a request whose first bytes have come. That of a connection's first request runs already.
func (c *conn) begin() {
	if c.served {
		_ = c.net.SetReadDeadline(time.Now().Add(c.server.config.RequestTimeout))
	}
}

// answer answers the request whose head takes the first bytes of what there is.
func (c *conn) answer(size int) error {
	if c.request.Length != 0 {
		return c.answerWithBody(size)
	}
	err := c.respond()
	c.have = c.have[size:]
	return err
}

// respond makes the answer; errLast if it is the last.
func (c *conn) respond() error {
	q := &c.request
	q.Close = q.Close || c.server.draining.Load()
	c.out, _ = c.server.config.Handler.Respond(c.out, q, c.peer, true)
	c.served = true
	switch {
	case q.Close:
		return errLast
	case len(c.out) >= writeBytes && c.flush() != nil:
		return errQuiet
	}
	return nil
}

// answerWithBody skips a body. A client that waits for a 100 is told the outcome instead (RFC 9110, section 10.1.1).
func (c *conn) answerWithBody(size int) error {
	q, body := &c.request, http1.Body{}
	switch err := body.Start(q.Length); {
	case err != nil && q.Method != http1.Other:
		return err
	case err != nil, q.Expect:
		q.Close, c.unread = true, true
		return c.respond()
	}
	if err := c.keep(size); err != nil {
		return err
	}
	defer c.release(size)
	head := append([]byte(nil), c.have[:size]...)
	for c.have = c.have[size:]; ; {
		n, err := body.Skip(c.have)
		if err != nil {
			return err
		}
		if c.have = c.have[n:]; body.Done() {
			break
		}
		if c.flush() != nil {
			return errQuiet
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	if _, err := q.Parse(head); err != nil { // it was read before
		return err
	}
	return c.respond()
}
