package h2

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A client that is still sending is told to stop after the whole answer, and one that has stopped by then is told nothing.
func TestServeResetsAfterTheAnswer(t *testing.T) {
	c := newClient(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	post := func(id uint32) {
		c.head(id, false, ":method", "POST", ":scheme", "https", ":path", "/100", ":authority", "s.example", "content-length", "70000")
	}
	post(1)
	post(3)
	post(5)
	if got, want := c.heard("5:+1"), "1:200[0 s.example /100  ] 1:+1 3:200[0 s.example /100  ] 3:+1 5:200[0 s.example /100  ] 5:+1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	_ = c.framer.WriteData(3, true, []byte("body"))
	c.head(5, true, "x-trailer", "1")
	for _, id := range []uint32{5, 3, 1} {
		_ = c.framer.WriteWindowUpdate(id, 99)
	}
	if got, want := c.heard("NO_ERROR"), "5:+99. 3:+99. 1:+99. 1:NO_ERROR"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Of a request that is answered nothing is kept, though its body is still to come and its answer waits. Heads cost a client
// next to nothing: all but the first consist of references.
func TestServeKeepsNoRequest(t *testing.T) {
	fields := []string{":method", "GET", ":scheme", "https", ":path", "/100", ":authority", "s.example"}
	for range 4 {
		fields = append(fields, "x-forwarded-for", strings.Repeat("y", 3900))
	}
	over := &script{piece: 4096, says: written(func(c *client) {
		_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range uint32(MaxStreams) {
			c.head(2*i+1, false, fields...)
		}
	})}
	var c *conn
	before, kept := heapAfterGC(), int64(0)
	over.each = func() {
		if len(over.says) == 0 {
			kept = heapAfterGC() - before
			if len(c.streams) != MaxStreams {
				t.Errorf("%d answers wait", len(c.streams))
			}
		}
	}
	c = newConn(over, netip.Addr{}, Config{Handler: &bounded{}, RequestTimeout: time.Hour, WriteTimeout: time.Hour, IdleTimeout: time.Hour, Draining: func() bool { return false }})
	c.serve()
	if kept > 200<<10 || kept == 0 {
		t.Errorf("%d bytes are kept", kept)
	}
}

func heapAfterGC() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // it is small
}

// A head that does not fit into one frame comes in several.
func TestServeLongHead(t *testing.T) {
	c := newClient(t)
	c.get(1, "/0", "referer", strings.Repeat("{", 15_000))
	c.framer.MaxHeaderListSize = 1 << 20
	c.framer.SetMaxReadFrameSize(maxFrame)
	if got := c.heard("1:"); len(got) < 45_000 {
		t.Errorf("%.100s", got)
	}
}
