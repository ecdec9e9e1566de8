package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func testAPIValues(t *testing.T, r *apiRig) {
	for _, c := range []struct {
		field string
		value any
	}{
		{"expires_at", "x"}, {"expires_at", ""}, {"expires_at", "2031-05-01"}, {"expires_at", "2031-05-01T10:48:00"}, {"expires_at", "2031-02-30T00:00:00Z"},
		{"expires_at", "2031-05-01T24:00:00Z"}, {"expires_at", "2031-05-01T10:48:00+3:00"}, {"expires_at", "0000-01-01T00:00:00Z"}, {"expires_at", "1970-01-01T00:00:00Z"},
		{"not_before", "99999-01-01T00:00:00Z"}, {"not_before", "2031-05-01 10:48:00Z"}, {"expires_at", 7}, {"expires_at", []string{}},
		{"title", strings.Repeat("ä", 1025)}, {"title", "a\u0000b"}, {"title", "a\nb"}, {"title", 1},
		{"tags", []string{""}}, {"tags", []string{"a", "a"}}, {"tags", []string{strings.Repeat("x", 101)}}, {"tags", "a"}, {"tags", []string{"a\tb"}},
		{"redirect_status", 200}, {"redirect_status", 0}, {"redirect_status", -301}, {"redirect_status", 303}, {"redirect_status", 1 << 40}, {"redirect_status", "301"},
		{"cache_ttl", -1}, {"cache_ttl", 31536001}, {"cache_ttl", int64(1) << 40}, {"cache_ttl", 1.5}, {"cache_ttl", "60"}, {"cache_ttl", true},
		{"query", "none"}, {"query", ""}, {"query", "KEEP"}, {"query", 1},
		{"code_length", 4}, {"code_length", 65}, {"code_length", 0}, {"code_length", "7"}, {"code_mode", "custom"}, {"code_mode", 1}, {"dedupe", "yes"}, {"dedupe", 1}, {"domain", 1}, {"code", 1},
	} {
		field := c.field
		wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", field: c.value}), 400, ErrorCodeInvalidRequest, field)
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "not_before": "2031-01-01T00:00:00Z", "expires_at": "2031-01-01T00:00:00Z"}),
		400, ErrorCodeInvalidRequest, "expires_at")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "tags": make([]string, 51)}), 400, ErrorCodeInvalidRequest, "tags")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "tags": []any{"a", 1}}), 400, ErrorCodeInvalidRequest, "tags[1]")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"title": "x"}), 400, ErrorCodeInvalidRequest, "target")
	most := r.create(t, map[string]any{"target": "https://example.com/", "title": strings.Repeat("ä", 1024), "cache_ttl": 31536000})
	if len(most.Title) != 2048 || most.CacheTtl != 31536000 {
		t.Errorf("%+v", most)
	}
	for _, target := range []string{"javascript:alert(1)", "https://example.com/\r\nSet-Cookie:x=1", "https://user@example.com/", "", "https://" + strings.Repeat("a", 9000)} {
		wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": target}), 400, ErrorCodeInvalidTarget, "target")
	}
}

func testAPIBodies(t *testing.T, r *apiRig) {
	for name, c := range map[string]struct{ body, field string }{
		"cut":                {`{`, ""},
		"bad UTF-8":          {"{\"target\":\"https://example.com/\xff\"}", ""},
		"array":              {`[]`, ""},
		"empty":              {``, ""},
		"white space":        {"\n ", ""},
		"wrong type":         {`{"target":7}`, "target"},
		"unknown field":      {`{"target":"https://example.com/","tarqet":1}`, "tarqet"},
		"unknown, huge":      {`{"` + strings.Repeat("x", 10000) + `":1}`, strings.Repeat("x", 64) + "…"},
		"case counts":        {`{"Target":"https://example.com/"}`, "Target"},
		"twice":              {`{"target":"https://example.com/","target":"https://example.com/"}`, "target"},
		"twice, escaped":     {`{"target":"https://example.com/","targ\u0065t":"https://example.com/"}`, "target"},
		"two values":         {`{"target":"https://example.com/"} {}`, ""},
		"null":               {`null`, ""},
		"string":             {`"x"`, ""},
		"trailing comma":     {`{"target":"https://example.com/",}`, ""},
		"comment":            {`{/**/"target":"https://example.com/"}`, ""},
		"single quotes":      {`{'target':'https://example.com/'}`, ""},
		"NUL":                {"\x00", ""},
		"NUL after":          {"{\"target\":\"https://example.com/\"}\x00", ""},
		"byte order mark":    {"\uFEFF{}", ""},
		"raw newline":        {"{\"target\":\"https://example.com/\n\"}", "target"},
		"lone surrogate":     {`{"target":"https://example.com/\ud800"}`, "target"},
		"swapped surrogates": {`{"target":"https://example.com/\udc00\ud800"}`, "target"},
		"bad escape":         {`{"target":"https://example.com/\x41"}`, "target"},
		"nested deep":        {strings.Repeat(`[`, 100000), ""},
		"nested in a field":  {`{"tags":` + strings.Repeat(`[`, 100000), "tags[0]"},
	} {
		a := r.call(t, "POST", "/v1/links", c.body, "Content-Type", "application/json")
		if p := wantProblem(t, a, 400, ErrorCodeInvalidRequest, ""); orZero(p.Field) != c.field {
			t.Errorf("%s names %q, wanted %q", name, orZero(p.Field), c.field)
		}
	}
	if a := r.call(t, "POST", "/v1/links", "\uFEFF{}"); !strings.Contains(string(a.body), "byte order mark") {
		t.Errorf("a byte order mark: %v", a)
	}
	if a := r.call(t, "POST", "/v1/links", ` {"target" : "https:\/\/example.com\/\u00e4\ud83c\udf5e" , "title":"\"\\\b"} `+"\n", "Content-Type", "text/plain"); a.status != 400 {
		t.Errorf("a control character in the title: %v", a)
	}
	odd := r.call(t, "POST", "/v1/links", ` {"target" : "https:\/\/example.com\/\u00e4\ud83c\udf5e" , "title":"\"\\\/"} `+"\n", "Content-Type", "text/plain")
	if link := apiInto[Link](t, odd); odd.status != 201 || link.Target != "https://example.com/%C3%A4%F0%9F%8D%9E" || link.Title != `"\/` {
		t.Errorf("escapes: %v", odd)
	}
	pad := func(n int) string {
		const head, tail = `{"title":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", pad(maxBody)), 400, ErrorCodeInvalidRequest, "target")
	wantProblem(t, r.call(t, "POST", "/v1/links", pad(maxBody+1)), 413, ErrorCodeTooLarge, "")
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", pad(maxBody+1)), 400, ErrorCodeInvalidRequest, "title")
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", pad(maxBatchBody+1)), 413, ErrorCodeTooLarge, "")
	unsized, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.server.URL+"/v1/links", io.LimitReader(endlessSpaces{}, maxBody+1))
	if err != nil {
		t.Fatal(err)
	}
	unsized.Header.Set("Authorization", "Bearer "+apiTestAlice)
	response, err := http.DefaultClient.Do(unsized)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too large without a length: %d", response.StatusCode)
	}
}

type endlessSpaces struct{}

func (endlessSpaces) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

func testAPIParameters(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/par"})
	for query, field := range map[string]string{"?interval=year": "interval", "?time_zone=Mars/Phobos": "time_zone", "?time_zone=Local": "time_zone", "?time_zone=../../etc/passwd": "time_zone",
		"?from=x": "from", "?to=2026-13-01": "to", "?from=2026-05-02&to=2026-05-01T00:00:00Z": "from", "?bots=maybe": "bots", "?limit=1": "limit", "?by=shoe_size": "by"} {
		wantProblem(t, r.call(t, "GET", apiPath(link, "/stats"+query), nil), 400, ErrorCodeInvalidRequest, field)
	}
	wantProblem(t, r.call(t, "GET", apiPath(link, "?x=1"), nil), 400, ErrorCodeInvalidRequest, "x")
	wantProblem(t, r.call(t, "POST", "/v1/links?x=1", `{"target":"https://example.com/"}`), 400, ErrorCodeInvalidRequest, "x")
	wantProblem(t, r.call(t, "DELETE", apiPath(link, "?reason="+strings.Repeat("x", 1001)), nil), 400, ErrorCodeInvalidRequest, "reason")
}

func testAPIRoutes(t *testing.T, r *apiRig) {
	for _, c := range []struct{ method, path, allow string }{
		{"PUT", "/v1/links", "GET HEAD POST"}, {"HEAD", "/v1/links:batch", "POST"}, {"GET", "/v1/links:batch", "POST"}, {"POST", "/v1/links/a/b", "DELETE GET HEAD PATCH"},
		{"GET", "/v1/links/a/b/ban", "POST"}, {"POST", "/v1/openapi.yaml", "GET HEAD"}, {"POST", "/", "GET HEAD"}, {"BREW", "/v1/links", "GET HEAD POST"},
	} {
		a := r.call(t, c.method, c.path, nil)
		allow := strings.FieldsFunc(a.header.Get("Allow"), func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(allow)
		if a.status != 405 || strings.Join(allow, " ") != c.allow {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, a.status, a.header.Get("Allow"))
		}
		if c.method != "HEAD" {
			wantProblem(t, a, 405, ErrorCodeMethodNotAllowed, "")
		}
	}
	for _, path := range []string{"/x", "/v1", "/v1/", "/v1/links/", "/v1/links/a", "/v1/links//b", "/v1/links/a/", "/v1/links/a/b/", "/v1/links/a/b/x", "/v1/links:x", "/v1//links", "/V1/links", "/v1/requests/", "/v1/links/a/b/history/x", "/%2e%2e/"} {
		wantProblem(t, r.call(t, "GET", path, nil), 404, ErrorCodeNotFound, "")
	}
	for _, raw := range []string{"GET /v1/links/a/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/links\x00 HTTP/1.1\r\nHost: x\r\n\r\n", "POST /v1/links HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + apiTestAlice +
		"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "GET //evil HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if status := apiRawStatus(t, r, raw); status < 200 || status >= 500 {
			t.Errorf("%q: %d", raw, status)
		}
	}
}

// HEAD is answered as GET is, without the body, wherever there is a GET.
func testAPIHead(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/head"})
	described, err := theDescription()
	if err != nil {
		t.Fatal(err)
	}
	routes := []string{"/"}
	for operation := range described.query {
		if route, read := strings.CutPrefix(operation, "GET "); read {
			routes = append(routes, route)
		}
	}
	if len(routes) < 15 {
		t.Fatalf("only %q are read", routes)
	}
	for _, route := range routes {
		path := strings.NewReplacer(":domain/:code", link.Domain+"/"+link.Code, ":domain", apiTestDomain, ":id", "none", ":key", "none").Replace(route)
		for _, query := range []string{"", "?nonsense=1"} {
			for _, key := range []string{apiTestAdmin, "wrong"} {
				get, head := r.call(t, "GET", path+query, nil, "Key", key), r.call(t, "HEAD", path+query, nil, "Key", key)
				if head.status != get.status || len(head.body) > 0 || len(get.body) == 0 {
					t.Errorf("%s%s: GET %d, HEAD %d with %d bytes", path, query, get.status, head.status, len(head.body))
				}
				for _, name := range []string{"Content-Type", "ETag", "Cache-Control", "Www-Authenticate"} {
					if head.header.Get(name) != get.header.Get(name) {
						t.Errorf("%s%s: %s is %q by HEAD, %q by GET", path, query, name, head.header.Get(name), get.header.Get(name))
					}
				}
			}
		}
	}
}

// apiRawStatus sends bytes as they are.
func apiRawStatus(t *testing.T, r *apiRig, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func testAPIKeys(t *testing.T, r *apiRig) {
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + apiTestAlice, apiTestAlice, "Bearer  ", "Bearer " + strings.Repeat("x", 10000)} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.server.URL+"/v1/links?bad=1", strings.NewReader("{"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", header)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		a := apiAnswer{response.StatusCode, response.Header, body}
		if wantProblem(t, a, 401, ErrorCodeUnauthorized, ""); !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%q: %v", header, a.header)
		}
	}
	if a := r.call(t, "GET", "/v1/links", nil, "X-Request-Id", "mine-1"); a.status != 200 || a.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("%v", a.header)
	}
	problem := wantProblem(t, r.call(t, "GET", "/v1/links/"+apiTestDomain+"/none", nil, "X-Request-Id", "mine-2"), 404, ErrorCodeNotFound, "")
	if orZero(problem.Instance) != "mine-2" {
		t.Errorf("%+v", problem)
	}
	if a := r.call(t, "GET", "/v1/links", nil, "X-Request-Id", "not\tfine"); len(a.header.Get("X-Request-Id")) != 36 {
		t.Errorf("%v", a.header)
	}
}

func testAPIDescription(t *testing.T, r *apiRig) {
	asYAML, asJSON := r.call(t, "GET", "/v1/openapi.yaml", nil, "Key", "none"), r.call(t, "GET", "/v1/openapi.json", nil, "Key", "none")
	var document any
	if err := yaml.Unmarshal(asYAML.body, &document); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(document)
	if err != nil || asYAML.status != 200 || asJSON.status != 200 || !bytes.Equal(want, asJSON.body) || !bytes.Contains(want, []byte(`"/v1/links:batch"`)) {
		t.Errorf("the two forms differ, or are none: %d %d, %v", asYAML.status, asJSON.status, err)
	}
}

func testAPIPage(t *testing.T, r *apiRig) {
	a := r.call(t, "GET", "/", nil, "Key", "none")
	policy := a.header.Get("Content-Security-Policy")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(string(a.body), "/v1/openapi.yaml") ||
		!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", a.status, a.header)
	}
	for _, tag := range []string{"<script", "<style"} {
		if strings.Count(string(a.body), tag) != 1 {
			t.Errorf("the policy covers one %s>", tag)
		}
	}
}

// The path of a link is one for every domain that there can be (RFC 3986 has no brackets in a path).
func TestLinkPathOfAnAddress(t *testing.T) {
	if got := linkPath("[2001:db8::1]:8081", "a+b/ä"); got != "/v1/links/%5B2001:db8::1%5D:8081/a%2Bb%2F%C3%A4" {
		t.Error(got)
	}
}
