package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hoplog/hoplog/gateway/http1"
)

// script is a connection whose client says what is written down, in pieces, and then nothing until the time is over.
type script struct {
	net.Conn // nil: what else is called panics
	says     []byte
	piece    int
	hears    bytes.Buffer
	each     func() // before each read
	closed   bool
}

func (s *script) Read(b []byte) (int, error) {
	s.each()
	if len(s.says) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b[:min(len(b), s.piece)], s.says)
	s.says = s.says[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { return s.hears.Write(b) }
func (s *script) Close() error                     { s.closed = true; return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// bounded answers with bodies of up to 300 KiB and counts its answers.
type bounded struct{ answers int }

var boundedBody = make([]byte, 300<<10)

func (h *bounded) Answer(w *Writer, q *http1.Request, _ netip.Addr) {
	h.answers++
	size := 0
	_, _ = fmt.Sscanf(string(q.Target), "/%d", &size)
	w.Begin(200)
	w.Field("x-host", string(q.Host))
	w.End(boundedBody[:min(max(size, 0), len(boundedBody))])
}

func (h *bounded) Refuse(w *Writer, _ error) {
	h.answers++
	w.Begin(400)
	w.End(boundedBody[:2])
}

// FuzzServe: whatever frames follow the preface, in whatever pieces they come, nothing panics; while the client is waited for,
// no more than the bounds is kept, and nothing of a request; each request that the handler saw is answered once, with frames in
// an order that the protocol allows and no more body than was allowed; and the connection ends with one GOAWAY and is closed.
func FuzzServe(f *testing.F) {
	for _, seed := range fuzzSeeds() {
		f.Add(seed, uint16(4096))
		f.Add(seed, uint16(7))
	}
	f.Fuzz(func(t *testing.T, frames []byte, piece uint16) {
		if len(frames) > 64<<10 {
			return
		}
		over, handler := &script{says: append([]byte(http2.ClientPreface), frames...), piece: int(piece) + 1}, &bounded{}
		c := newConn(over, netip.Addr{}, Config{Handler: handler, RequestTimeout: time.Hour, WriteTimeout: time.Hour, IdleTimeout: time.Hour, Draining: func() bool { return false }})
		over.each = func() { checkKept(t, c) }
		c.serve()
		if !over.closed {
			t.Error("not closed")
		}
		checkHeard(t, &over.hears, handler.answers)
	})
}

// checkKept looks at what a connection has while it waits.
func checkKept(t *testing.T, c *conn) {
	t.Helper()
	unsent := 0
	for id, s := range c.streams {
		if unsent += len(s.rest); len(s.rest) == 0 && (!s.open || s.unwanted) || s.body > http1.MaxBody && !s.unwanted || id > c.last {
			t.Errorf("stream %d of %d waits for nothing", id, c.last)
		}
	}
	if unsent != c.unsent || len(c.streams) > MaxStreams || unsent > maxUnsent {
		t.Errorf("%d streams wait with %d bytes, said to be %d", len(c.streams), unsent, c.unsent)
	}
	q := &c.request
	for _, kept := range append(slices.Concat(q.ForwardedFor[:cap(q.ForwardedFor)], q.Forwarded[:cap(q.Forwarded)]),
		q.Target, q.Host, q.UserAgent, q.Referer, q.AcceptLanguage, q.SecPurpose, q.Purpose) {
		if kept != nil {
			t.Fatalf("%q is kept", kept)
		}
	}
}

// checkHeard reads what the server said.
func checkHeard(t *testing.T, hears io.Reader, answers int) {
	t.Helper()
	framer := http2.NewFramer(nil, hears)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = 1 << 20
	framer.SetMaxReadFrameSize(maxFrame)
	begun, over, reset := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	heads, total, away := 0, 0, false
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		id := frame.Header().StreamID
		if away {
			t.Fatalf("%v after GOAWAY", frame)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if heads++; begun[id] || reset[id] {
				t.Fatalf("%v: answered or reset before", f)
			}
			begun[id], over[id] = true, f.StreamEnded()
		case *http2.DataFrame:
			if total += len(f.Data()); !begun[id] || over[id] || reset[id] {
				t.Fatalf("%v out of order", f)
			}
			over[id] = f.StreamEnded()
		case *http2.RSTStreamFrame:
			if reset[id] = true; f.ErrCode == http2.ErrCodeNo && !over[id] {
				t.Fatalf("%v before the end of the answer", f)
			}
		case *http2.GoAwayFrame:
			away = true
		}
	}
	if heads != answers || !away {
		t.Errorf("%d heads for %d answers, GOAWAY %v", heads, answers, away)
	}
}

// fuzzSeeds are the frames of clients that do what the other tests do.
func fuzzSeeds() [][]byte {
	var seeds [][]byte
	for _, do := range []func(*client){
		func(c *client) {
			c.get(1, "/abc%zz?x", "accept-language", "zh", "x-forwarded-for", "a", "x-forwarded-for", "b")
		},
		func(c *client) { c.head(1, true, ":method", "CONNECT", ":authority", "s.example") },
		func(c *client) { c.get(1, "/", "X-Bad", "1"); c.get(3, "/0") },
		func(c *client) { // too large, by references
			c.get(1, "/", slices.Repeat([]string{"x-forwarded-for", string(bytes.Repeat([]byte("y"), 500))}, 31)...)
		},
		func(c *client) { c.get(2, "/") },
		func(c *client) { c.get(3, "/0"); c.get(1, "/") },
		func(c *client) { _ = c.framer.WritePing(false, [8]byte{1}) },
		func(c *client) { _ = c.framer.WriteGoAway(0, http2.ErrCodeNo, nil) },
		func(c *client) {
			_ = c.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		},
		func(c *client) { _ = c.framer.WritePriority(1, http2.PriorityParam{Weight: 1}) },
		func(c *client) { _ = c.framer.WriteRSTStream(1, http2.ErrCodeCancel) },
		func(c *client) { c.get(1, "/70000"); _ = c.framer.WriteRSTStream(1, http2.ErrCodeCancel) },
		func(c *client) { _ = c.framer.WriteWindowUpdate(0, 1<<31-1) },
		func(c *client) {
			c.get(1, "/70000")
			_ = c.framer.WriteWindowUpdate(1, 1<<31-1)
			_ = c.framer.WriteWindowUpdate(1, 1)
		},
		func(c *client) {
			c.head(1, false, ":method", "GET", ":scheme", "https", ":path", "/3", ":authority", "s.example", "content-length", "70000")
			_ = c.framer.WriteData(1, false, make([]byte, 100))
			c.head(1, true, "x-trailer", "1")
		},
		func(c *client) { c.head(1, true, "x-trailer", "1") },
		func(c *client) {
			_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			c.head(1, false, ":method", "POST", ":scheme", "https", ":path", "/100", ":authority", "s.example", "expect", "100-continue")
			c.head(3, false, ":method", "GET", ":scheme", "https", ":path", "/100", ":authority", "s.example")
			_ = c.framer.WriteData(3, true, make([]byte, 10))
			_ = c.framer.WriteWindowUpdate(1, 99)
			_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
		},
		func(c *client) {
			_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for i := range uint32(102) {
				c.get(2*i+1, "/100")
			}
		},
		func(c *client) { c.get(1, "/200000"); c.get(3, "/200000"); c.get(5, "/0") },
		func(c *client) {
			_ = c.framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff})
		},
		func(c *client) {
			_ = c.framer.WriteRawFrame(http2.FrameHeaders, 0, 1, nil)
			_ = c.framer.WriteContinuation(1, true, nil)
		},
	} {
		seeds = append(seeds, written(do)[len(http2.ClientPreface):])
	}
	return seeds
}

// written returns what a client says, from the preface on.
func written(do func(*client)) []byte {
	frames := bytes.NewBufferString(http2.ClientPreface)
	c := &client{framer: http2.NewFramer(frames, nil)}
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	_ = c.framer.WriteSettings()
	do(c)
	return frames.Bytes()
}
