package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// notUTF8 are bytes that are no UTF-8: stray, overlong, surrogates, beyond the last code point, cut off.
var notUTF8 = []string{"\xff", "\x80", "\xc0\x80", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x8d", "\xc3"}

func (h *hostile) invalidUTF8(t *testing.T) {
	link := h.link(h.target("https://example.com/utf8"))
	for _, bad := range notUTF8 {
		for _, field := range []string{"target", "title", "code", "domain", "query", "expires_at", "code_mode", "nonsense"} {
			body := `{"target":"https://example.com/","` + field + `":"` + bad + `"}`
			refusedWith(t, fmt.Sprintf("%s %q", field, bad), h.send("POST", "/v1/links", body), "invalid_request")
		}
		for _, body := range []string{"{\"tags\":[\"" + bad + "\"]}", "{\"reason\":\"" + bad + "\"}", "{\"" + bad + "\":1}", bad, "{}" + bad} {
			refusedWith(t, fmt.Sprintf("PATCH %q", body), h.send("PATCH", link, body), "invalid_request")
			refusedWith(t, fmt.Sprintf("disable %q", body), h.send("POST", link+"/disable", body), "invalid_request")
		}
		escaped := url.PathEscape(bad)
		for _, form := range []string{escaped, bad} {
			for _, path := range []string{"/v1/links/" + h.domain() + "/" + form, "/v1/links/" + form + "/x", "/v1/requests/" + form, "/v1/links/" + h.domain() + "/" + form + "/history", "/v1/links/" + h.domain() + "/" + form + "/stats"} {
				refusedWith(t, fmt.Sprintf("GET %q", path), rawAPI(t, h.process, "GET", path, ""), "not_found")
			}
			for _, path := range []string{"/v1/links/" + h.domain() + "/" + form, "/v1/links/" + form + "/x"} {
				refusedWith(t, fmt.Sprintf("DELETE %q", path), rawAPI(t, h.process, "DELETE", path, ""), "not_found")
			}
			for _, query := range []string{"/v1/links?q=", "/v1/links?tag=", "/v1/links?domain=", "/v1/links?cursor=", "/v1/links?status=", "/v1/links?sort=", "/v1/links?", link + "/stats?time_zone=", link + "/stats?from=", link + "/stats?by=", link + "/stats?bots="} {
				refusedWith(t, fmt.Sprintf("GET %s%q", query, form), rawAPI(t, h.process, "GET", query+form, ""), "invalid_request")
			}
			refusedWith(t, "reason of DELETE", rawAPI(t, h.process, "DELETE", link+"?reason="+form, ""), "invalid_request")
			v := rawVisit(t, h.process, "GET", "/"+form, h.domain())
			if v.status != http.StatusNotFound {
				t.Errorf("visit %q: %d", form, v.status)
			}
			onlyOurHeaders(t, "visit", v)
		}
		for header, code := range map[string]string{"Idempotency-Key": "invalid_request", "If-Match": "invalid_request", "Hoplog-Position": "invalid_request"} {
			refusedWith(t, fmt.Sprintf("%s %q", header, bad), rawAPI(t, h.process, "PATCH", link, `{}`, "Content-Length: 2", header+": "+bad), code)
		}
		a := raw(t, h.ports["api"], "GET /v1/links HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+bad+"\r\n\r\n")
		refusedWith(t, "the key", a, "unauthorized")
	}
}

// What visitors send in headers and query is counted for what it is, and breaks no sink: all clicks arrive.
func (h *hostile) invalidUTF8InClicks(t *testing.T) {
	code := h.target("https://example.com/clicks")
	h.eventually("it is served", func() bool {
		return rawVisit(t, h.process, "HEAD", "/"+code, h.domain()).status == http.StatusFound
	})
	visits := 0
	for _, bad := range append([]string{"\x01", "\t", "\"'`;--", strings.Repeat("x", 4000), "%ff%00", "\u202e", "NULL", "\\N", "\\x00"}, notUTF8...) {
		for _, line := range []string{"User-Agent: " + bad, "Referer: https://" + bad + ".example/", "Referer: " + bad, "X-Forwarded-For: " + bad, "Accept-Language: " + bad, "Sec-Purpose: " + bad, "Cookie: " + bad} {
			if v := rawVisit(t, h.process, "GET", "/"+code, h.domain(), line); v.status == http.StatusFound {
				visits++
			} else if v.status < 400 || v.status > 499 {
				t.Errorf("%q: %d", line, v.status)
			}
		}
		for _, query := range []string{"utm_source=" + bad, "utm_campaign=" + url.QueryEscape(bad), "src=" + bad} {
			query = strings.NewReplacer(" ", "%20", "\t", "%09").Replace(query)
			if v := rawVisit(t, h.process, "GET", "/"+code+"?"+query, h.domain()); v.status == http.StatusFound {
				visits++
			} else if v.status < 400 || v.status > 499 {
				t.Errorf("%q: %d", query, v.status)
			}
		}
	}
	h.eventually("all are counted", func() bool { return clicksOf(h.process, code) == visits })
	s := h.stats(code, "bots=true&by=referrer,utm_source,utm_campaign,device,os,browser")
	t.Logf("%d visits of %d bad ones count; they are from %d referrers", visits, s.Total.Clicks, len(s.By["referrer"]))
	var report struct{ Differences []any }
	if exit := h.cliJSON(&report, "reconcile"); exit != 0 {
		t.Errorf("reconcile: exit %d, %v", exit, report.Differences)
	}
}
