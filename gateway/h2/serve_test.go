package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hoplog/hoplog/gateway/http1"
)

// echo answers with what it was asked, and with a body as long as the path says.
type echo struct{}

var echoBody = bytes.Repeat([]byte("x"), 100_000)

func (echo) Answer(w *Writer, q *http1.Request, _ netip.Addr) {
	size := 0
	_, _ = fmt.Sscanf(string(q.Target), "/%d", &size)
	w.Begin(200)
	w.Field("x-asked", fmt.Sprintf("%d %s %s %s %s", q.Method, q.Host, q.Target, q.AcceptLanguage, bytes.Join(q.ForwardedFor, []byte("|"))))
	if len(q.Referer) > 0 {
		w.Field("x-thrice", strings.Repeat(string(q.Referer), 3))
	}
	w.End(echoBody[:size])
}

func (echo) Refuse(w *Writer, why error) {
	w.Begin(400)
	w.Field("x-why", why.Error())
	w.End([]byte("no"))
}

// client speaks HTTP/2 frame by frame.
type client struct {
	t        *testing.T
	net      net.Conn
	framer   *http2.Framer
	block    bytes.Buffer
	encoder  *hpack.Encoder
	draining atomic.Bool
	ended    chan struct{}
}

func newClient(t *testing.T, settings ...http2.Setting) *client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		over, err := ln.Accept()
		_ = ln.Close() // not before: a connection that waits to be accepted would be reset
		if err == nil {
			Serve(over, netip.Addr{}, Config{Handler: echo{}, RequestTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: 700 * time.Millisecond, Draining: c.draining.Load})
		}
	}()
	if c.net, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.net.Close(); <-c.ended })
	_ = c.net.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c.net, http2.ClientPreface)
	c.framer = http2.NewFramer(c.net, c.net)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	_ = c.framer.WriteSettings(settings...)
	return c
}

func (c *client) head(id uint32, end bool, fields ...string) {
	c.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: end})
}

func (c *client) get(id uint32, path string, more ...string) {
	c.head(id, true, append([]string{":method", "GET", ":scheme", "https", ":path", path, ":authority", "s.example"}, more...)...)
}

// heard returns the frames up to the first that holds what is waited for, or to the end, in words.
func (c *client) heard(until string) string {
	c.t.Helper()
	var all strings.Builder
	for !strings.Contains(all.String(), until) {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			fmt.Fprintf(&all, "end ")
			if !errors.Is(err, io.EOF) {
				fmt.Fprintf(&all, "(%v) ", err)
			}
			break
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			fmt.Fprintf(&all, "%d:%s", f.StreamID, f.PseudoValue("status"))
			for _, field := range f.RegularFields() {
				fmt.Fprintf(&all, "[%s]", field.Value)
			}
			fmt.Fprint(&all, " ")
		case *http2.DataFrame:
			fmt.Fprintf(&all, "%d:+%d%s ", f.StreamID, f.Length, map[bool]string{true: "."}[f.StreamEnded()])
		case *http2.RSTStreamFrame:
			fmt.Fprintf(&all, "%d:%v ", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			fmt.Fprintf(&all, "away:%d:%v ", f.LastStreamID, f.ErrCode)
		case *http2.PingFrame:
			fmt.Fprintf(&all, "pong ")
		}
	}
	return strings.TrimSuffix(all.String(), " ")
}

func TestServe(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*client)
		until string
		want  string
	}{
		"a request": {func(c *client) {
			c.get(1, "/abc%zz?x", "accept-language", "zh", "x-forwarded-for", "a", "x-forwarded-for", "b")
		}, "1:",
			"1:200[1 s.example /abc%zz?x zh a|b]"},
		"a host without authority": {func(c *client) {
			c.head(1, true, ":method", "HEAD", ":scheme", "https", ":path", "/9", "host", "h.example")
		}, "1:",
			"1:200[2 h.example /9  ]"},
		"no host at all":      {func(c *client) { c.head(1, true, ":method", "GET", ":scheme", "https", ":path", "/") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"another method":      {func(c *client) { c.head(1, true, ":method", "CONNECT", ":authority", "s.example") }, "1:", "1:200[0 s.example   ]"},
		"asterisk":            {func(c *client) { c.get(1, "*") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"a space in the path": {func(c *client) { c.get(1, "/a b") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"connection header":   {func(c *client) { c.get(1, "/", "connection", "close") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"two hosts":           {func(c *client) { c.get(1, "/", "host", "a", "host", "b") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"upper case":          {func(c *client) { c.get(1, "/", "X-Bad", "1"); c.get(3, "/0") }, "3:", "1:PROTOCOL_ERROR 3:200[1 s.example /0  ]"},
		"a large head":        {func(c *client) { c.get(1, "/", "x", strings.Repeat("y", 16_200)) }, "+2.", "1:400[" + http1.ErrHeadTooLarge.Error() + "] 1:+2."},
		"an even stream":      {func(c *client) { c.get(2, "/") }, "end", "away:0:PROTOCOL_ERROR end"},
		"an old stream":       {func(c *client) { c.get(3, "/0"); c.get(1, "/") }, "end", "3:200[1 s.example /0  ] away:3:PROTOCOL_ERROR end"},
		"a large frame":       {func(c *client) { _ = c.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 17_000)) }, "end", "away:0:FRAME_SIZE_ERROR end"},
		"a small frame":       {func(c *client) { _ = c.framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 1, nil) }, "end", "away:0:FRAME_SIZE_ERROR end"},
		"a ping":              {func(c *client) { _ = c.framer.WritePing(false, [8]byte{1}) }, "pong", "pong"},
		"a small body": {func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/3", ":authority", "s.example", "content-length", "20000")
			_ = c.framer.WriteData(1, false, make([]byte, 16_000))
			_ = c.framer.WriteData(1, true, make([]byte, 4000))
			c.get(3, "/0")
		}, "3:", "1:200[1 s.example /3  ] 1:+3. 3:200[1 s.example /0  ]"},
		"a body and trailers": {func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/0", ":authority", "s.example")
			_ = c.framer.WriteData(1, false, make([]byte, 16_000))
			c.head(1, true, "x-trailer", "1")
			c.get(3, "/0")
		}, "3:", "1:200[1 s.example /0  ] 3:200[1 s.example /0  ]"},
		"trailers before their head": {func(c *client) { c.head(1, true, "x-trailer", "1") }, "+2.", "1:400[" + http1.ErrMalformed.Error() + "] 1:+2."},
		"a body too large to begin with": {func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/", ":authority", "s.example", "content-length", "70000")
		}, "NO_ERROR", "1:400[" + http1.ErrBodyTooLarge.Error() + "] 1:+2. 1:NO_ERROR"},
		"a body that becomes too large": {func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/0", ":authority", "s.example")
			for range 5 {
				_ = c.framer.WriteData(1, false, make([]byte, 16_000))
			}
			c.get(3, "/0")
		}, "3:", "1:200[1 s.example /0  ] 1:NO_ERROR 3:200[1 s.example /0  ]"},
		"a POST": {func(c *client) {
			c.head(1, false, ":method", "POST", ":scheme", "https", ":path", "/0", ":authority", "s.example", "content-length", "70000")
		}, "NO_ERROR", "1:200[0 s.example /0  ] 1:NO_ERROR"},
		"a long answer": {func(c *client) { c.get(1, "/40000") }, "7232.", "1:200[1 s.example /40000  ] 1:+16384 1:+16384 1:+7232."},
		"idle":          {func(c *client) { c.get(1, "/0") }, "end", "1:200[1 s.example /0  ] away:1:NO_ERROR end"},
		"silence":       {func(*client) {}, "end", "away:0:NO_ERROR end"},
		"a body that never ends": {func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/0", ":authority", "s.example")
		}, "end", "1:200[1 s.example /0  ] away:1:NO_ERROR end"},
		"a window that overflows": {func(c *client) { _ = c.framer.WriteWindowUpdate(0, 1<<31-1) }, "end", "away:0:FLOW_CONTROL_ERROR end"},
		"a stream's own overflows": {func(c *client) {
			c.get(1, "/70000")
			_ = c.framer.WriteWindowUpdate(1, 1<<31-1)
			_ = c.framer.WriteWindowUpdate(1, 1)
		}, "FLOW", "1:200[1 s.example /70000  ] 1:+16384 1:+16384 1:+16384 1:+16383 1:FLOW_CONTROL_ERROR"},
		"broken compression": {func(c *client) {
			_ = c.framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff})
		}, "end", "away:0:COMPRESSION_ERROR end"},
		"a head without end": {func(c *client) {
			c.block.Reset()
			_ = c.framer.WriteRawFrame(http2.FrameHeaders, 0, 1, nil)
			for range 5000 {
				if c.framer.WriteContinuation(1, false, nil) != nil {
					break
				}
			}
		}, "end", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			c.do(client)
			if got := client.heard(c.until); got != c.want && c.want != "" {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// A client that takes no more gets the rest when it does, and one that never does is let go.
func TestServeFlowControl(t *testing.T) {
	c := newClient(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.get(1, "/25")
	c.get(3, "/5")
	if got := c.heard("3:+5."); got != "1:200[1 s.example /25  ] 1:+10 3:200[1 s.example /5  ] 3:+5." {
		t.Error(got)
	}
	_ = c.framer.WriteWindowUpdate(1, 5)
	if got := c.heard("1:+"); got != "1:+5" {
		t.Error(got)
	}
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 17})
	if got := c.heard("1:+"); got != "1:+7" {
		t.Error(got)
	}
	if got := c.heard("end"); got != "away:3:NO_ERROR end" {
		t.Error(got)
	}
}

// What a client does not take is bounded, in requests and in bytes.
func TestServeBounds(t *testing.T) {
	c := newClient(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() {
		for i := range uint32(101) {
			c.get(2*i+1, "/100")
		}
	}()
	if got := c.heard("REFUSED"); !strings.HasSuffix(got, "201:REFUSED_STREAM") || strings.Count(got, ":200[") != MaxStreams {
		t.Error(got)
	}
	c = newClient(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(3) {
		c.get(2*i+1, "/100000")
	}
	if got := c.heard("end"); !strings.HasSuffix(got, "away:5:ENHANCE_YOUR_CALM end") {
		t.Error(got)
	}
}

func TestServeDrains(t *testing.T) {
	c := newClient(t)
	c.get(1, "/3")
	if got := c.heard("3."); got != "1:200[1 s.example /3  ] 1:+3." {
		t.Fatal(got)
	}
	c.draining.Store(true)
	_ = c.framer.WritePing(false, [8]byte{})
	if got := c.heard("end"); !strings.HasSuffix(got, "away:1:NO_ERROR end") {
		t.Error(got)
	}
}
