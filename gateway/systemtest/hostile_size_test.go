package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func (h *hostile) tooLong(t *testing.T) {
	pad := func(prefix string, n int) string { return prefix + strings.Repeat("a", n-len(prefix)) }
	longest := pad("https://example.com/", 8192)
	if v := h.seen(t, h.target(longest)); v.status != http.StatusFound || v.header.Get("Location") != longest {
		t.Errorf("the longest target: %d, %d bytes", v.status, len(v.header.Get("Location")))
	}
	for body, want := range map[string]string{
		`{"target":` + quoted(pad("https://example.com/", 8193)) + `}`:                                                      "invalid_target",
		`{"target":` + quoted("https://example.com/"+strings.Repeat("ä", 8192/6)+strings.Repeat("a", 20)) + `}`:             "invalid_target", // short as typed, long when encoded
		`{"target":` + quoted("https://"+strings.Repeat("a.", 200)+"example/") + `}`:                                        "invalid_target",
		`{"target":` + quoted("https://"+strings.Repeat("a", 64)+".example/") + `}`:                                         "invalid_target",
		`{"target":` + quoted(pad("https://example.com/", 1<<19)) + `}`:                                                     "invalid_target",
		`{"target":"https://example.com/","code":` + quoted(strings.Repeat("é", 65)) + `}`:                                  "invalid_code",
		`{"target":"https://example.com/","code":` + quoted(strings.Repeat("a", 100_000)) + `}`:                             "invalid_code",
		`{"target":"https://example.com/","code":` + quoted("a"+strings.Repeat("\u0301", 1000)) + `}`:                       "invalid_code",
		`{"target":"https://example.com/","title":` + quoted(strings.Repeat("t", 1025)) + `}`:                               "invalid_request",
		`{"target":"https://example.com/","tags":` + quoted(strings.Repeat("t", 1025)) + `}`:                                "invalid_request",
		`{"target":"https://example.com/",` + quoted(strings.Repeat("f", 100_000)) + `:1}`:                                  "invalid_request",
		`{"target":"https://example.com/","tags":[` + strings.Repeat(`"x",`, 100_000) + `"x"]}`:                             "invalid_request",
		`{"target":"https://example.com/","domain":` + quoted(strings.Repeat("d", 100_000)) + `}`:                           "invalid_request",
		`{"target":"https://example.com/","cache_ttl":` + strings.Repeat("9", 100_000) + `}`:                                "invalid_request",
		`{"target":"https://example.com/","title":"x"` + strings.Repeat(" ", 500_000) + strings.Repeat("}", 1) + `trailing`: "invalid_request",
	} {
		a := h.send("POST", "/v1/links", body)
		refusedWith(t, fmt.Sprintf("%.80s (%d bytes)", body, len(body)), a, want)
		if len(a.raw) > 2000 {
			t.Errorf("%.80s: an answer of %d bytes", body, len(a.raw))
		}
	}
	a := h.send("POST", "/v1/links", fields{"target": "https://example.com/", "code": strings.Repeat("é", 64), "title": strings.Repeat("t", 1024)})
	if a.status != http.StatusCreated {
		t.Errorf("the longest code and title: %d %s", a.status, a.raw)
	}
	link := h.link(h.target("https://example.com/long"))
	for _, action := range []string{"/disable", "/enable", "/ban", "/unban"} {
		refusedWith(t, action, h.send("POST", link+action, fields{"reason": strings.Repeat("r", 1001)}), "invalid_request")
	}
	refusedWith(t, "reason of a PATCH", h.send("PATCH", link, fields{"title": "x", "reason": strings.Repeat("r", 1001)}), "invalid_request")
	refusedWith(t, "reason of a DELETE", h.send("DELETE", link+"?reason="+strings.Repeat("r", 1001), nil), "invalid_request")
	refusedWith(t, "Idempotency-Key", h.send("POST", "/v1/links", fields{"target": "https://example.com/"}, "Idempotency-Key", strings.Repeat("k", 256)), "invalid_request")
	if a := h.send("POST", "/v1/links", fields{"target": "https://example.com/"}, "Idempotency-Key", strings.Repeat("k", 255)); a.status != http.StatusCreated {
		t.Errorf("the longest Idempotency-Key: %d %s", a.status, a.raw)
	}
	for _, path := range []string{"/v1/requests/" + strings.Repeat("k", 256), "/v1/requests/" + strings.Repeat("k", 30_000), "/v1/links/" + h.domain() + "/" + strings.Repeat("c", 30_000), "/v1/links/" + strings.Repeat("d", 30_000) + "/c", "/" + strings.Repeat("p", 30_000), strings.Repeat("/p", 15_000)} {
		refusedWith(t, fmt.Sprintf("%.40s", path), h.send("GET", path, nil), "not_found")
	}
}

func (h *hostile) tooLarge(t *testing.T) {
	link := h.link(h.target("https://example.com/large"))
	space := strings.Repeat(" ", 1<<20)
	for call, body := range map[string]string{
		"POST /v1/links": `{"target":"https://example.com/large"}`, "PATCH " + link: `{"title":"large"}`,
		"POST " + link + "/disable": `{}`, "POST " + link + "/enable": `{}`, "POST " + link + "/ban": `{}`, "POST " + link + "/unban": `{}`,
	} {
		method, path, _ := strings.Cut(call, " ")
		refusedWith(t, call, h.send(method, path, body+space), "too_large")
		refusedWith(t, call+" in chunks", h.chunked(t, method, path, body+space), "too_large")
		fits := body + space[len(body):]
		if a := h.send(method, path, fits); a.status != http.StatusOK && a.status != http.StatusCreated {
			t.Errorf("%s with 1 MiB: %d %s", call, a.status, a.raw)
		}
	}
	batch := `{"links":[{"target":"https://example.com/large"}]}`
	refusedWith(t, "a batch of 16 MiB and a byte", h.send("POST", "/v1/links:batch", batch+strings.Repeat(space, 16)[len(batch)-1:]), "too_large")
	refusedWith(t, "a batch of 16 MiB and a byte in chunks", h.chunked(t, "POST", "/v1/links:batch", batch+strings.Repeat(space, 16)[len(batch)-1:]), "too_large")
	if a := h.send("POST", "/v1/links:batch", batch+strings.Repeat(space, 16)[len(batch):]); a.status != http.StatusOK {
		t.Errorf("a batch of 16 MiB: %d %.300s", a.status, a.raw)
	}
	row := `{"target":"https://example.com/row"}`
	refusedWith(t, "1001 rows", h.send("POST", "/v1/links:batch", `{"links":[`+strings.Repeat(row+",", 1000)+row+`]}`), "invalid_request")
	refusedWith(t, "no rows", h.send("POST", "/v1/links:batch", `{"links":[]}`), "invalid_request")
	a := h.send("POST", "/v1/links:batch", `{"links":[`+strings.Repeat(row+",", 999)+row+`]}`)
	if results, _ := a.body["results"].([]any); a.status != http.StatusOK || len(results) != 1000 || strings.Count(a.raw, `"status":201`) != 1000 {
		t.Errorf("1000 rows: %d, %d results %.300s", a.status, len(results), a.raw)
	}
}

// chunked sends a body without saying how long it is.
func (h *hostile) chunked(t *testing.T, method, path, body string) answer {
	t.Helper()
	return rawAPI(t, h.process, method, path, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), "Transfer-Encoding: chunked")
}

// Request lines and headers that no server takes are refused before anyone looks at them, and end the connection.
func (h *hostile) largeRequestLines(t *testing.T) {
	const huge = 80 << 10
	long := strings.Repeat("a", huge)
	many := strings.Repeat("X-Many: 1\r\n", huge/10)
	code := h.target("https://example.com/lines")
	for what, a := range map[string]answer{
		"api path":        rawAPI(t, h.process, "GET", "/v1/links/"+long, ""),
		"api query":       rawAPI(t, h.process, "GET", "/v1/links?q="+long, ""),
		"api header":      rawAPI(t, h.process, "GET", "/v1/links", "", "X-Long: "+long),
		"api headers":     rawAPI(t, h.process, "GET", "/v1/links", "", strings.TrimSuffix(many, "\r\n")),
		"api method":      rawAPI(t, h.process, long, "/v1/links", ""),
		"visit path":      rawVisit(t, h.process, "GET", "/"+long, h.domain()),
		"visit query":     rawVisit(t, h.process, "GET", "/"+code+"?q="+long, h.domain()),
		"visit header":    rawVisit(t, h.process, "GET", "/"+code, h.domain(), "X-Long: "+long),
		"visit headers":   rawVisit(t, h.process, "GET", "/"+code, h.domain(), strings.TrimSuffix(many, "\r\n")),
		"visit method":    rawVisit(t, h.process, long, "/"+code, h.domain()),
		"visit host":      rawVisit(t, h.process, "GET", "/"+code, long),
		"visit with body": rawVisit(t, h.process, "GET", "/"+code, h.domain(), "Content-Length: 99999999999"),
	} {
		// A reset that overtakes the answer counts as a refusal too.
		if a.status != 0 && (a.status < 400 || a.status > 499) {
			t.Errorf("%s: %d %.200q", what, a.status, a.raw)
		}
		onlyOurHeaders(t, what, a)
	}
	for _, n := range []int{4 << 10, 12 << 10} {
		if v := rawVisit(t, h.process, "GET", "/"+code+"?q="+strings.Repeat("q", n), h.domain()); v.status != http.StatusFound || len(v.header.Get("Location")) < n {
			t.Errorf("a query of %d bytes: %d", n, v.status)
		}
	}
}
