package perconn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/http1"
)

// plain answers with "ok", or with a page of 10 KiB.
type plain struct{}

func (plain) Respond(out []byte, q *http1.Request, _ netip.Addr, _ bool) ([]byte, bool) {
	if string(q.Target) == "/long" {
		return append(out, make([]byte, 10<<10)...), true
	}
	return append(out, "ok\n"...), true
}

func (plain) Refuse(out []byte, why error) []byte {
	return append(out, "refused: "+why.Error()+"\n"...)
}

// lines counts what is logged.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) { l.n.Add(1); return len(b), nil }

func newServer(t *testing.T, log io.Writer) *Server {
	t.Helper()
	s, err := New(Config{Handler: plain{}, Logger: slog.New(slog.NewTextHandler(log, nil)), MaxConnections: 100,
		RequestTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serving starts a server and returns how to reach it.
func serving(t *testing.T) (s *Server, dial func(says string) net.Conn) {
	t.Helper()
	s = newServer(t, io.Discard)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n := s.kept.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
	return s, func(says string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, says)
		return c
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

const busy = "refused: eventloop: too busy\n"

// Heads that are long, or whose bodies do not come, are bounded over all connections: who asks for more than is left is told
// that the server is busy, those before it go on, and what is over is taken off the count.
func TestServerBoundsWhatConnectionsKeep(t *testing.T) {
	s, dial := serving(t)
	long := "GET / HTTP/1.1\r\nHost: s.example\r\nX: " + strings.Repeat("x", 3000)
	withBody := "GET / HTTP/1.1\r\nHost: s.example\r\nContent-Length: 3\r\n\r\n"
	taken := int64(keptBytes - 2*readBytes - len(withBody))
	s.kept.Store(taken)
	defer s.kept.Add(-taken) // which nobody has
	first, second, third := dial(long), dial(long), dial(withBody)
	until(t, "all of it is taken", func() bool { return s.kept.Load() == keptBytes })
	for _, says := range []string{long, withBody} {
		if got, err := io.ReadAll(dial(says)); err != nil || string(got) != busy {
			t.Errorf("%q %v", got, err)
		}
	}
	if n := s.Stats().Refused; n != 2 {
		t.Errorf("%d are counted as refused", n)
	}
	for c, rest := range map[net.Conn]string{first: "\r\n\r\n", third: "abc"} {
		got := make([]byte, 3)
		_, _ = io.WriteString(c, rest)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "ok\n" {
			t.Errorf("%q %v", got, err)
		}
	}
	_ = second.Close()
	until(t, "what is idle or closed keeps nothing", func() bool { return s.kept.Load() == taken })
}

// Answers are bounded likewise: one page is always there, more than one only if there is room.
func TestServerBoundsAnswers(t *testing.T) {
	s, dial := serving(t)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: s.example\r\n\r\n" }
	s.kept.Store(keptBytes)
	defer s.kept.Add(-keptBytes)
	got := make([]byte, 3)
	if _, err := io.ReadFull(dial(get("/")), got); err != nil || string(got) != "ok\n" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := io.ReadAll(dial(get("/long") + get("/long"))); len(got) > 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := s.Stats().Refused; n != 1 {
		t.Errorf("%d are counted as refused", n)
	}
}

// short is a listener of a process that has no descriptor left.
type short struct {
	net.Listener
	asked atomic.Int64
}

func (l *short) Accept() (net.Conn, error) {
	if l.asked.Add(1) > 5 {
		return nil, errors.New("the test is over")
	}
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// A lack of descriptors, which lasts, is told once.
func TestServerTellsOnceWhatLasts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	l := &short{Listener: ln}
	if err := newServer(t, &log).Serve(l); err == nil || l.asked.Load() != 6 {
		t.Errorf("%v after %d", err, l.asked.Load())
	}
	if n := log.n.Load(); n != 1 {
		t.Errorf("%d lines", n)
	}
}
