package h2

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hoplog/hoplog/gateway/http1"
)

// Handler answers requests, which are borrowed. Many goroutines call it at once.
type Handler interface {
	// Answer tells w the answer to a request that peer sent: Begin once, Field for each header, End once.
	Answer(w *Writer, q *http1.Request, peer netip.Addr)
	// Refuse is Answer for what is not a proper request, by an error of http1.
	Refuse(w *Writer, why error)
}

// Config is what a connection needs. All of it must be set.
type Config struct {
	Handler        Handler
	RequestTimeout time.Duration // for a body, and on a new connection until the first request
	WriteTimeout   time.Duration // for the client to take an answer
	IdleTimeout    time.Duration // after the last answer
	// Draining reports that no more requests are to be taken. Who makes it true sets a read deadline that is past.
	Draining func() bool
}

const (
	// MaxStreams is how many requests a connection may have under way: answers that wait for room, or bodies that are coming.
	MaxStreams = 100

	maxFrame      = 16 << 10 // the smallest bound that the protocol allows
	maxUnsent     = 256 << 10
	maxOffences   = 100 // streams that are in error
	initialWindow = 1<<16 - 1
	maxWindow     = 1<<31 - 1
	lingerFor     = time.Second
)

// errOver ends a connection with nothing to say.
var errOver = errors.New("h2: the connection is over")

// conn is one connection. One goroutine has it alone.
type conn struct {
	Config
	net    net.Conn
	peer   netip.Addr
	in     *bufio.Reader
	out    *bufio.Writer
	framer *http2.Framer
	writer Writer

	streams  map[uint32]*stream // that wait
	last     uint32             // the highest stream that the client began
	offences int
	unsent   int
	window   int64 // how much of bodies the client takes now
	initial  int64 // the window of a new stream
	until    time.Time
	request  http1.Request
	stream   stream // whose answer is being sent for the first time
}

// stream is an answered request, while the answer waits for room or the body is still coming.
type stream struct {
	rest     []byte // of the answer's body
	open     bool   // the client has not ended the request
	unwanted bool   // its body is not read
	body     int64  // bytes of it so far
	window   int64
	until    time.Time
}

// Serve serves a connection to its end and closes it.
func Serve(over net.Conn, peer netip.Addr, config Config) { newConn(over, peer, config).serve() }

func newConn(over net.Conn, peer netip.Addr, config Config) *conn {
	c := &conn{Config: config, net: over, peer: peer, in: bufio.NewReader(over), out: bufio.NewWriter(over), streams: map[uint32]*stream{},
		window: initialWindow, initial: initialWindow, until: time.Now().Add(config.RequestTimeout)}
	c.framer = http2.NewFramer(c.out, c.in)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.MaxHeaderListSize = http1.MaxHead
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.SetReuseFrames()
	c.writer = newWriter()
	return c
}

func (c *conn) serve() {
	defer func() { _ = c.net.Close() }()
	err := c.begin()
	for err == nil {
		err = c.next()
	}
	c.end(err)
}

// begin exchanges prefaces (section 3.4).
func (c *conn) begin() error {
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: MaxStreams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: http1.MaxHead}); err != nil {
		return errOver
	}
	if err := c.flush(); err != nil {
		return err
	}
	_ = c.net.SetReadDeadline(c.until)
	preface := make([]byte, len(http2.ClientPreface))
	for have := 0; have < len(preface); {
		n, err := c.in.Read(preface[have:])
		have += n
		if !bytes.HasPrefix([]byte(http2.ClientPreface), preface[:have]) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if err != nil {
			return errOver
		}
	}
	return nil
}

// next takes the next frame.
func (c *conn) next() error {
	if c.in.Buffered() == 0 {
		if err := c.flush(); err != nil {
			return err
		}
	}
	_ = c.net.SetReadDeadline(c.deadline())
	if c.Draining() && len(c.streams) == 0 {
		return http2.ConnectionError(http2.ErrCodeNo)
	}
	frame, err := c.framer.ReadFrame()
	_ = c.net.SetWriteDeadline(time.Now().Add(c.WriteTimeout)) // the buffer writes itself when it is full
	var ofStream http2.StreamError
	switch {
	case err == nil:
		return c.take(frame)
	case errors.As(err, &ofStream):
		c.last = max(c.last, ofStream.StreamID)
		return c.reset(ofStream.StreamID, ofStream.Code)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http2.ConnectionError(http2.ErrCodeNo) // a frame may have been cut, so the other streams end with it
	case errors.Is(err, http2.ErrFrameTooLarge), errors.Is(err, io.ErrUnexpectedEOF): // too small, or the client is gone
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	return err
}

// deadline returns when the first of the streams under way is over, or the idle connection.
func (c *conn) deadline() time.Time {
	first := c.until
	if len(c.streams) > 0 {
		first = time.Time{}
	}
	for _, s := range c.streams {
		if first.IsZero() || s.until.Before(first) {
			first = s.until
		}
	}
	return first
}

func (c *conn) take(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		return c.more(f)
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		return c.framer.WritePing(true, f.Data)
	case *http2.RSTStreamFrame:
		if f.StreamID > c.last {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.drop(f.StreamID)
	case *http2.GoAwayFrame:
		if len(c.streams) == 0 {
			return http2.ConnectionError(http2.ErrCodeNo)
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // PRIORITY, and what is not known
}

func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
		if size > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		for _, s := range c.streams {
			if s.window += int64(size) - c.initial; s.window > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
		}
		c.initial = int64(size)
	}
	if err := c.framer.WriteSettingsAck(); err != nil {
		return err
	}
	return c.pump()
}

// more makes room for answers.
func (c *conn) more(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		return c.pump()
	}
	if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil
	}
	if s.window += int64(f.Increment); s.window > maxWindow {
		return c.reset(f.StreamID, http2.ErrCodeFlowControl)
	}
	if len(s.rest) == 0 {
		return nil // which must not give it more time
	}
	return c.send(f.StreamID, s)
}

// reset ends a stream that is in error; a connection with too many of them ends.
func (c *conn) reset(id uint32, code http2.ErrCode) error {
	c.drop(id)
	if c.offences++; c.offences > maxOffences {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return c.framer.WriteRSTStream(id, code)
}

func (c *conn) drop(id uint32) {
	if s := c.streams[id]; s != nil {
		c.unsent -= len(s.rest)
		delete(c.streams, id)
	}
}

func (c *conn) flush() error {
	if c.out.Buffered() == 0 {
		return nil
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(c.WriteTimeout))
	if c.out.Flush() != nil {
		return errOver
	}
	return nil
}

// end says why the connection ends, and waits until the client has heard it: closing while it sends would lose the last answers.
func (c *conn) end(why error) {
	var code http2.ConnectionError
	if errors.As(why, &code) {
		_ = c.framer.WriteGoAway(c.last, http2.ErrCode(code), nil)
	}
	if half, can := c.net.(interface{ CloseWrite() error }); c.flush() != nil || !can || half.CloseWrite() != nil {
		return
	}
	_ = c.net.SetReadDeadline(time.Now().Add(min(lingerFor, c.RequestTimeout)))
	for left := 16; left > 0; left-- {
		if _, err := c.in.Discard(maxFrame); err != nil {
			return
		}
	}
}
