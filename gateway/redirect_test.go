package gateway

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

const redirectTestAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// redirectCase is an input of the shared cases; which fields it has depends on the file.
type redirectCase struct {
	ID           string `json:"id"`
	Path         string `json:"path"`
	Status       int    `json:"status"`
	Target       string `json:"target"`
	Policy       string `json:"policy"`
	VisitorQuery string `json:"visitor_query"`
	Location     string `json:"location"`
	Error        string `json:"error"`
}

// redirectCases reads the shared cases where they are kept beside the project, else the project's copy.
func redirectCases(t *testing.T, name, kept string) (cases []redirectCase) {
	t.Helper()
	data, err := os.ReadFile("../../shared/cases/" + name + ".json")
	if errors.Is(err, os.ErrNotExist) {
		data, err = os.ReadFile("../" + kept + "/testdata/" + name + ".json")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestRedirectPathCases(t *testing.T) {
	node := newRedirectNode(t)
	for _, c := range redirectCases(t, "paths", "events") {
		a := node.get(c.Path)
		if a.status != c.Status || len(a.header["Set-Cookie"]) > 0 {
			t.Errorf("%s: %d %v, want %d", c.ID, a.status, a.header, c.Status)
		}
	}
}

func TestRedirectQueryCases(t *testing.T) {
	node := newRedirectNode(t)
	policies := map[string]pb.QueryPolicy{"keep": pb.QueryPolicy_QUERY_KEEP, "override": pb.QueryPolicy_QUERY_OVERRIDE,
		"append": pb.QueryPolicy_QUERY_APPEND, "drop": pb.QueryPolicy_QUERY_DROP, "reject": pb.QueryPolicy_QUERY_REJECT}
	for _, c := range redirectCases(t, "query", "readmodels") {
		node.add(c.ID, &pb.Redirect{Target: c.Target, Query: policies[c.Policy]})
		path := "/" + c.ID
		if c.VisitorQuery != "" {
			path += "?" + c.VisitorQuery
		}
		want := c.Status
		if want == 0 {
			want = http.StatusFound
		}
		if a := node.get(path); a.status != want || a.location() != c.Location {
			t.Errorf("%s: %d %q, want %d %q", c.ID, a.status, a.location(), want, c.Location)
		}
	}
}

func TestRedirectTargetCases(t *testing.T) {
	node := newRedirectNode(t)
	for _, c := range redirectCases(t, "targets", "commands") {
		target, err := commands.NormalizeTarget(c.Target)
		if err != nil {
			continue // refused at creation: the API's case
		}
		node.add(c.ID, &pb.Redirect{Target: target})
		if a := node.get("/" + c.ID); a.status != http.StatusFound || a.location() != c.Location {
			t.Errorf("%s: %d %q, want %q", c.ID, a.status, a.location(), c.Location)
		}
	}
}

func TestRedirectAnswers(t *testing.T) {
	node := newRedirectNode(t)
	const second = int64(1e6)
	for code, c := range map[string]struct {
		record *pb.Redirect
		status int
	}{
		"active":     {&pb.Redirect{}, 302},
		"moved":      {&pb.Redirect{RedirectStatus: 301}, 301},
		"temporary":  {&pb.Redirect{RedirectStatus: 307}, 307},
		"permanent":  {&pb.Redirect{RedirectStatus: 308}, 308},
		"scheduled":  {&pb.Redirect{NotBeforeUs: redirectTestNow + 1}, 404},
		"begun":      {&pb.Redirect{NotBeforeUs: redirectTestNow}, 302},
		"expired":    {&pb.Redirect{ExpiresUs: redirectTestNow}, 410},
		"not-yet":    {&pb.Redirect{ExpiresUs: redirectTestNow + second}, 302},
		"disabled":   {&pb.Redirect{Disabled: true}, 410},
		"deleted":    {&pb.Redirect{Deleted: true}, 410},
		"banned":     {&pb.Redirect{Banned: true}, 403},
		"legal":      {&pb.Redirect{Banned: true, BannedLegal: true}, 451},
		"gone-twice": {&pb.Redirect{Deleted: true, Banned: true}, 410},
	} {
		c.record.Target = "https://example.com/" + code
		node.add(code, c.record)
		for _, method := range []string{"GET", "HEAD"} {
			a := node.visit(method, node.host, "/"+code)
			if a.status != c.status {
				t.Errorf("%s %s: %d, want %d", method, code, a.status, c.status)
			}
			if isRedirect := c.status/100 == 3; isRedirect != (a.location() == c.record.Target) || !isRedirect && len(a.header["Location"]) > 0 {
				t.Errorf("%s: status %d with Location %q", code, a.status, a.location())
			}
			if !isNeverCached(a.header) {
				t.Errorf("%s: cacheable: %v", code, a.header)
			}
			if c.status >= 400 {
				checkRefusal(t, code, method, a)
			}
		}
	}
}

func isNeverCached(h http.Header) bool {
	return h.Get("Cache-Control") == "private, no-cache, no-store, must-revalidate" && h.Get("Pragma") == "no-cache" && h.Get("Expires") == "0"
}

func checkRefusal(t *testing.T, name, method string, a redirectAnswer) {
	t.Helper()
	if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%s: headers of a refusal: %v", name, a.header)
	}
	if (method == "HEAD") != (a.body == "") {
		t.Errorf("%s: %s with body %q", name, method, a.body)
	}
}

func TestRedirectCacheTTL(t *testing.T) {
	node := newRedirectNode(t)
	const second = int64(1e6)
	for code, c := range map[string]struct {
		record *pb.Redirect
		want   string
	}{
		"no-expiry":  {&pb.Redirect{CacheTtl: 60}, "public, max-age=60, stale-if-error=60"},
		"far":        {&pb.Redirect{CacheTtl: 60, ExpiresUs: redirectTestNow + 3600*second}, "public, max-age=60, stale-if-error=60"},
		"stale-cut":  {&pb.Redirect{CacheTtl: 60, ExpiresUs: redirectTestNow + 70*second}, "public, max-age=60, stale-if-error=10"},
		"fresh-cut":  {&pb.Redirect{CacheTtl: 60, ExpiresUs: redirectTestNow + 30*second + 999_999}, "public, max-age=30, stale-if-error=0"},
		"last":       {&pb.Redirect{CacheTtl: 60, ExpiresUs: redirectTestNow + 999_999}, "private, no-cache, no-store, must-revalidate"},
		"zero":       {&pb.Redirect{CacheTtl: 0}, "private, no-cache, no-store, must-revalidate"},
		"very-large": {&pb.Redirect{CacheTtl: 1<<32 - 1}, "public, max-age=4294967295, stale-if-error=4294967295"},
	} {
		c.record.Target = "https://example.com/"
		node.add(code, c.record)
		a := node.get("/" + code)
		if got := a.header.Get("Cache-Control"); got != c.want || a.status != http.StatusFound {
			t.Errorf("%s: %q, want %q", code, got, c.want)
		}
		if public := strings.HasPrefix(c.want, "public"); public && len(a.header["Pragma"])+len(a.header["Expires"]) > 0 {
			t.Errorf("%s: older headers contradict: %v", code, a.header)
		}
	}
}

func TestRedirectPaths(t *testing.T) {
	node := newRedirectNode(t)
	for _, code := range []string{"abc", "Abc", "a+b", "plus+", "grüße", "🚀", "a.b~c-d_e@f&g"} {
		node.add(code, &pb.Redirect{Target: "https://example.com/" + "x"})
	}
	for path, want := range map[string]int{
		"/abc": 302, "/abc/": 302, "/abc//": 404, "//abc": 404, "/abc/x": 404, "/ABC": 404, "/Abc": 302, "/abc?": 302, "/abc/?x=1": 302,
		"/%61bc": 302, "/a+b": 302, "/a%2Bb": 302, "/a%2bb": 302, "/a%20b": 404, "/plus+": 302, "/plus+/": 302,
		"/gr%C3%BC%C3%9Fe": 302, "/gru%CC%88%C3%9Fe": 302, "/gr\xc3\xbc\xc3\x9fe": 302, "/%F0%9F%9A%80": 302, "/a.b~c-d_e@f&g": 302,
		"/": 404, "/?x": 404, "/.": 404, "/..": 404, "/abc/..": 404, "/./abc": 404, "/x/../abc": 404, "/%2e%2e/abc": 404, "/abc%2F": 404,
		"/abc;x": 404, "/abc%": 404, "/abc%zz": 404, "/abc%00": 404, "/\xff": 404, "/%ff": 404, "/" + strings.Repeat("a", 65): 404,
		"/.well-known/security.txt": 404, "/abc#top": 302, "/abc?x=1#top": 302,
	} {
		if a := node.get(path); a.status != want {
			t.Errorf("%q: %d, want %d", path, a.status, want)
		}
	}
	if a := node.get("/abc?x=1#top"); a.location() != "https://example.com/x?x=1" {
		t.Errorf("the visitor's fragment reached %q", a.location())
	}
}

// B38: unknown hosts, and the many ways to write a known one.
func TestRedirectHosts(t *testing.T) {
	node := newRedirectNode(t)
	node.add("x", &pb.Redirect{Target: "https://example.com/s"})
	node.addTo("b.example", "x", &pb.Redirect{Target: "https://example.com/b"})
	node.addTo("xn--bcher-kva.example", "x", &pb.Redirect{Target: "https://example.com/u"})
	for host, want := range map[string]string{
		"s.example": "s", "S.EXAMPLE": "s", "s.example.": "s", "s.example:80": "s", "s.example:443": "s", "alias.example:8081": "s",
		"Alias.Example:08081": "s", "b.example": "b", "xn--bcher-kva.example": "u", "b\xc3\xbccher.example": "u", "XN--BCHER-KVA.example": "u",
		"unknown.example": "", "s.example:8080": "", "alias.example": "", "127.0.0.1": "", "[::1]:80": "", "s.example.evil.example": "",
		"s.example@evil.example": "", "evil.example@s.example": "", "s.example,b.example": "", "s..example": "", "s.example/x": "", "\xff": "",
	} {
		for _, path := range []string{"/x", "/robots.txt"} {
			a := node.visit("GET", host, path)
			if known := want != ""; known != (a.status < 400) || !known && a.status != http.StatusNotFound {
				t.Errorf("%s%s: %d", host, path, a.status)
			}
			if path == "/x" && want != "" && a.location() != "https://example.com/"+want {
				t.Errorf("%s: %q, want %q", host, a.location(), want)
			}
		}
	}
}

func TestRedirectRequestTargets(t *testing.T) {
	node := newRedirectNode(t)
	node.add("x", &pb.Redirect{Target: "https://example.com/s"})
	node.addTo("b.example", "x", &pb.Redirect{Target: "https://example.com/b"})
	for line, want := range map[string]string{
		"GET http://b.example/x":         "302 https://example.com/b", // the Host header says s.example
		"GET HTTPS://B.EXAMPLE/x?q=1":    "302 https://example.com/b?q=1",
		"GET http://other.example/x":     "404 ",
		"GET http://b.example":           "404 ",
		"GET http://b.example?x":         "404 ",
		"GET ftp://s.example/x":          "404 ",
		"GET http://u@s.example/x":       "404 ",
		"GET http:///x":                  "404 ",
		"GET x":                          "400 ",
		"GET *":                          "400 ",
		"OPTIONS *":                      "405 ",
		"CONNECT s.example:443":          "405 ",
		"TRACE /x":                       "405 ",
		"GET /x?u=http://b.example/":     "302 https://example.com/s?u=http://b.example/",
		"GET //b.example/x":              "404 ",
		"GET /http://b.example/x":        "404 ",
		"GET http://s.example/%E0%A4%A?": "404 ",
	} {
		a := node.ask(line + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n")
		status, location, _ := strings.Cut(want, " ")
		if status != strconv.Itoa(a.status) || a.location() != location {
			t.Errorf("%s: %d %q, want %s", line, a.status, a.location(), want)
		}
	}
}

func TestRedirectMethods(t *testing.T) {
	node := newRedirectNode(t)
	node.add("x", &pb.Redirect{Target: "https://example.com/"})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get", "BREW"} {
		a := node.visit(method, node.host, "/x", "Content-Length: 0")
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" || len(a.header["Location"]) > 0 {
			t.Errorf("%s: %d %v", method, a.status, a.header)
		}
		checkRefusal(t, method, method, a)
	}
	if n := len(node.clicks()); n != 0 {
		t.Errorf("%d clicks", n)
	}
}

// B27, and what is ours on every domain.
func TestRedirectOwnPaths(t *testing.T) {
	node := newRedirectNode(t)
	if a := node.get("/"); a.status != http.StatusNotFound || !strings.Contains(a.body, "There is no link") || len(a.header["Location"]) > 0 {
		t.Errorf("/: %d %v %q", a.status, a.header, a.body)
	}
	node.add("robots.txt", &pb.Redirect{Target: "https://example.com/"})
	if a := node.get("/robots.txt"); a.status != http.StatusOK || !strings.HasPrefix(a.body, "User-agent: *\n") || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("robots: %d %v %q", a.status, a.header, a.body)
	}
	if a := node.get("/favicon.ico"); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("favicon: %d %q", a.status, a.body)
	}
}

func TestRedirectPreview(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: `https://example.com/?q="><script>alert(1)</script>&a='b'`})
	node.add("a&b", &pb.Redirect{Target: "https://example.com/"})
	node.add("off", &pb.Redirect{Target: "https://example.com/", Disabled: true})
	node.add("own+", &pb.Redirect{Target: "https://example.com/own"})
	a := node.get("/abc+")
	if a.status != http.StatusOK || strings.Contains(a.body, "<script") || !strings.Contains(a.body, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;a=&#39;b&#39;") ||
		!strings.Contains(a.body, `href="/abc"`) || !isNeverCached(a.header) || !strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("preview: %d %v %s", a.status, a.header, a.body)
	}
	if a := node.get("/a&b+"); a.status != http.StatusOK || !strings.Contains(a.body, `href="/a&amp;b"`) || !strings.Contains(a.body, "<title>Preview of a&amp;b</title>") {
		t.Errorf("preview of a&b: %s", a.body)
	}
	for path, want := range map[string]int{"/own+": 302, "/own++": 200, "/off+": 410, "/none+": 404, "/+": 404, "/abc++": 404, "/abc%2B": 200} {
		if a := node.get(path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	if n := len(node.clicks()); n != 1 { // /own+
		t.Errorf("%d clicks", n)
	}
}

func TestRedirectStoreFails(t *testing.T) {
	node := newRedirectNode(t)
	node.store.fail(errors.New("disk on fire at /secret"))
	a := node.get("/x")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || strings.Contains(a.body, "secret") {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
	checkRefusal(t, "store", "GET", a)
}

type panickyStore struct{}

func (panickyStore) Load([]byte) (*redirects.Record, error)           { panic("bug") }
func (panickyStore) Find([]byte) (*redirects.Record, redirects.State) { panic("bug") }

func TestRedirectSurvivesABug(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Store = panickyStore{} })
	for range 2 {
		if a := node.get("/x"); a.status != http.StatusInternalServerError || strings.Contains(a.body, "bug") {
			t.Errorf("%d %q", a.status, a.body)
		}
	}
}

func TestNewRedirectRefuses(t *testing.T) {
	if _, err := NewRedirect(RedirectDeps{}); err == nil {
		t.Error("made of nothing")
	}
	node := newRedirectNode(t)
	deps := node.redirect.deps
	deps.TrustedHops = -1
	if _, err := NewRedirect(deps); err == nil {
		t.Error("trusts -1 hops")
	}
}

func TestRedirectShutdownBeforeServe(t *testing.T) {
	node := newRedirectNode(t)
	redirect, err := NewRedirect(node.redirect.deps)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := redirect.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := redirect.Serve(ln); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("still listening")
	}
}
