package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// routes are all paths of the API with their methods; LINK stands for a link's path.
var routes = map[string][]string{
	"/": {"GET"}, "/v1/openapi.yaml": {"GET"}, "/v1/openapi.json": {"GET"}, "/v1/links": {"GET", "POST"}, "/v1/links:batch": {"POST"}, "/v1/requests/x": {"GET"},
	"LINK": {"DELETE", "GET", "PATCH"}, "LINK/disable": {"POST"}, "LINK/enable": {"POST"}, "LINK/ban": {"POST"}, "LINK/unban": {"POST"}, "LINK/history": {"GET"}, "LINK/stats": {"GET"},
	"/v1/denylist": {"GET", "POST"}, "/v1/denylist/x": {"DELETE", "GET"}, "/v1/allowlist": {"GET", "POST"}, "/v1/allowlist/x": {"DELETE", "GET"}, "/v1/trust": {"GET", "POST"}, "/v1/trust/x": {"DELETE", "GET"},
	"/v1/switches": {"GET"}, "/v1/switches/low/close": {"POST"}, "/v1/switches/low/open": {"POST"}, "/v1/audit": {"GET"}, "/v1/keys": {"GET", "POST"}, "/v1/keys/x": {"DELETE", "GET"},
	"/v1/domains": {"GET"}, "/v1/domains/x": {"GET", "PATCH"},
}

// answered are the methods that a path with these is answered by, in order: what can be read, by HEAD as well.
func answered(methods []string) []string {
	if slices.Contains(methods, "GET") {
		methods = append(slices.Clone(methods), "HEAD")
		slices.Sort(methods)
	}
	return methods
}

// public routes need no key.
var public = []string{"/", "/v1/openapi.yaml", "/v1/openapi.json"}

func (h *hostile) methods(t *testing.T) {
	link := h.link(h.target("https://example.com/methods"))
	for route, methods := range routes {
		path := strings.Replace(route, "LINK", link, 1)
		for _, method := range without([]string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW", "get", "G\x7fT", "HEAD"}, answered(methods)...) {
			a := rawAPI(t, h.process, method, path, "", "Content-Length: 0")
			if method == "G\x7fT" { // no token: no request
				if a.status != http.StatusBadRequest {
					t.Errorf("%q %s: %d", method, path, a.status)
				}
				continue
			}
			if method != "HEAD" { // whose answer has no body
				refusedWith(t, method+" "+path, a, "method_not_allowed")
			}
			allow := strings.Split(a.header.Get("Allow"), ", ")
			slices.Sort(allow)
			if !slices.Equal(allow, answered(methods)) || a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, Allow %v, want %v", method, path, a.status, allow, answered(methods))
			}
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v2/links", "/v1/link", "/v1/links/", "/v1/links/x", "/v1/links:x", "/v1/links:batch/", link + "/", link + "/x", link + "/disable/x", link + "//disable", "//v1/links", "/v1//links", "/v1/requests", "/v1/requests/", "/V1/LINKS", "/v1/./links", "/v1/links/../links", "/debug/pprof/", "/metrics", "/index.html", "/.git/config", "/%2e%2e/%2e%2e/etc/passwd", "/v1/links%3Abatch"} {
		for _, method := range []string{"GET", "POST"} {
			refusedWith(t, method+" "+path, rawAPI(t, h.process, method, path, "", "Content-Length: 0"), "")
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW"} {
		v := rawVisit(t, h.process, method, "/x", h.domain(), "Content-Length: 0")
		if v.status != http.StatusMethodNotAllowed || v.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("visit by %s: %d %v", method, v.status, v.header)
		}
	}
}

func (h *hostile) keys(t *testing.T) {
	link := h.link(h.target("https://example.com/keys"))
	for route, methods := range routes {
		if slices.Contains(public, route) {
			continue
		}
		path := strings.Replace(route, "LINK", link, 1)
		for _, method := range methods {
			for _, key := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + adminKey + "x", "Bearer " + adminKey[1:], "Bearer x " + adminKey, "Basic " + adminKey, adminKey, "Bearer\x00" + adminKey, "Bearer " + strings.ToUpper(adminKey), "Bearer " + strings.Repeat("k", 20_000), "Bearer '; DROP TABLE keys", "Digest x"} {
				lines := []string{method + " " + path + " HTTP/1.1", "Host: x", "Connection: close", "Content-Length: 0"}
				if key != "" {
					lines = append(lines, "Authorization: "+key)
				}
				what := fmt.Sprintf("%s %s with %.60q", method, path, key)
				a := raw(t, h.ports["api"], strings.Join(lines, "\r\n")+"\r\n\r\n")
				if strings.Contains(key, "\x00") {
					if a.status != http.StatusBadRequest {
						t.Errorf("%s: %d", what, a.status)
					}
					continue
				}
				refusedWith(t, what, a, "unauthorized")
				if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s: %d %v", what, a.status, a.header)
				}
				if strings.Contains(a.raw, adminKey) {
					t.Errorf("%s: the answer holds a key: %s", what, a.raw)
				}
			}
		}
	}
	if a := h.api("GET", link, nil); a.status != http.StatusOK || a.header.Get("ETag") != `"1"` {
		t.Errorf("the link afterwards: %d %s", a.status, a.raw)
	}
}

func (h *hostile) listParameters(t *testing.T) {
	cursor := ""
	for i := range 3 {
		h.target(fmt.Sprint("https://example.com/list/", i))
	}
	a := h.api("GET", "/v1/links?limit=1", nil)
	if cursor = a.str("next_cursor"); cursor == "" {
		t.Fatalf("no cursor in %s", a.raw)
	}
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=1001", "limit=1000000000", "limit=2147483648", "limit=9223372036854775808", "limit=x", "limit=", "limit=1.5", "limit=%00", "limit=1&limit=2", "limit=0x10", "limit=+1", "limit=1e1",
		"sort=x", "sort=", "sort=-CREATED", "sort=created%00", "status=x", "status=", "status=ACTIVE", "status=active,deleted", "q=", "tag=", "tag=" + strings.Repeat("t", 101), "q=" + strings.Repeat("q", 201), "domain=", "domain=a%20b", "domain=" + strings.Repeat("d", 300),
		"cursor=", "cursor=x", "cursor=%00", "cursor=AAAA", "cursor=" + strings.Repeat("A", 1024), "cursor=" + strings.Repeat("A", 1025), "cursor=" + cursor + "A", "cursor=" + cursor[:len(cursor)-1], "cursor=" + cursor + "&sort=created", "cursor=" + cursor + "&q=x", "cursor=" + cursor + "&status=active",
		"page=0", "page=1", "offset=1", "unknown=x", "=x", "%zz=1", "q=%zz", "q=%", "q=a;b", "q[]=x", "Q=x", "&&&x",
	} {
		refusedWith(t, "list with "+query, rawAPI(t, h.process, "GET", "/v1/links?"+query, ""), "invalid_request")
	}
	for _, query := range []string{"limit=1000", "q=%27%20OR%201%3D1--", "tag=%3Cscript%3E", "q=%F0%9F%8D%9E", "domain=nobody.example", "cursor=" + url.QueryEscape(cursor) + "&limit=1", "&"} {
		if a := h.api("GET", "/v1/links?"+query, nil); a.status != http.StatusOK {
			t.Errorf("list with %s: %d %s", query, a.status, a.raw)
		}
	}
	for _, path := range []string{"/v1/links", "/v1/links:batch"} {
		refusedWith(t, "POST with a query", h.send("POST", path+"?x=1", "{}"), "invalid_request")
	}
}

func (h *hostile) statsParameters(t *testing.T) {
	link := h.link(h.target("https://example.com/stats"))
	for _, query := range []string{
		"from=x", "from=", "to=", "to=x", "from=2026-13-01", "from=2026-02-30", "to=2026-00-00", "from=2026-1-1", "from=1700000000", "from=-1", "from=2026-01-01T00:00:00", "from=2026-01-01T24:00:00Z", "from=2026-01-01T00:00:00+01:00", // + is a space
		"from=2026-01-02&to=2026-01-01", "from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from=0000-01-01", "from=99999-01-01", "to=" + strings.Repeat("2", 41), "from=2026-01-01%00",
		"interval=x", "interval=", "interval=second", "interval=DAY", "interval=day&interval=day", "time_zone=x", "time_zone=Local", "time_zone=../../../../etc/passwd", "time_zone=Europe/../UTC", "time_zone=/etc/localtime", "time_zone=%00", "time_zone=Europe%2FBerlin%00", "time_zone=" + strings.Repeat("z", 65),
		"time_zone=%2B01:00", "time_zone=Europe%5CBerlin", "by=x", "by=country,x", "by=,", "by=country;drop", "by=class%20FROM%20x", "by=" + strings.Repeat("country,", 20) + "country", "bots=x", "bots=", "bots=2", "limit=1", "x=y", "by=country&by=os",
		"from=0001-01-01&to=9999-12-31&interval=minute", "from=0001-01-01&interval=hour", "from=1900-01-01&interval=minute", "from=%zz", "from=2026-01-01;to=2026-01-02",
	} {
		refusedWith(t, "stats with "+query, rawAPI(t, h.process, "GET", link+"/stats?"+query, ""), "invalid_request")
	}
	for _, query := range []string{"from=0001-01-01&to=0001-01-02", "from=9999-12-30&to=9999-12-31", "from=1969-12-31&to=1970-01-01", "from=2100-01-01&to=2100-02-01", "from=2262-04-11&to=2262-04-13", "from=2299-12-31&to=2300-01-02", "from=1900-01-01&to=2026-01-01&interval=month", "from=2026-03-29&to=2026-03-29&interval=minute&time_zone=Europe/Berlin"} {
		// Years that ClickHouse cannot write are empty or refused, never an error of ours.
		if a := rawAPI(t, h.process, "GET", link+"/stats?"+query, ""); a.status != http.StatusOK && (a.status < 400 || a.status > 499) {
			t.Errorf("stats with %s: %d %.300s", query, a.status, a.raw)
		}
	}
	for _, tail := range []string{"/stats", "/history", ""} {
		refusedWith(t, "a link of nobody"+tail, h.api("GET", h.link("nothing-here", tail), nil), "not_found")
		refusedWith(t, "a domain of nobody"+tail, h.api("GET", "/v1/links/nobody.example/x"+tail, nil), "not_found")
	}
}

func (h *hostile) positions(t *testing.T) {
	link := h.link(h.target("https://example.com/positions"))
	reads := []string{"/v1/links", link, link + "/history", link + "/stats", "/v1/requests/x"}
	garbage := []string{"x", "link", "link/1", "link/1/", "link//1", "/1/1", "link/1/2/3", "link/-1/2", "link/1/-2", "link/8192/1", "link/4294967297/1", "link/1/18446744073709551616", "link/1/9223372036854775808", "control/0/x", "control/1/1", "nope/1/1", "LINK/1/1", "link/01/1", "link/1/1 x", "link/1/1,link/1/2", "link/0x1/1", "*", strings.Repeat("link/1/1", 1000)}
	for _, position := range garbage {
		for _, path := range reads {
			refusedWith(t, path+" at "+position, h.api("GET", path, nil, "Hoplog-Position", position), "invalid_request")
		}
		for _, call := range [][2]string{{"POST", "/v1/links"}, {"POST", "/v1/links:batch"}, {"PATCH", link}, {"DELETE", link}, {"POST", link + "/disable"}} {
			refusedWith(t, call[0]+" at "+position, h.send(call[0], call[1], "{}", "Hoplog-Position", position), "invalid_request")
		}
	}
	// A position that nothing has reached yet: the wait ends after 2 s, and the answer says to try again.
	future := func(path, position string) answer { return h.api("GET", path, nil, "Hoplog-Position", position) }
	began := time.Now()
	answers := together(2*len(reads), func(i int) answer {
		return future(reads[i/2], []string{"link/1/4611686018427387904", "control/0/9223372036854775807"}[i%2])
	})
	for i, a := range answers {
		if a.status != http.StatusServiceUnavailable || a.str("code") != "unavailable" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s in the future: %d %s", reads[i/2], a.status, a.raw)
		}
	}
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("nobody waited: %s", took)
	}
}

func (h *hostile) ifMatch(t *testing.T) {
	link := h.link(h.target("https://example.com/if-match"))
	calls := [][2]string{{"PATCH", link}, {"DELETE", link}, {"POST", link + "/disable"}, {"POST", link + "/enable"}, {"POST", link + "/ban"}, {"POST", link + "/unban"}, {"PATCH", "/v1/domains/" + h.domain()}}
	for code, tags := range map[string][]string{
		"invalid_request": {"", "1", "x", `"1"x`, `"1" "2"`, `"`, `'1'`, "**", `w/"1"`, `*, "1"`, strings.Repeat(`"1"`, 1000), strings.Repeat(`"1",`, 1000)},
		// No version of ours, so none that anything has.
		"version_mismatch": {`"x"`, `W/"1"`, `"0"`, `"-1"`, `"01"`, `"1.0"`, `"2", W/"1"`, `"18446744073709551616"`, `""`, `"*"`, `"2"`, `"999"`, `"18446744073709551615"`},
	} {
		for _, tag := range tags {
			for _, call := range calls {
				a, what := h.send(call[0], call[1], "{}", "If-Match", tag), fmt.Sprintf("%s %s If-Match %.20s", call[0], call[1], tag)
				refusedWith(t, what, a, code)
				if (a.status == http.StatusPreconditionFailed) != (code == "version_mismatch") {
					t.Errorf("%s: %d", what, a.status)
				}
			}
		}
	}
	if a := h.api("GET", link, nil); a.header.Get("ETag") != `"1"` || a.str("title") != "" {
		t.Errorf("the link afterwards: %s", a.raw)
	}
}
