package h2

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/hoplog/hoplog/gateway/http1"
)

// headers takes the head of a request, which is answered at once, whether its body is still to come or not.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if id <= c.last && f.StreamEnded() && len(f.PseudoFields()) == 0 {
		return c.ended(id) // trailers of a request that was answered while they were on their way
	}
	if id%2 == 0 || id <= c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.last = id
	if len(c.streams) >= MaxStreams {
		return c.reset(id, http2.ErrCodeRefusedStream)
	}
	q := &c.request
	defer q.Reset()
	why := read(q, f)
	switch {
	case f.Truncated:
		why = http1.ErrHeadTooLarge
	case why == nil && q.Length > http1.MaxBody && q.Method != http1.Other && !q.Expect && !f.StreamEnded():
		why = http1.ErrBodyTooLarge
	}
	c.writer.begin()
	if why != nil {
		c.Handler.Refuse(&c.writer, why)
	} else {
		c.Handler.Answer(&c.writer, q, c.peer)
	}
	return c.write(id, why == nil && q.Method == http1.Head, stream{open: !f.StreamEnded(), unwanted: why != nil || q.Expect || q.Length > http1.MaxBody})
}

// ended: nothing more of a request will come.
func (c *conn) ended(id uint32) error {
	s := c.streams[id]
	if s == nil {
		return nil
	}
	s.open = false
	return c.settle(id, s)
}

// write sends the answer that the writer has, as far as there is room for it.
func (c *conn) write(id uint32, headOnly bool, begun stream) error {
	s := &c.stream
	*s = begun
	s.window, s.until = c.initial, time.Now().Add(c.WriteTimeout)
	if !headOnly {
		s.rest = c.writer.body
	}
	if c.writeHead(id, len(s.rest) == 0) != nil {
		return errOver
	}
	c.until = time.Now().Add(c.IdleTimeout)
	c.unsent += len(s.rest)
	if err := c.send(id, s); err != nil || len(s.rest) == 0 && (!s.open || s.unwanted) {
		return err
	}
	if c.unsent > maxUnsent {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	waits := *s
	c.streams[id] = &waits
	return nil
}

// writeHead sends the answer's head, in as many frames as it needs.
func (c *conn) writeHead(id uint32, last bool) error {
	block := c.writer.block.Bytes()
	n := min(len(block), maxFrame)
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndHeaders: n == len(block), EndStream: last})
	for block = block[n:]; len(block) > 0 && err == nil; block = block[n:] {
		n = min(len(block), maxFrame)
		err = c.framer.WriteContinuation(id, n == len(block), block[:n])
	}
	return err
}

// send sends as much of an answer as the client takes.
func (c *conn) send(id uint32, s *stream) error {
	for len(s.rest) > 0 {
		n := min(int64(len(s.rest)), s.window, c.window, maxFrame)
		if n <= 0 {
			return nil
		}
		if err := c.framer.WriteData(id, n == int64(len(s.rest)), s.rest[:n]); err != nil {
			return errOver
		}
		s.rest, s.window, c.window, c.unsent = s.rest[n:], s.window-n, c.window-n, c.unsent-int(n)
	}
	c.until, s.until = time.Now().Add(c.IdleTimeout), time.Now().Add(c.RequestTimeout)
	return c.settle(id, s)
}

// settle ends a stream whose answer is sent, unless its body is still to be read. A client that goes on sending what nobody
// wants is told so (RFC 9113, section 8.1) after the whole answer: a stream that is reset has no more frames.
func (c *conn) settle(id uint32, s *stream) error {
	if len(s.rest) > 0 || s.open && !s.unwanted {
		return nil
	}
	c.drop(id)
	if s.open {
		return c.framer.WriteRSTStream(id, http2.ErrCodeNo)
	}
	return nil
}

// pump goes on with all answers that wait for room.
func (c *conn) pump() error {
	for id, s := range c.streams {
		if len(s.rest) > 0 {
			if err := c.send(id, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// data throws a part of a body away, and lets the client send as much again: there are clients that take a reset in the middle
// of a body for a failure, whatever was answered.
func (c *conn) data(f *http2.DataFrame) error {
	if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if f.Length > 0 {
		if err := c.framer.WriteWindowUpdate(0, f.Length); err != nil {
			return errOver
		}
	}
	if f.StreamEnded() {
		return c.ended(f.StreamID)
	}
	s := c.streams[f.StreamID]
	if s == nil || s.unwanted || f.Length == 0 {
		return nil
	}
	if s.body += int64(f.Length); s.body > http1.MaxBody {
		s.unwanted = true
		return c.settle(f.StreamID, s)
	}
	return c.framer.WriteWindowUpdate(f.StreamID, f.Length)
}

// read brings a head into the form of http1. What http1 would not have taken is malformed here too.
func read(q *http1.Request, f *http2.MetaHeadersFrame) error {
	path := f.PseudoValue("path")
	switch f.PseudoValue("method") {
	case "GET":
		q.Method = http1.Get
	case "HEAD":
		q.Method = http1.Head
	case "":
		return http1.ErrMalformed
	}
	if q.Method != http1.Other && !strings.HasPrefix(path, "/") {
		return http1.ErrMalformed
	}
	for i := range len(path) {
		if path[i] <= ' ' || path[i] == 0x7F {
			return http1.ErrMalformed
		}
	}
	q.Target, q.Host = []byte(path), []byte(f.PseudoValue("authority"))
	hosts, authority := 0, len(q.Host) > 0
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection": // section 8.2.2
			return http1.ErrMalformed
		case "host":
			if hosts++; !authority {
				q.Host = []byte(field.Value)
			}
		default:
			if err := keep(q, field.Name, field.Value); err != nil {
				return err
			}
		}
	}
	if hosts > 1 || len(q.Host) == 0 {
		return http1.ErrMalformed
	}
	return nil
}

// keep keeps the value of a header that is needed; of one that is there several times the first counts.
func keep(q *http1.Request, name, value string) error {
	first := func(to *[]byte) {
		if *to == nil {
			*to = []byte(value)
		}
	}
	switch name {
	case "user-agent":
		first(&q.UserAgent)
	case "referer":
		first(&q.Referer)
	case "accept-language":
		first(&q.AcceptLanguage)
	case "sec-purpose":
		first(&q.SecPurpose)
	case "purpose":
		first(&q.Purpose)
	case "x-forwarded-for":
		q.ForwardedFor = append(q.ForwardedFor, []byte(value))
	case "forwarded":
		q.Forwarded = append(q.Forwarded, []byte(value))
	case "expect":
		q.Expect = q.Expect || strings.EqualFold(value, "100-continue")
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || q.Length != 0 && q.Length != int64(n) {
			return http1.ErrMalformed
		}
		q.Length = int64(n)
	}
	return nil
}
