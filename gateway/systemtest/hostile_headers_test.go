package systemtest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// breaks are the ways to end a header that somebody may fall for.
var breaks = []string{"\r\n", "\n", "\r", "\r\n\r\n", "\x00", "\x0b", "\x0c", "\u0085", "\u2028", "\u2029", "\u560a\u560d", "\u010a\u010d"}

const injected = "Set-Cookie: hostile=1"

func (h *hostile) injectionByTarget(t *testing.T) {
	for _, at := range breaks {
		for _, target := range []string{"https://example.com/" + at + injected, "https://example.com/?q=" + at + injected + at, "https://example.com/#" + at + injected, "https://example.com" + at + injected, at + injected + at + "https://example.com/"} {
			a := h.send("POST", "/v1/links", fields{"target": target})
			if a.status != http.StatusCreated {
				refusedWith(t, fmt.Sprintf("target %q", target), a, "invalid_target")
				continue
			}
			v := h.seen(t, a.str("code"))
			if v.status != http.StatusFound || strings.ContainsFunc(v.header.Get("Location"), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("target %q: %d %q", target, v.status, v.header.Get("Location"))
			}
			onlyOurHeaders(t, target, v)
		}
	}
	for _, escaped := range []string{"%0d%0a", "%0D%0A", "%0a", "%0d", "%00", "%E5%98%8A%E5%98%8D", "%250d%250a"} {
		target := "https://example.com/" + escaped + "Set-Cookie:hostile=1"
		v := h.seen(t, h.target(target))
		if v.header.Get("Location") != target {
			t.Errorf("%q became %q", target, v.header.Get("Location"))
		}
		onlyOurHeaders(t, target, v)
	}
}

// seen visits a code, all bytes of the answer in hand.
func (h *hostile) seen(t *testing.T, code string) (v answer) {
	t.Helper()
	h.eventually("the redirects serve "+code, func() bool {
		v = rawVisit(t, h.process, "GET", "/"+url.PathEscape(code), h.domain())
		return v.status != http.StatusNotFound
	})
	return v
}

func (h *hostile) injectionByCode(t *testing.T) {
	for _, at := range breaks {
		code := "a" + at + "Set-Cookie:hostile=1"
		refusedWith(t, fmt.Sprintf("code %q", code), h.send("POST", "/v1/links", fields{"target": "https://example.com/", "code": code}), "invalid_code")
		path := "/" + url.PathEscape(code)
		v := rawVisit(t, h.process, "GET", path, h.domain())
		if v.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, v.status)
		}
		onlyOurHeaders(t, path, v)
		for _, method := range []string{"GET", "DELETE"} {
			a := rawAPI(t, h.process, method, "/v1/links/"+h.domain()+path, "")
			refusedWith(t, method+" "+path, a, "not_found")
			onlyOurHeaders(t, path, a)
		}
	}
	// What a code may hold and a header must not show as it is.
	a := h.send("POST", "/v1/links", fields{"target": "https://example.com/", "code": "+@&~é🍞"})
	if want := "/v1/links/" + h.domain() + "/%2B%40%26~%C3%A9%F0%9F%8D%9E"; a.status != http.StatusCreated || a.header.Get("Location") != want {
		t.Errorf("%d %v, want the Location %s", a.status, a.header, want)
	}
}

func (h *hostile) injectionByQuery(t *testing.T) {
	for _, policy := range []string{"keep", "override", "append", "drop", "reject"} {
		a := h.send("POST", "/v1/links", fields{"target": "https://example.com/?a=1", "query": policy})
		path := "/" + a.str("code")
		h.seen(t, a.str("code"))
		for _, at := range append([]string{"%0d%0a", "%0a", "%00", "%E5%98%8A%E5%98%8D", "%", "%zz", "\xff", "\x01", "\x7f", "\t", `"<>\^{|}` + "`", "\xc3\xa4", "#", ";", "&&=&"}, breaks...) {
			for _, query := range []string{"x=" + at + injected, at + injected + "=1", "a=" + at + injected, at} {
				if strings.ContainsAny(query, "\r\n") && !strings.HasPrefix(at, "%") {
					continue // ends the request line: see connections
				}
				query = strings.ReplaceAll(query, " ", "%20")
				v := rawVisit(t, h.process, "GET", path+"?"+query, h.domain())
				if v.status != http.StatusFound && (v.status < 400 || v.status > 499) || strings.ContainsFunc(v.header.Get("Location"), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
					t.Errorf("%s with %q: %d %q", policy, query, v.status, v.header.Get("Location"))
				}
				onlyOurHeaders(t, query, v)
			}
		}
	}
}

func (h *hostile) injectionByHost(t *testing.T) {
	path := "/" + h.target("https://example.com/host")
	h.seen(t, path[1:])
	own := h.domain()
	for _, host := range []string{
		"evil.example\r\n" + injected, own + "\r\n" + injected + "\r\nX-Hostile: 1", own + "\n" + injected, own + "\r" + injected, own + "\x00.evil.example",
		own + " evil.example", "evil.example " + own, own + "\t", "\xff" + own, own + "%0d%0a" + injected, own + "/x", own + "?", own + "#", own + "@evil.example",
		"evil.example, " + own, own + ", evil.example", "'\"<script>alert(1)</script>", strings.Repeat("a", 300), strings.Repeat("a.", 5000), "[::1", "[" + own + "]", ":", ":80", own + ":80", "localhost:",
		"localhost:99999", "localhost:-1", "localhost:0x1f91", "xn--\xff", "xn--a", "..", ".", "-", "%6cocalhost",
	} {
		for what, v := range map[string]answer{
			"visit": rawVisit(t, h.process, "GET", path, host),
			"api":   rawAPI(t, h.process, "GET", "/v1/nothing", "", "Host: "+host),
		} {
			if v.status != 0 && (v.status < 400 || v.status > 499) && v.status != http.StatusFound {
				t.Errorf("%s by host %q: %d %q", what, host, v.status, v.raw)
			}
			onlyOurHeaders(t, what+" by host "+host, v)
			if strings.Contains(v.raw, "hostile") || strings.Contains(v.raw, "<script") || strings.Contains(v.header.Get("Location"), "evil") {
				t.Errorf("%s by host %q: it stands in the answer %v %q", what, host, v.header, v.raw)
			}
		}
	}
	if v := raw(t, h.ports["redirect"], "GET "+path+" HTTP/1.1\r\nHost: "+own+"\r\nHost: evil.example\r\nConnection: close\r\n\r\n"); v.header.Get("Location") != "" && v.header.Get("Location") != "https://example.com/host" {
		t.Errorf("two hosts: %d %v", v.status, v.header)
	}
}

// What of a request comes back in a header of the API: the request's key and identity, the address of a link.
func (h *hostile) injectionIntoAPI(t *testing.T) {
	for _, header := range []string{"Idempotency-Key", "X-Request-Id", "If-Match", "Hoplog-Position", "Authorization"} {
		for _, value := range []string{"a\r\n" + injected, "a\n" + injected, "a\r" + injected, "a\x00b", "\xff", "é", strings.Repeat("k", 300), "a b", "%0d%0a" + injected} {
			// As one more line: a second Authorization is refused or ignored, whichever it is.
			a := rawAPI(t, h.process, "POST", "/v1/links", "{}", header+": "+value, "Content-Length: 2")
			if a.status < 400 || a.status > 499 {
				t.Errorf("%s %q: %d %q", header, value, a.status, a.raw)
			}
			onlyOurHeaders(t, header+" "+value, a)
			if echo := a.header.Get(header); echo != "" && strings.ContainsFunc(echo, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("%s comes back as %q", header, echo)
			}
		}
	}
}

// A refused request spoils neither its connection nor the next one.
func (h *hostile) connections(t *testing.T) {
	path := "/" + h.target("https://example.com/connections")
	h.seen(t, path[1:])
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + h.domain() + "\r\n\r\n" }
	conn := dial(t, h.ports["redirect"])
	defer conn.Close()
	if _, err := io.WriteString(conn, get("/%")+get(path)+get("/"+strings.Repeat("a", 500))+get(path)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	for i, want := range []int{404, 302, 404, 302} {
		if v := readAnswer(t, reader, "GET"); v.status != want {
			t.Errorf("answer %d of one connection: %d %v, want %d", i, v.status, v.header, want)
		}
	}
	api := dial(t, h.ports["api"])
	defer api.Close()
	head := "Host: x\r\nAuthorization: Bearer " + adminKey + "\r\n"
	if _, err := io.WriteString(api, "POST /v1/links HTTP/1.1\r\n"+head+"Content-Length: 1\r\n\r\n{GET /v1/links?limit=0 HTTP/1.1\r\n"+head+"\r\nGET /v1/links HTTP/1.1\r\n"+head+"\r\n"); err != nil {
		t.Fatal(err)
	}
	reader = bufio.NewReader(api)
	for i, want := range []int{400, 400, 200} {
		if a := readAnswer(t, reader, "GET"); a.status != want {
			t.Errorf("answer %d of one connection: %d %s, want %d", i, a.status, a.raw, want)
		}
	}
	for _, junk := range []string{"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x00\x00\x00\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", "GET / HTTP/1.1\r\nHost x\r\n\r\n", "GET " + path + "?a=\n" + injected + " HTTP/1.1\r\nHost: " + h.domain() + "\r\n\r\n"} {
		for _, port := range []string{"api", "redirect"} {
			v := h.junk(t, h.ports[port], junk)
			if v.status >= 500 && v.status != http.StatusHTTPVersionNotSupported && v.status != http.StatusNotImplemented {
				t.Errorf("%s: %q: %d %q", port, junk, v.status, v.raw)
			}
			if v.header.Get("Set-Cookie") != "" {
				t.Errorf("%s: %q: %v", port, junk, v.header)
			}
		}
	}
}

// junk sends bytes, ends its side of the connection, and reads what comes back, if anything does.
func (h *hostile) junk(t *testing.T, addr, bytes string) answer {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	if _, err := io.WriteString(conn, bytes); err != nil {
		t.Fatal(err)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	return readAnswer(t, bufio.NewReader(conn), "GET")
}
