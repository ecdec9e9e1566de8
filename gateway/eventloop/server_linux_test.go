package eventloop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/eventloop"
	"github.com/hoplog/hoplog/gateway/http1"
)

// echo answers with the request's target and who asked: "/slow…" only where it may wait, "/large…" with many bytes.
type echo struct {
	large int
	hold  chan struct{} // slow requests wait for it to be closed
	pause time.Duration // what slow requests take beside that
	slow  atomic.Int64  // requests that waited
}

func (e *echo) Respond(out []byte, q *http1.Request, peer netip.Addr, mayWait bool) ([]byte, bool) {
	switch {
	case bytes.HasPrefix(q.Target, []byte("/slow")):
		if !mayWait {
			return out, false
		}
		e.slow.Add(1)
		if e.hold != nil {
			<-e.hold
		}
		time.Sleep(e.pause)
	case bytes.HasPrefix(q.Target, []byte("/large")):
		out = append(out, bytes.Repeat([]byte("x"), e.large)...)
	}
	return fmt.Appendf(out, "%s %s%s\n", q.Target, peer, map[bool]string{true: " close"}[q.Close]), true
}

func (e *echo) Refuse(out []byte, why error) []byte { return fmt.Appendf(out, "refused: %v\n", why) }

// served is a server on a socket.
type served struct {
	*eventloop.Server
	t    *testing.T
	addr string
	done chan error
}

func serve(t *testing.T, h eventloop.Handler, change ...func(*eventloop.Config)) *served {
	t.Helper()
	config := eventloop.Config{Handler: h, Logger: slog.New(slog.DiscardHandler), Loops: 2, Workers: 2, MaxConnections: 20_000,
		RequestTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second}
	for _, f := range change {
		f(&config)
	}
	server, err := eventloop.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Server: server, t: t, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- server.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = server.Shutdown(ctx)
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		if n := server.Connections(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
	return s
}

func (s *served) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	s.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// all writes, closes its side and reads to the end.
func (s *served) all(raw string) string {
	s.t.Helper()
	c := s.dial()
	_, _ = io.WriteString(c, raw)
	_ = c.CloseWrite()
	data, err := io.ReadAll(c)
	if err != nil {
		s.t.Errorf("%.60q: %v after %.100q", raw, err, data)
	}
	return string(data)
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n" }

func TestInOrder(t *testing.T) {
	s := serve(t, &echo{})
	var raw, want strings.Builder
	for i := range 200 {
		target := fmt.Sprint("/", i)
		if i%7 == 3 {
			target = fmt.Sprint("/slow", i) // by a worker, and still in its turn
		}
		raw.WriteString(get(target))
		fmt.Fprintf(&want, "%s 127.0.0.1\n", target)
	}
	if got := s.all(raw.String()); got != want.String() {
		t.Errorf("pipelined:\n%s", got)
	}
	c := s.dial()
	go func() {
		for _, b := range []byte(get("/a") + get("/slow") + get("/b")) {
			_, _ = c.Write([]byte{b})
		}
		_ = c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || string(got) != "/a 127.0.0.1\n/slow 127.0.0.1\n/b 127.0.0.1\n" {
		t.Errorf("byte by byte: %q %v", got, err)
	}
}

func TestBodies(t *testing.T) {
	s := serve(t, &echo{})
	const chunked = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	for name, c := range map[string]struct{ raw, want string }{
		"length":                      {"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("GET ", 10_000) + get("/b"), "/a 127.0.0.1\n/b 127.0.0.1\n"},
		"chunks":                      {chunked + get("/b"), "/a 127.0.0.1\n/b 127.0.0.1\n"},
		"of slow ones":                {strings.Replace(chunked, "/a", "/slow", 1) + get("/b"), "/slow 127.0.0.1\n/b 127.0.0.1\n"},
		"too long":                    {"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("x", 70_000), "refused: http1: body too large\n"},
		"too long, of another method": {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("x", 70_000), "/a 127.0.0.1 close\n"},
		"waits for a 100":             {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "/a 127.0.0.1 close\n"},
		"unfinished":                  {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell", ""},
	} {
		if got := s.all(c.raw); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The answer to what is refused arrives although the client is still sending.
func TestRefusalArrives(t *testing.T) {
	s := serve(t, &echo{})
	for range 20 {
		if got := s.all("GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n" + strings.Repeat("x", 200_000)); got != "refused: http1: malformed request\n" {
			t.Errorf("%q", got)
		}
	}
}

// Who does not read is not written to without end, does not stop the others, and is closed.
func TestSlowReader(t *testing.T) {
	s := serve(t, &echo{large: 1 << 20}, func(c *eventloop.Config) { c.Loops, c.WriteTimeout = 1, time.Second })
	c := s.dial()
	_ = c.SetReadBuffer(4096)
	go func() {
		for range 1000 { // a gigabyte of answers
			if _, err := io.WriteString(c, get("/large")); err != nil {
				return
			}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for began := time.Now(); time.Since(began) < time.Minute; {
		if got := s.all(get("/a")); got != "/a 127.0.0.1\n" {
			t.Fatalf("another: %q", got)
		}
		if s.Connections() == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	runtime.ReadMemStats(&after)
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d bytes held", grown)
	}
}

// A slow reader that does read gets all of its answers, byte for byte.
func TestBackPressure(t *testing.T) {
	const each, times = 200_000, 50
	s := serve(t, &echo{large: each})
	c := s.dial()
	go func() {
		_, _ = io.WriteString(c, strings.Repeat(get("/large"), times))
		_ = c.CloseWrite()
	}()
	want := strings.Repeat(strings.Repeat("x", each)+"/large 127.0.0.1\n", times)
	var got bytes.Buffer
	for part := make([]byte, 100_000); ; {
		n, err := c.Read(part)
		got.Write(part[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", got.Len(), len(want), err)
		}
		if got.Len()%3 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if got.String() != want {
		t.Errorf("%d bytes, want %d", got.Len(), len(want))
	}
}

func TestManyIdle(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	want := min(10_000, int(limit.Max)/2-200)
	if want < 10_000 {
		t.Logf("only %d connections: this process may have %d descriptors", want, limit.Max)
	}
	s := serve(t, &echo{})
	conns := make([]net.Conn, want)
	for i := range conns {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c
	}
	answer := make([]byte, 100)
	ask := func(c net.Conn) {
		_, _ = io.WriteString(c, get("/a"))
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(answer); string(answer[:n]) != "/a 127.0.0.1\n" {
			t.Fatalf("%q %v", answer[:n], err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, c := range conns {
		ask(c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(want); each > 600 {
		t.Errorf("%d bytes for each idle connection", each)
	}
	if n := s.Connections(); n != want {
		t.Errorf("%d connections, want %d", n, want)
	}
}

func TestBusyWorkers(t *testing.T) {
	h := &echo{hold: make(chan struct{})}
	s := serve(t, h, func(c *eventloop.Config) { c.Workers = 1 })
	slow := s.dial()
	_, _ = io.WriteString(slow, get("/slow")+get("/next"))
	for h.slow.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := s.all(get("/a")); got != "/a 127.0.0.1\n" {
		t.Errorf("while a worker waits: %q", got)
	}
	close(h.hold)
	_ = slow.CloseWrite()
	if got, err := io.ReadAll(slow); err != nil || string(got) != "/slow 127.0.0.1\n/next 127.0.0.1\n" {
		t.Errorf("%q %v", got, err)
	}
}

// What comes in one go is handed over in pieces, of which slow ones are shared out again.
func TestManyWaitAtOnce(t *testing.T) {
	h := &echo{pause: time.Millisecond}
	s := serve(t, h, func(c *eventloop.Config) { c.Loops, c.Workers = 1, 4 })
	const many = 200
	conns := make([]*net.TCPConn, many)
	for i := range conns {
		conns[i] = s.dial()
	}
	for i, c := range conns {
		_, _ = fmt.Fprintf(c, "GET /slow%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
		_ = c.CloseWrite()
	}
	for i, c := range conns {
		if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprintf("/slow%d 127.0.0.1\n", i) {
			t.Fatalf("%d: %q %v", i, got, err)
		}
	}
	if n := h.slow.Load(); n != many {
		t.Errorf("%d were answered by workers", n)
	}
}

func TestDrain(t *testing.T) {
	h := &echo{hold: make(chan struct{})}
	s := serve(t, h)
	idle, fresh, half, slow := s.dial(), s.dial(), s.dial(), s.dial()
	_, _ = io.WriteString(idle, get("/a"))
	_, _ = io.WriteString(half, "GET /half HTTP/1.1\r\nHost: a\r\n")
	_, _ = io.WriteString(slow, get("/slow"))
	first := make([]byte, 100)
	n, _ := idle.Read(first)
	for h.slow.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // half of a request may be another loop's
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	rest, err := io.ReadAll(idle)
	if string(first[:n]) != "/a 127.0.0.1\n" || len(rest) > 0 || err != nil {
		t.Errorf("idle: %q %q %v", first[:n], rest, err)
	}
	if rest, err := io.ReadAll(fresh); len(rest) > 0 || err != nil {
		t.Errorf("fresh: %q %v", rest, err)
	}
	_, _ = io.WriteString(half, "\r\n")
	if rest, err := io.ReadAll(half); string(rest) != "/half 127.0.0.1 close\n" || err != nil {
		t.Errorf("half: %q %v", rest, err)
	}
	select {
	case err := <-done:
		t.Errorf("ended with a request under way: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(h.hold)
	if rest, err := io.ReadAll(slow); string(rest) != "/slow 127.0.0.1\n" || err != nil {
		t.Errorf("slow: %q %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", s.addr); err == nil {
		_ = c.Close()
		t.Error("still listening")
	}
}

func TestDrainEnds(t *testing.T) {
	s := serve(t, &echo{})
	half := s.dial()
	_, _ = io.WriteString(half, "GET /half HTTP/1.1\r\n")
	time.Sleep(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestProxyHeader(t *testing.T) {
	const header = "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"
	for name, c := range map[string]struct{ network, raw, want string }{
		"trusted":          {"127.0.0.0/8", header + get("/a") + get("/b"), "/a 192.0.2.7\n/b 192.0.2.7\n"},
		"by a worker":      {"127.0.0.0/8", header + get("/slow"), "/slow 192.0.2.7\n"},
		"its own":          {"127.0.0.0/8", "PROXY UNKNOWN\r\n" + get("/a"), "/a 127.0.0.1\n"},
		"missing":          {"127.0.0.0/8", get("/a"), ""},
		"twice":            {"127.0.0.0/8", header + header + get("/a"), "refused: http1: malformed request\n"},
		"from a stranger":  {"10.0.0.0/8", header + get("/a"), "refused: http1: malformed request\n"},
		"a stranger's own": {"10.0.0.0/8", get("/a"), "/a 127.0.0.1\n"},
	} {
		s := serve(t, &echo{}, func(config *eventloop.Config) { config.Proxies = []netip.Prefix{netip.MustParsePrefix(c.network)} })
		if name == "missing" {
			client := s.dial()
			_, _ = io.WriteString(client, c.raw)
			if got, _ := io.ReadAll(client); len(got) > 0 {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		if got := s.all(c.raw); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Who begins requests and does not end them cannot fill the memory: with many of them, some are turned away.
func TestUnfinishedRequestsAreBounded(t *testing.T) {
	const clients, each = 6000, 15 << 10
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < 2*clients+200 {
		t.Skipf("this process may have %d descriptors", limit.Max)
	}
	s := serve(t, &echo{}, func(c *eventloop.Config) { c.Loops, c.RequestTimeout = 1, time.Minute })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	head := []byte("GET /a HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", each))
	for range clients {
		_, _ = s.dial().Write(head) // some are turned away while they send
	}
	for began := time.Now(); s.Stats().Refused < 100 && time.Since(began) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if got := s.all(get("/a")); got != "/a 127.0.0.1\n" {
		t.Errorf("another: %q", got)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	stats := s.Stats()
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 80<<20 || stats.Refused < 100 {
		t.Errorf("%d bytes for %d unfinished requests, %d turned away", grown, clients, stats.Refused)
	}
}

func TestStats(t *testing.T) {
	s := serve(t, &echo{}, func(c *eventloop.Config) { c.MaxConnections, c.RequestTimeout = 2, 2*time.Second })
	open := func(want int64) {
		for began := time.Now(); s.Stats().Open != want && time.Since(began) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
	}
	s.all(get("/a"))
	s.all("GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n")
	open(0)
	a, b := s.dial(), s.dial()
	_, _ = io.WriteString(b, "GET ") // one says nothing, the other not enough
	open(2)
	if got := s.all(""); got != "refused: eventloop: too busy\n" {
		t.Errorf("a third connection: %q", got)
	}
	_, _ = io.ReadAll(a)
	_, _ = io.ReadAll(b)
	want := eventloop.Stats{Accepted: 4, Refused: 1, TimedOut: 2, Malformed: 1}
	for began := time.Now(); s.Stats() != want && time.Since(began) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if got := s.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// More answers than may wait together: who does not read is closed, the rest goes on.
func TestWaitingAnswersAreBounded(t *testing.T) {
	s := serve(t, &echo{large: 12 << 20}, func(c *eventloop.Config) { c.Loops, c.WriteTimeout = 1, time.Minute })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const clients = 30
	for range clients {
		c := s.dial()
		_ = c.SetReadBuffer(4096)
		_, _ = io.WriteString(c, get("/large"))
	}
	for began := time.Now(); s.Stats().Refused < clients/2 && time.Since(began) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if got := s.all(get("/a")); got != "/a 127.0.0.1\n" {
		t.Errorf("another: %q", got)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	stats := s.Stats()
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 110<<20 || stats.Refused < clients/2 { // 64 MiB wait, and the loop keeps what it writes from
		t.Errorf("%d bytes for %d clients, %d ended", grown, clients, stats.Refused)
	}
}

// More requests than may wait for a worker: the rest is told at once, and what needs no worker is answered.
func TestWaitingRequestsAreBounded(t *testing.T) {
	const clients = 4096 + 200
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < 2*clients+200 {
		t.Skipf("this process may have %d descriptors", limit.Max)
	}
	h := &echo{hold: make(chan struct{})}
	s := serve(t, h, func(c *eventloop.Config) { c.Workers = 1 })
	conns := make([]*net.TCPConn, clients)
	for i := range conns {
		conns[i] = s.dial()
		_, _ = io.WriteString(conns[i], get("/slow"))
		_ = conns[i].CloseWrite()
	}
	const room = 4096 // with what the worker has
	for began := time.Now(); s.Stats().Refused < clients-room && time.Since(began) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if got := s.all(get("/a")); got != "/a 127.0.0.1\n" {
		t.Errorf("what needs no worker: %q", got)
	}
	close(h.hold)
	answers := map[string]int{}
	for _, c := range conns {
		data, _ := io.ReadAll(c)
		answers[string(data)]++
	}
	if busy := answers["refused: eventloop: too busy\n"]; busy != clients-room || answers["/slow 127.0.0.1\n"] != room {
		t.Errorf("%v", answers)
	}
}
