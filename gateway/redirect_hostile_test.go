package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/schemas/pb"
)

// redirectHeaders are all that an answer of ours may carry.
var redirectHeaders = map[string]bool{"Date": true, "Content-Length": true, "Location": true, "Cache-Control": true, "Pragma": true, "Expires": true,
	"Content-Type": true, "X-Content-Type-Options": true, "Content-Security-Policy": true, "Allow": true, "Retry-After": true, "Connection": true,
	"Content-Language": true, "Vary": true, "Referrer-Policy": true}

// checkSafe fails on a header that is not ours, twice there, or holds what could end it.
func checkSafe(t testing.TB, raw string, a redirectAnswer) {
	t.Helper()
	for name, values := range a.header {
		if !redirectHeaders[name] || len(values) != 1 {
			t.Errorf("%.300q: header %s: %q", raw, name, values)
		}
	}
	for _, c := range []byte(a.location()) {
		if c <= ' ' || c >= 0x7F {
			t.Errorf("%.300q: Location holds %#x: %q", raw, c, a.location())
		}
	}
	if strings.Contains(a.body, "<script") {
		t.Errorf("%.300q: script in the body: %q", raw, a.body)
	}
}

// hostilePayloads try to end a header or a line wherever they stand.
var hostilePayloads = []string{
	"\r\nSet-Cookie: x=1", "\nSet-Cookie: x=1", "\rSet-Cookie: x=1", "%0d%0aSet-Cookie:%20x=1", "%0D%0A%0D%0A<script>alert(1)</script>",
	"%E5%98%8A%E5%98%8DSet-Cookie:x=1", "\u560a\u560dSet-Cookie:x=1", "\x00", "%00", "\x7f", "\t", "%09", "\xc2\x85", "\xe2\x80\xa8", "\xff\xfe", "%ff%fe",
	"\"><script>alert(1)</script>", "javascript:alert(1)", "//evil.example", "\\\\evil.example", "@evil.example", "#\r\nX: y", " HTTP/1.1\r\nX: y",
	"%250d%250aX:y", "${jndi:ldap://evil.example/x}", "{{7*7}}", "../../../../etc/passwd", strings.Repeat("%0d%0a", 500), strings.Repeat("\xf0\x9f\x9a\x80", 300),
}

func TestRedirectHeaderInjection(t *testing.T) {
	node := newRedirectNode(t)
	for _, policy := range []pb.QueryPolicy{pb.QueryPolicy_QUERY_KEEP, pb.QueryPolicy_QUERY_APPEND, pb.QueryPolicy_QUERY_OVERRIDE} {
		node.add("abc", &pb.Redirect{Target: "https://example.com/?a=1#f", Query: policy})
		for _, payload := range hostilePayloads {
			for place, raw := range map[string]string{
				"code":    "GET /abc" + payload + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"preview": "GET /abc" + payload + "+ HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"query":   "GET /abc?b=" + payload + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"name":    "GET /abc?" + payload + "=1 HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"host":    "GET /abc HTTP/1.1\r\nHost: s.example" + payload + "\r\nConnection: close\r\n\r\n",
				"target":  "GET http://s.example" + payload + "/abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"scheme":  "GET http" + payload + "://s.example/abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n",
				"referer": "GET /abc HTTP/1.1\r\nHost: s.example\r\nReferer: https://a.example/" + payload + "\r\nConnection: close\r\n\r\n",
			} {
				for _, a := range redirectParseAnswers(t, node.send(raw), "GET") {
					checkSafe(t, place+" "+raw, a)
					if a.status >= 500 {
						t.Errorf("%s %.200q: %d", place, raw, a.status)
					}
				}
			}
		}
	}
}

// A target in the store that could never have been accepted must not do harm either.
func TestRedirectHostileTarget(t *testing.T) {
	node := newRedirectNode(t)
	for i, payload := range hostilePayloads {
		code := fmt.Sprintf("t%d", i)
		node.add(code, &pb.Redirect{Target: "https://example.com/" + payload})
		for _, path := range []string{"/" + code, "/" + code + "+"} {
			a := node.get(path)
			checkSafe(t, path+" to "+payload, a)
			if fits := redirectFitsHeader([]byte(payload)); path == "/"+code && fits != (a.status == http.StatusFound) {
				t.Errorf("%q: %d", payload, a.status)
			}
		}
	}
}

// Wherever such a URL stands, the visitor gets 500 and the operator a line in the log.
func TestRedirectTellsOfUnfitURLs(t *testing.T) {
	for path, record := range map[string]*pb.Redirect{
		"/target":  {Target: "https://example.com/\r\nX:y"},
		"/expired": {Target: "https://example.com/", ExpiresUs: 1, ExpiredUrl: "https://example.com/\r\nX:y"},
	} {
		var log lineCounter
		node := newRedirectNode(t, func(d *RedirectDeps) { d.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		node.add(path[1:], record)
		if a := node.get(path); a.status != http.StatusInternalServerError || log.lines.Load() != 1 {
			t.Errorf("%s: %d, %d lines logged", path, a.status, log.lines.Load())
		}
	}
}

// Whatever could be read as one request by us and as two by a proxy, or the other way round, gets one answer and a closed
// connection, or is read as RFC 9112 says.
func TestRedirectSmuggling(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	node.add("evil", &pb.Redirect{Target: "https://evil.example/"})
	const hidden = "GET /evil HTTP/1.1\r\nHost: s.example\r\n\r\n"
	for name, c := range map[string]struct {
		raw      string
		statuses []int
	}{
		"length covers":          {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 39\r\n\r\n" + hidden, []int{302}},
		"two lengths":            {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 0\r\nContent-Length: 39\r\n\r\n" + hidden, []int{400}},
		"length list":            {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 0, 39\r\n\r\n" + hidden, []int{400}},
		"signed length":          {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: +39\r\n\r\n" + hidden, []int{400}},
		"length and chunked":     {"POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{400}},
		"chunked covers":         {"POST /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\n27\r\n" + hidden + "\r\n0\r\n\r\n", []int{405}},
		"two encodings":          {"POST /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden, []int{400}},
		"unknown encoding":       {"POST /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden, []int{400}},
		"space before colon":     {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length : 39\r\n\r\n" + hidden, []int{400}},
		"folded header":          {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: a\r\n Content-Length: 39\r\n\r\n" + hidden, []int{400}},
		"encoding in HTTP/1.0":   {"POST /abc HTTP/1.0\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{400}},
		"two hosts":              {"GET /abc HTTP/1.1\r\nHost: s.example\r\nHost: b.example\r\n\r\n" + hidden, []int{400}},
		"no host":                {"GET /abc HTTP/1.1\r\n\r\n" + hidden, []int{400}},
		"empty host":             {"GET /abc HTTP/1.1\r\nHost: \r\n\r\n" + hidden, []int{400}},
		"HTTP/1.0 without host":  {"GET /abc HTTP/1.0\r\n\r\n" + hidden, []int{404}},
		"HTTP/1.0":               {"GET /abc HTTP/1.0\r\nHost: s.example\r\n\r\n" + hidden, []int{302}},
		"HTTP/1.0 kept":          {"GET /abc HTTP/1.0\r\nHost: s.example\r\nConnection: keep-alive\r\n\r\n" + hidden, []int{302, 302}},
		"HTTP/2 preface":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400}},
		"no version":             {"GET /abc\r\nHost: s.example\r\n\r\n", []int{400}},
		"version of another age": {"GET /abc HTTP/3.7\r\nHost: s.example\r\n\r\n" + hidden, []int{400}},
		"space in the path":      {"GET /abc def HTTP/1.1\r\nHost: s.example\r\n\r\n" + hidden, []int{400}},
		"pipeline":               {strings.Repeat(hidden, 5), []int{302, 302, 302, 302, 302}},
		"TLS on a plain port":    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 500) + "\r\n\r\n", []int{400}},
		"nothing but lines":      {strings.Repeat("\r\n", 100) + hidden, []int{302}},
		"a body that is no body": {"GET /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 100000000\r\n\r\n", []int{413}},
		"a broken chunk":         {"GET /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden, []int{400}},
		"a small POST":           {"POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 5\r\n\r\nhello" + hidden, []int{405, 302}},
		"chunked, then another":  {"GET /abc HTTP/1.1\r\nHost: s.example\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrailer: x\r\n\r\n" + hidden, []int{302, 302}},
		"bare line feeds":        {"GET /abc HTTP/1.1\nHost: s.example\n\n", []int{400}},
		"a bare CR":              {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: a\rContent-Length: 39\r\n\r\n" + hidden, []int{400}},
		"a NUL":                  {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: a\x00\r\n\r\n" + hidden, []int{400}},
		"waits for a 100":        {"POST /abc HTTP/1.1\r\nHost: s.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", []int{405}},
		"upgrade to HTTP/2":      {"GET /abc HTTP/1.1\r\nHost: s.example\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + hidden, []int{302, 302}},
		"a large POST":           {"POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 100000000\r\n\r\n", []int{405}},
	} {
		all := node.send(c.raw)
		var statuses []int
		for _, a := range redirectParseAnswers(t, all, "GET") {
			statuses = append(statuses, a.status)
			checkSafe(t, name, a)
		}
		if fmt.Sprint(statuses) != fmt.Sprint(c.statuses) {
			t.Errorf("%s: %v, want %v: %q", name, statuses, c.statuses, all)
		}
	}
}

func TestRedirectTooLong(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	long := strings.Repeat("a", 20_000)
	for name, c := range map[string]struct {
		raw    string
		status int
	}{
		"path":           {"GET /" + long + " HTTP/1.1\r\nHost: s.example\r\n\r\n", 431},
		"query":          {"GET /abc?" + long + " HTTP/1.1\r\nHost: s.example\r\n\r\n", 431},
		"host":           {"GET /abc HTTP/1.1\r\nHost: " + long + "\r\n\r\n", 431},
		"header":         {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: " + long + "\r\n\r\n", 431},
		"many headers":   {"GET /abc HTTP/1.1\r\nHost: s.example\r\n" + strings.Repeat("X: y\r\n", 4000) + "\r\n", 431},
		"method":         {long + " /abc HTTP/1.1\r\nHost: s.example\r\n\r\n", 431},
		"never a space":  {long, 431},
		"long but taken": {"GET /abc?" + long[:15_000] + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n", 302},
		"host of 4 kB":   {"GET /abc HTTP/1.1\r\nHost: " + long[:4000] + "\r\nConnection: close\r\n\r\n", 404},
		"path of 4 kB":   {"GET /" + long[:4000] + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n", 404},
	} {
		all := node.send(c.raw)
		answers := redirectParseAnswers(t, all, "GET")
		if len(answers) != 1 || answers[0].status != c.status {
			t.Errorf("%s: %.200q, want %d", name, all, c.status)
		}
	}
	if a := node.get("/abc?" + long[:15_000]); a.location() != "https://example.com/?"+long[:15_000] {
		t.Errorf("a Location of %d bytes", len(a.location()))
	}
}

// A visitor who sends a byte now and then does not keep a connection.
func TestRedirectSlowVisitor(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.ReadTimeout, d.IdleTimeout = 300*time.Millisecond, 600*time.Millisecond
	})
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	for name, c := range map[string]struct {
		first  string
		drip   string
		within time.Duration
		want   string
	}{
		"says nothing":    {"", "", 2 * time.Second, ""},
		"drips a header":  {"GET /abc HTTP/1.1\r\nHost: s.example\r\nX: ", "y", 2 * time.Second, "HTTP/1.1 408 "},
		"drips a body":    {"POST /abc HTTP/1.1\r\nHost: s.example\r\nContent-Length: 1000\r\n\r\n", "y", 2 * time.Second, "HTTP/1.1 408 "},
		"idle after one":  {"GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n", "", 3 * time.Second, "HTTP/1.1 302 "},
		"drips its 2nd":   {"GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\nGET ", "y", 3 * time.Second, "HTTP/1.1 302 "},
		"never reads all": {strings.Repeat("GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n", 3), "", 3 * time.Second, "HTTP/1.1 302 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c2, err := net.Dial("tcp", node.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c2.Close() }()
			began := time.Now()
			_, _ = io.WriteString(c2, c.first)
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for c.drip != "" {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						if _, err := io.WriteString(c2, c.drip); err != nil {
							return
						}
					}
				}
			}()
			_ = c2.SetReadDeadline(began.Add(c.within + 20*time.Second))
			data, _ := io.ReadAll(c2)
			if took := time.Since(began); took > c.within+2*time.Second {
				t.Errorf("held for %v", took)
			}
			if !strings.HasPrefix(string(data), c.want) {
				t.Errorf("%q, want %q", data, c.want)
			}
		})
	}
}

func TestRedirectTurnsAwayTooManyConnections(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) { d.MaxConnections = 2 })
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	turnedAway := false
	for range 10 {
		c, err := net.Dial("tcp", node.address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		data, _ := io.ReadAll(c)
		turnedAway = turnedAway || strings.HasPrefix(string(data), "HTTP/1.1 503 ")
	}
	if !turnedAway {
		t.Error("ten connections where two are allowed")
	}
}

func TestRedirectDrains(t *testing.T) {
	t.Run("loops", func(t *testing.T) { testRedirectDrains(t, newRedirectNode(t)) })
	t.Run("goroutines", func(t *testing.T) { testRedirectDrains(t, withPerConnServer(t, newRedirectNode(t))) })
}

func testRedirectDrains(t *testing.T, node *redirectNode) {
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	idle, err := net.Dial("tcp", node.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	c, err := net.Dial("tcp", node.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /abc HTTP/1.1\r\nHost: s.example\r\n")
	time.Sleep(300 * time.Millisecond) // the request is under way
	done := make(chan error, 1)
	go func() { done <- node.redirect.Shutdown(t.Context()) }()
	time.Sleep(50 * time.Millisecond)
	_, _ = io.WriteString(c, "\r\n")
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	data, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(data), "HTTP/1.1 302 ") || !strings.Contains(string(data), "Connection: close\r\n") {
		t.Errorf("%q %v", data, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = idle.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := idle.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an idle connection is kept: %d %v", n, err)
	}
}

func FuzzRedirectRequest(f *testing.F) {
	node := newRedirectNode(f)
	node.add("abc", &pb.Redirect{Target: "https://example.com/?a=1#f", Query: pb.QueryPolicy_QUERY_OVERRIDE})
	for _, seed := range hostilePayloads {
		f.Add("GET /abc HTTP/1.1", "s.example", "b="+seed, "X: y")
		f.Add("GET /"+seed+" HTTP/1.1", "s.example"+seed, "", "Referer: "+seed)
	}
	f.Add("HEAD /abc+ HTTP/1.0", "S.Example.:80", "utm_source=%zz", "X-Forwarded-For: 1.2.3.4")
	f.Add("GET http://s.example/abc HTTP/1.1", "b.example", "?", "Transfer-Encoding: chunked")
	f.Fuzz(func(t *testing.T, line, host, query, header string) {
		line = strings.Replace(line, "/abc", "/abc?"+query, 1)
		raw := line + "\r\nHost: " + host + "\r\n" + header + "\r\nConnection: close\r\n\r\n"
		data := node.on(t).send(raw)
		if strings.Contains(raw, "100-continue") {
			return // an interim answer is not of this test's kind
		}
		for _, a := range redirectParseAnswers(t, data, "") {
			checkSafe(t, raw, a)
			if a.status >= 500 || a.status == http.StatusOK && a.location() != "" {
				t.Errorf("%q: %d %v", raw, a.status, a.header)
			}
		}
	})
}
