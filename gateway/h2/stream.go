package h2

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/hoplog/hoplog/gateway/http1"
)

// headers takes the head of a request, or the trailers of one whose body has come.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if s := c.streams[id]; s != nil && s.request != nil && f.StreamEnded() {
		return c.answer(id, s.request)
	}
	if id%2 == 0 || id <= c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.last = id
	switch {
	case len(c.streams) >= MaxStreams:
		return c.reset(id, http2.ErrCodeRefusedStream)
	case f.Truncated:
		return c.refuse(id, http1.ErrHeadTooLarge, f.StreamEnded())
	}
	q := &c.request
	if !f.StreamEnded() {
		q = &http1.Request{} // which outlives this frame
	}
	*q = http1.Request{ForwardedFor: q.ForwardedFor[:0], Forwarded: q.Forwarded[:0]}
	if err := read(q, f); err != nil {
		return c.refuse(id, err, f.StreamEnded())
	}
	switch {
	case f.StreamEnded():
		return c.answer(id, q)
	case q.Method == http1.Other, q.Expect: // whatever the body is
		if err := c.answer(id, q); err != nil {
			return err
		}
		return c.framer.WriteRSTStream(id, http2.ErrCodeNo)
	case q.Length > http1.MaxBody:
		return c.refuse(id, http1.ErrBodyTooLarge, false)
	}
	c.streams[id] = &stream{request: q, window: c.initial, until: time.Now().Add(c.RequestTimeout)}
	return nil
}

// refuse answers what is not a proper request. What of it is still to come is not read.
func (c *conn) refuse(id uint32, why error, ended bool) error {
	c.writer.begin()
	c.Handler.Refuse(&c.writer, why)
	if err := c.write(id, false); err != nil || ended {
		return err
	}
	return c.framer.WriteRSTStream(id, http2.ErrCodeNo)
}

func (c *conn) answer(id uint32, q *http1.Request) error {
	c.writer.begin()
	c.Handler.Answer(&c.writer, q, c.peer)
	return c.write(id, q.Method == http1.Head)
}

// write sends the answer that the writer has, as far as there is room for it.
func (c *conn) write(id uint32, headOnly bool) error {
	body := c.writer.body
	if headOnly {
		body = nil
	}
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.writer.block.Bytes(), EndHeaders: true, EndStream: len(body) == 0}); err != nil {
		return errOver
	}
	s := c.streams[id]
	if s == nil {
		s = &stream{window: c.initial}
	}
	s.request, s.rest, s.until = nil, body, time.Now().Add(c.WriteTimeout)
	c.until = time.Now().Add(c.IdleTimeout)
	if len(body) == 0 {
		c.drop(id)
		return nil
	}
	c.unsent += len(body)
	c.streams[id] = s
	if err := c.send(id, s); err != nil {
		return err
	}
	if c.unsent > maxUnsent {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
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
	c.until = time.Now().Add(c.IdleTimeout)
	c.drop(id)
	return nil
}

// pump goes on with all answers that wait for room.
func (c *conn) pump() error {
	for id, s := range c.streams {
		if s.request == nil {
			if err := c.send(id, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// data throws a part of a body away, and lets the client send as much again.
func (c *conn) data(f *http2.DataFrame) error {
	if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if f.Length > 0 {
		if err := c.framer.WriteWindowUpdate(0, f.Length); err != nil {
			return errOver
		}
	}
	s := c.streams[f.StreamID]
	if s == nil || s.request == nil {
		return nil // it was answered, or reset, while this was on its way
	}
	s.body += int64(f.Length)
	switch {
	case s.body > http1.MaxBody:
		return c.refuse(f.StreamID, http1.ErrBodyTooLarge, f.StreamEnded())
	case f.StreamEnded():
		return c.answer(f.StreamID, s.request)
	case f.Length > 0:
		return c.framer.WriteWindowUpdate(f.StreamID, f.Length)
	}
	return nil
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
	case "accept":
		first(&q.Accept)
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
