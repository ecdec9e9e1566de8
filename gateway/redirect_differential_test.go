package gateway

import (
	"net"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/schemas/pb"
)

// withStandardServer returns the same node behind net/http, without TLS.
func withStandardServer(t testing.TB, node *redirectNode) *redirectNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = node.redirect.run(node.redirect.newStandardServer(nil), ln) }() // ends with the node
	other := node.on(t)
	other.address = ln.Addr().String()
	return other
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
