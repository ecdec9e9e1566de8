package systemtest

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// The tests in behaviour*_test.go are the cases of testdata/cases/behaviour.json, one each, named after its id.

// together makes n calls at the same moment and returns their answers in the order of the calls.
func together(n int, call func(i int) answer) []answer {
	answers := make([]answer, n)
	var calls sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		calls.Go(func() {
			<-start
			answers[i] = call(i)
		})
	}
	close(start)
	calls.Wait()
	return answers
}

// statuses counts answers by status and, for errors, code.
func statuses(answers []answer) map[string]int {
	counts := map[string]int{}
	for _, a := range answers {
		name := fmt.Sprint(a.status)
		if a.status >= 400 {
			name += " " + a.str("code")
		}
		counts[name]++
	}
	return counts
}

// codesOf returns the different codes of created or repeated links.
func codesOf(answers []answer) (codes []string) {
	for _, a := range answers {
		codes = append(codes, a.str("code"))
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func TestB01TrailingSlash(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b01", "code": "b01-abc"})
	with, without := p.visit("/"+code+"/"), p.visit("/"+code)
	if with.status != without.status || with.header.Get("Location") != "https://example.com/b01" || without.header.Get("Location") != "https://example.com/b01" {
		t.Errorf("/abc/ %d %q, /abc %d %q", with.status, with.header.Get("Location"), without.status, without.header.Get("Location"))
	}
}

func TestB03SameCodeAtOnce(t *testing.T) {
	p := shared(t)
	answers := together(20, func(i int) answer {
		return p.create(fields{"target": fmt.Sprint("https://example.com/b03/", i), "code": "b03-x"})
	})
	if got := statuses(answers); got["201"] != 1 || got["409 code_taken"] != 19 {
		t.Fatalf("%v, want one 201 and nineteen 409 code_taken", got)
	}
	winner := slices.IndexFunc(answers, func(a answer) bool { return a.status == http.StatusCreated })
	if v := p.served("/b03-x"); v.header.Get("Location") != fmt.Sprint("https://example.com/b03/", winner) {
		t.Errorf("the winner was %d, visitors get %q", winner, v.header.Get("Location"))
	}
}

func TestB04GeneratedCodesAtOnce(t *testing.T) {
	p := shared(t)
	answers := together(200, func(i int) answer { return p.create(fields{"target": "https://example.com/b04"}) })
	if got := statuses(answers); got["201"] != 200 {
		t.Fatal(got)
	}
	if codes := codesOf(answers); len(codes) != 200 {
		t.Errorf("%d different codes", len(codes))
	}
}

func TestB05DedupeAtOnce(t *testing.T) {
	p := shared(t)
	answers := together(10, func(i int) answer { return p.create(fields{"target": "https://example.com/b05", "dedupe": true}) })
	if got := statuses(answers); got["201"] != 1 || got["200"] != 9 || len(codesOf(answers)) != 1 {
		t.Errorf("%v with the codes %v, want one 201, nine 200, one code", got, codesOf(answers))
	}
}

func TestB06NewTagAtOnce(t *testing.T) {
	p := shared(t)
	answers := together(20, func(i int) answer {
		return p.create(fields{"target": fmt.Sprint("https://example.com/b06/", i), "tags": []string{"b06-new"}})
	})
	if got := statuses(answers); got["201"] != 20 {
		t.Fatal(got)
	}
	a := p.api("GET", "/v1/links?tag=b06-new", nil, "Hoplog-Position", answers[19].header.Get("Hoplog-Position"))
	links, _ := a.body["links"].([]any)
	for _, l := range links {
		if tags, _ := l.(fields)["tags"].([]any); len(tags) != 1 || tags[0] != "b06-new" {
			t.Errorf("tags %v", tags)
		}
	}
	if len(links) != 20 {
		t.Errorf("the tag has %d links: %s", len(links), a.raw)
	}
}

func TestB07Edit(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b07/old"})
	first := p.visit("/" + code)
	if got := first.header.Get("Cache-Control"); got != "private, no-cache, no-store, must-revalidate" || first.header.Get("Pragma") != "no-cache" || first.header.Get("Expires") != "0" {
		t.Errorf("the first answer may be cached: %v", first.header)
	}
	if a := p.api("PATCH", p.link(code), fields{"target": "https://example.com/b07/new"}); a.status != http.StatusOK || a.header.Get("ETag") != `"2"` {
		t.Fatalf("%d %v %s", a.status, a.header, a.raw)
	}
	p.eventually("the new target is served", func() bool { return p.visit("/"+code).header.Get("Location") == "https://example.com/b07/new" })
}

func TestB11ZonedExpiry(t *testing.T) {
	p := shared(t)
	a := p.create(fields{"target": "https://example.com/", "expires_at": "2031-05-01T10:48:00+03:00"})
	read := p.api("GET", p.link(a.str("code")), nil)
	if a.str("expires_at") != "2031-05-01T07:48:00Z" || read.str("expires_at") != a.str("expires_at") {
		t.Errorf("created %s, read %s", a.raw, read.raw)
	}
}

func TestB12BadExpiry(t *testing.T) {
	a := shared(t).create(fields{"target": "https://example.com/", "expires_at": "x"})
	refusedWith(t, "expires_at x", a, "invalid_request")
	if a.status != http.StatusBadRequest || a.str("field") != "expires_at" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestB14NoMoreExpiry(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/", "expires_at": "2001-05-01T10:48:00Z"})
	if v := p.visit("/" + code); v.status != http.StatusGone {
		t.Errorf("expired: %d", v.status)
	}
	a := p.api("PATCH", p.link(code), `{"expires_at":null}`)
	if left, there := a.body["expires_at"]; a.status != http.StatusOK || !there || left != nil || a.str("status") != "active" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	p.eventually("it is served again", func() bool { return p.visit("/"+code).status == http.StatusFound })
}

func TestB29DomainWithPort(t *testing.T) {
	p := shared(t)
	a := p.create(fields{"target": "https://example.com/b29", "domain": p.domain()})
	if a.status != http.StatusCreated || a.str("domain") != p.domain() || a.str("short_url") != "http://"+p.domain()+"/"+a.str("code") {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if v := p.served("/" + a.str("code")); v.status != http.StatusFound || v.header.Get("Location") != "https://example.com/b29" {
		t.Errorf("%d %v", v.status, v.header)
	}
}

func TestB30DefaultDomain(t *testing.T) {
	p := shared(t)
	first := p.create(fields{"target": "https://example.com/", "code": "b30"})
	if first.status != http.StatusCreated || first.str("domain") != p.domain() {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	for _, domain := range []string{p.domain(), p.ports["redirect"], "LOCALHOST" + p.domain()[len("localhost"):]} {
		refusedWith(t, "the same code on "+domain, p.create(fields{"target": "https://example.com/", "code": "b30", "domain": domain}), "code_taken")
	}
	refusedWith(t, "a domain of nobody", p.create(fields{"target": "https://example.com/", "code": "b30", "domain": "other.example"}), "domain_not_owned")
}
