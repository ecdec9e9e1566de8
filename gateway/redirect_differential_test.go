package gateway

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/schemas/pb"
)

// withStandardServer returns the same node behind net/http, without TLS.
func withStandardServer(t testing.TB, node *redirectNode) *redirectNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(node.redirect.serveStandard), MaxHeaderBytes: http1.MaxHead, ReadTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	other := node.on(t)
	other.address = ln.Addr().String()
	return other
}

// withPerConnServer returns the same node behind a goroutine per connection, without TLS.
func withPerConnServer(t testing.TB, node *redirectNode) *redirectNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := node.redirect.newPerConnServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = node.redirect.run(server, ln) }() // ends with the node
	other := node.on(t)
	other.address = ln.Addr().String()
	return other
}

// Loops and goroutines answer the same bytes to the same bytes, whole or in pieces.
func TestRedirectServersAnswerAlike(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/?a=1#f"})
	other := withPerConnServer(t, node)
	const visit, last = "GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n", "GET /abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n"
	big := strings.Repeat("x", 70_000)
	for _, raw := range []string{
		visit + visit + last, visit + "HEAD /none HTTP/1.1\r\nHost: s.example\r\n\r\n" + last, last + visit, "\r\n\r\n" + last,
		visit + "GET /abc%zz HTTP/1.1\r\nHost: s.example\r\n\r\n" + visit + "nonsense\r\n\r\n" + visit, "GET / HTTP/1.0\r\n\r\n" + visit,
		"GET /abc HTTP/1.0\r\nHost: s.example\r\nConnection: keep-alive\r\n\r\n" + last,
		"POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 5\r\n\r\nhello" + last,
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + last,
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + last,
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 70000\r\n\r\n" + big, "POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 70000\r\n\r\n" + big,
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 60000\r\n\r\n" + big[:60_000] + last,
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "GET /abc HTTP/1.1\r\nHost: s.example\r\nX: " + big[:20_000] + "\r\n\r\n",
		"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: " + big[:15_000] + "\r\n\r\n" + last, "GET /abc HTTP/1.1\r\nHost: s.ex", "", strings.Repeat(visit, 500) + last,
	} {
		for _, pieces := range []int{1, 3} {
			if a, b := node.sendIn(raw, pieces), other.sendIn(raw, pieces); a != b {
				t.Errorf("%.300q in %d pieces:\nloops      %.600q\ngoroutines %.600q", raw, pieces, a, b)
			}
		}
	}
}

// sendIn is send in some pieces, a moment apart.
func (n *redirectNode) sendIn(raw string, pieces int) string {
	n.t.Helper()
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		for i := range pieces {
			_, _ = io.WriteString(c, raw[len(raw)*i/pieces:len(raw)*(i+1)/pieces])
			time.Sleep(10 * time.Millisecond)
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	data, _ := io.ReadAll(c)
	return string(data)
}

// FuzzRedirectServersAgree asks our own server and net/http's the same: what both take as a request leads to the same place,
// so that both see the same host and code.
func FuzzRedirectServersAgree(f *testing.F) {
	node := newRedirectNode(f)
	node.add("abc", &pb.Redirect{Target: "https://example.com/?a=1#f"})
	node.add("a+b", &pb.Redirect{Target: "https://example.com/plus", Query: pb.QueryPolicy_QUERY_OVERRIDE})
	node.addTo("b.example", "abc", &pb.Redirect{Target: "https://example.com/b", RedirectStatus: 301})
	standard := withStandardServer(f, node)
	for _, target := range []string{"/abc", "/abc/", "/abc?x=%2f&y", "/a%2Bb?b", "/abc+", "/%61bc", "//abc", "/./abc", "/abc#top", "http://b.example/abc", "HTTP://B.Example:80/abc?q",
		"http://b.example", "http://u@b.example/abc", "http://b.example:x/abc", "https://b.example/abc", "ftp://b.example/abc", "/", "/robots.txt", "*", "/%zz", "/\xff"} {
		for _, host := range []string{"s.example", "S.EXAMPLE.", "b.example:443", "other.example", "", "s.example/x", "[::1]"} {
			f.Add("GET", target, host, "")
		}
		f.Add("HEAD", target, "s.example", "Connection: close")
		f.Add("POST", target, "s.example", "Content-Length: 0")
	}
	f.Fuzz(func(t *testing.T, method, target, host, header string) {
		raw := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.TrimPrefix(header+"\r\n", "\r\n") + "Connection: close\r\n\r\n"
		if strings.Contains(strings.ToLower(raw), "expect") || len(raw) > 12_000 {
			return // interim answers and the bounds of heads are their own tests
		}
		firstOf := func(node *redirectNode) redirectAnswer { // its head alone: a refusal has a body even after a HEAD
			head, _, found := strings.Cut(node.on(t).send(raw), "\r\n\r\n")
			if !found {
				return redirectAnswer{status: 400}
			}
			return redirectParseAnswers(t, head+"\r\n\r\n", "HEAD")[0]
		}
		a, b := firstOf(node), firstOf(standard)
		if refused := func(status int) bool { return status == 400 || status == 431 || status == 501 || status == 505 }; refused(a.status) || refused(b.status) {
			return // who takes what is compared in package http1
		}
		if a.status != b.status || a.location() != b.location() {
			t.Errorf("%q:\nours   %d %q\ntheirs %d %q", raw, a.status, a.location(), b.status, b.location())
		}
	})
}

// serveStandard answers a request of net/http.
func (r *Redirect) serveStandard(w http.ResponseWriter, request *http.Request) {
	v := r.visits.Get().(*redirectVisit)
	q := redirectRequestOf(request)
	peer, _ := netip.ParseAddrPort(request.RemoteAddr)
	v.request, v.peer, v.mayWait = q, peer.Addr().Unmap().WithZone(""), true
	if status := redirectSkipBody(request); status != 0 && (q.Method != http1.Other || status == http.StatusBadRequest) {
		w.Header().Set("Connection", "close")
		v.refuse(status)
	} else {
		r.answerSafely(v)
	}
	redirectWrite(w, &v.reply)
	v.request, v.lists, v.link, v.reply = nil, nil, nil, redirectReply{}
	r.visits.Put(v)
}

// redirectRequestOf brings a request of net/http into our form.
func redirectRequestOf(request *http.Request) *http1.Request {
	h := request.Header
	q := &http1.Request{Target: []byte(request.RequestURI), Host: []byte(request.Host), UserAgent: []byte(request.UserAgent()), Referer: []byte(request.Referer()),
		AcceptLanguage: []byte(h.Get("Accept-Language")), SecPurpose: []byte(h.Get("Sec-Purpose")), Purpose: []byte(h.Get("Purpose"))}
	switch request.Method {
	case http.MethodGet:
		q.Method = http1.Get
	case http.MethodHead:
		q.Method = http1.Head
	}
	for _, line := range h["X-Forwarded-For"] {
		q.ForwardedFor = append(q.ForwardedFor, []byte(line))
	}
	for _, line := range h["Forwarded"] {
		q.Forwarded = append(q.Forwarded, []byte(line))
	}
	return q
}

// redirectSkipBody throws a small body away, so that the connection can be used again. Not 0: with which status the request
// is refused. A client that waits for a 100 is told the outcome instead.
func redirectSkipBody(request *http.Request) int {
	switch {
	case request.ContentLength > http1.MaxBody:
		return http.StatusRequestEntityTooLarge
	case request.ContentLength == 0, request.Header.Get("Expect") != "":
		return 0
	}
	n, err := io.Copy(io.Discard, io.LimitReader(request.Body, http1.MaxBody+1))
	switch {
	case err != nil:
		return http.StatusBadRequest
	case n > http1.MaxBody:
		return http.StatusRequestEntityTooLarge
	}
	return 0
}

// redirectWrite writes a reply; Date and what HTTP says about the connection are added by net/http.
func redirectWrite(w http.ResponseWriter, a *redirectReply) {
	h := w.Header()
	if a.page != nil {
		for _, line := range a.page.header {
			h.Set(line[0], line[1])
		}
		w.WriteHeader(a.page.status)
		_, _ = w.Write(a.page.body) // without effect where there may be none: HEAD, 204
		return
	}
	h.Set("Location", string(a.location))
	h.Set("Content-Length", "0")
	if a.fresh > 0 {
		h.Set("Cache-Control", string(a.appendCacheControl(nil)))
	} else {
		h.Set("Cache-Control", redirectNever)
		h.Set("Pragma", "no-cache")
		h.Set("Expires", "0")
	}
	w.WriteHeader(a.status)
}
