package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/schemas/pb"
)

// serveTLS opens the node's TLS listener and returns how to dial it, in HTTP/1.1.
func (n *redirectNode) serveTLS() (address string, dial func() *tls.Conn) {
	n.t.Helper()
	certificates := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"http/1.1"}}
	certificates.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.redirect.ServeTLS(ln, config) }()
	n.t.Cleanup(func() {
		_ = n.redirect.Shutdown(context.Background())
		if err := <-served; err != nil {
			n.t.Error(err)
		}
	})
	return ln.Addr().String(), func() *tls.Conn {
		c, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a certificate of the test's own
		if err != nil {
			n.t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		n.t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// half is a connection whose one side can be closed.
type half interface {
	net.Conn
	CloseWrite() error
}

// However many requests come before the first answer is read, each is answered, in order, on every listener.
func TestRedirectDeepPipelines(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	_, dialTLS := node.serveTLS()
	plain, err := net.Dial("tcp", node.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	_ = plain.SetDeadline(time.Now().Add(20 * time.Second))
	for name, c := range map[string]half{"plain": plain.(*net.TCPConn), "TLS": dialTLS()} {
		const depth = 10_000
		sent := make(chan error, 1)
		go func() {
			w := bufio.NewWriterSize(c, 32<<10)
			for i := range depth {
				fmt.Fprintf(w, "GET /abc?%d HTTP/1.1\r\nHost: s.example\r\n\r\n", i)
			}
			sent <- w.Flush()
		}()
		r := bufio.NewReader(c)
		for i := range depth {
			a, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%s: answer %d: %v", name, i, err)
			}
			_ = a.Body.Close()
			if want := fmt.Sprintf("https://example.com/?%d", i); a.Header.Get("Location") != want {
				t.Fatalf("%s: answer %d leads to %s", name, i, a.Header.Get("Location"))
			}
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is hostile to the plain listener is to that of TLS.
func TestRedirectHostileOverTLS(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	_, dial := node.serveTLS()
	const visit = "GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n"
	for name, c := range map[string]struct {
		raw      string
		statuses string
	}{
		"half closed":           {visit, "[302]"},
		"two, then half closed": {visit + visit, "[302 302]"},
		"HTTP/1.0":              {"GET /abc HTTP/1.0\r\nHost: s.example\r\n\r\n" + visit, "[302]"},
		"HTTP/1.0 kept":         {"GET /abc HTTP/1.0\r\nHost: s.example\r\nConnection: keep-alive\r\n\r\n" + visit, "[302 302]"},
		"HTTP/1.0, no host":     {"GET /abc HTTP/1.0\r\n\r\n", "[404]"},
		"close":                 {"GET /abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n" + visit, "[302]"},
		"a huge header":         {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n", "[431]"},
		"many headers":          {"GET /abc HTTP/1.1\r\nHost: s.example\r\n" + strings.Repeat("X: y\r\n", 10_000) + "\r\n", "[431]"},
		"two hosts":             {"GET /abc HTTP/1.1\r\nHost: s.example\r\nHost: b.example\r\n\r\n" + visit, "[400]"},
		"no host":               {"GET /abc HTTP/1.1\r\n\r\n" + visit, "[400]"},
		"length and chunked":    {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "[400]"},
		"two lengths":           {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 0\r\nContent-Length: 39\r\n\r\n" + visit, "[400]"},
		"a broken chunk":        {"GET /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + visit, "[400]"},
		"plain text":            {"\x00\x01\x02\r\n\r\n", "[400]"},
		"the preface of HTTP/2": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "[400]"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial()
			_, _ = io.WriteString(conn, c.raw)
			_ = conn.CloseWrite()
			data, _ := io.ReadAll(conn) // ends with a reset where something was left unread
			var statuses []int
			for _, a := range redirectParseAnswers(t, string(data), "GET") {
				statuses = append(statuses, a.status)
			}
			if got := fmt.Sprint(statuses); got != c.statuses {
				t.Errorf("%s, want %s: %.300q", got, c.statuses, data)
			}
		})
	}
}

// A slow visitor does not keep a connection of the TLS listener either.
func TestRedirectSlowVisitorOverTLS(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.ReadTimeout, d.WriteTimeout, d.IdleTimeout = 300*time.Millisecond, time.Second, 600*time.Millisecond
	})
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	address, dial := node.serveTLS()
	for name, c := range map[string]struct {
		first, drip string
		handshake   bool
	}{
		"says nothing":        {"", "", false},
		"half a handshake":    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "x", false},
		"nothing after it":    {"", "", true},
		"drips a header":      {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: ", "y", true},
		"drips a body":        {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 1000\r\n\r\n", "y", true},
		"is idle after one":   {"GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n", "", true},
		"drips a second head": {"GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\nGET ", "y", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conn net.Conn
			if c.handshake {
				conn = dial()
			} else {
				plain, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = plain.Close() }()
				conn = plain
			}
			began := time.Now()
			_, _ = io.WriteString(conn, c.first)
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for c.drip != "" {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						if _, err := io.WriteString(conn, c.drip); err != nil {
							return
						}
					}
				}
			}()
			_ = conn.SetReadDeadline(began.Add(30 * time.Second))
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(began); took > 8*time.Second { // a second as a rule; the machine may be busy
				t.Errorf("held for %v", took)
			}
		})
	}
}

// Idle TLS connections do not keep others from being served.
func TestRedirectIdleOverTLS(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	_, dial := node.serveTLS()
	const idle = 200
	for range idle {
		dial()
	}
	c := dial()
	_, _ = io.WriteString(c, "GET /abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n")
	if data, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(data), "HTTP/1.1 302 ") {
		t.Errorf("%q %v", data, err)
	}
	all := node.redirect.Connections()
	if tls := all[1]; tls.Listener != "https" || tls.Accepted != idle+1 || tls.Open < idle {
		t.Errorf("%+v", all)
	}
}

// lineCounter counts what a node logs at the default level.
type lineCounter struct {
	lines, bytes atomic.Int64
}

func (c *lineCounter) Write(b []byte) (int, error) {
	c.lines.Add(1)
	c.bytes.Add(int64(len(b)))
	return len(b), nil
}

// Whatever visitors send, a node logs next to nothing of it, on every listener: here the clock stands, so each complaint may
// come once.
func TestRedirectLogsLittle(t *testing.T) {
	var log lineCounter
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Logger = slog.New(slog.NewTextHandler(&log, nil))
		d.Scan = newScanGuard(t, scan.Config{})
		d.MaxConnections = 50
		d.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	})
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	node.add("broken", &pb.Redirect{Target: "https://example.com/\r\n"})
	_, dialTLS := node.serveTLS()
	raws := []string{"", "\x16\x03\x01", "GET / HTTP/9.9\r\n\r\n", strings.Repeat("x", 40_000), "GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 99999999\r\n\r\n",
		"GET /broken HTTP/1.1\r\nHost: s.example\r\n\r\n"}
	for _, payload := range hostilePayloads {
		raws = append(raws, "GET /abc"+payload+" HTTP/1.1\r\nHost: s.example"+payload+"\r\nUser-Agent: "+payload+"\r\n\r\n")
	}
	for i := range 10 * len(raws) {
		raw := raws[i%len(raws)]
		c, err := net.Dial("tcp", node.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, raw)
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
		if i < len(raws) {
			over := dialTLS()
			_, _ = io.WriteString(over, raw)
			_ = over.CloseWrite()
			_, _ = io.Copy(io.Discard, over)
			_ = over.Close()
		}
	}
	node.pipelined(guessedPaths("guess", 2000), "")
	if lines, bytes := log.lines.Load(), log.bytes.Load(); lines > 2 || bytes > 2000 {
		t.Errorf("%d lines, %d bytes", lines, bytes)
	}
}

// A bug that every request meets is logged once a second, not with every request.
func TestRedirectLogsABugOnce(t *testing.T) {
	var log lineCounter
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Store, d.Logger = panickyStore{}, slog.New(slog.NewTextHandler(&log, nil)) })
	statuses, _ := node.pipelined(guessedPaths("x", 300), "")
	if count := countStatuses(statuses); count[500] != 300 || log.lines.Load() != 1 {
		t.Errorf("%v, %d lines", count, log.lines.Load())
	}
}

// Nothing that visitors make up is remembered without bound: agents, referrers, languages, hosts, codes, addresses.
func TestRedirectRemembersLittle(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Scan, d.TrustedHops = newScanGuard(t, scan.Config{Sources: 4096}), 1 })
	node.appender.keep = false
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	var q http1.Request
	var out []byte
	long := strings.Repeat("m", 3000)
	visit := func(i int) []byte {
		path := "/abc"
		if i%2 == 0 {
			path = fmt.Sprintf("/none%d", i)
		}
		host := "s.example"
		if i%5 == 0 {
			host = fmt.Sprintf("host%d.example", i)
		}
		raw := fmt.Appendf(nil, "GET %s?utm_source=%d%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: agent/%d %s\r\nReferer: https://r%d.example/%s\r\nAccept-Language: x-%d\r\nX-Forwarded-For: %d.%d.%d.%d, 10.0.0.1\r\n\r\n",
			path, i, long[:i%100], host, i, long, i, long, i, 1+i%200, i>>8&255, i>>16&255, i&255)
		if n, err := q.Parse(raw); n != len(raw) || err != nil {
			t.Fatal(n, err)
		}
		out, _ = node.redirect.Respond(out[:0], &q, netip.MustParseAddr("192.0.2.7"), true)
		return out
	}
	for i := range 20_000 { // every table is full
		visit(i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 60_000 {
		visit(20_000 + i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes more", grown)
	}
	if !bytes.HasPrefix(visit(1), []byte("HTTP/1.1 302 ")) {
		t.Errorf("%.100q", out)
	}
}
