package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hoplog/hoplog/events"
)

// TestAPI runs the API on real parts: one rig for all, each part with links of its own.
func TestAPI(t *testing.T) {
	r := newAPIRig(t)
	for _, part := range []struct {
		name string
		test func(t *testing.T, r *apiRig)
	}{
		{"create", testAPICreate},
		{"create from nothing but a target", testAPIDefaults},
		{"idempotency", testAPIIdempotency},
		{"dedupe", testAPIDedupe},
		{"codes", testAPICodes},
		{"domains", testAPIDomains},
		{"update", testAPIUpdate},
		{"clearing fields", testAPIClear},
		{"if-match", testAPIIfMatch},
		{"life of a link", testAPILife},
		{"history", testAPIHistory},
		{"batch", testAPIBatch},
		{"list", testAPIList},
		{"requests", testAPIRequests},
		{"owners", testAPIOwners},
		{"positions", testAPIPositions},
		{"parallel", testAPIParallel},
		{"values", testAPIValues},
		{"bodies", testAPIBodies},
		{"parameters", testAPIParameters},
		{"routes", testAPIRoutes},
		{"head", testAPIHead},
		{"keys", testAPIKeys},
		{"description", testAPIDescription},
		{"page", testAPIPage},
		{"stats", testAPIStats},
		{"incomplete", testAPIIncomplete},
		{"knows a link before its domain", testAPIKnowsLinkBeforeDomain},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, r) })
	}
}

func testAPICreate(t *testing.T, r *apiRig) {
	a := r.call(t, "POST", "/v1/links", map[string]any{"target": " https://example.com/one?a=%2f ", "title": "One", "tags": []string{"x", "ä"}, "redirect_status": 308,
		"query": "drop", "cache_ttl": 60, "not_before": "2031-05-01T10:48:00+03:00", "expires_at": "2031-05-02T10:48:00.123456789+03:00"}, "Idempotency-Key", "c-1")
	link := apiInto[Link](t, a)
	if a.status != http.StatusCreated || link.Target != "https://example.com/one?a=%2f" || link.Title != "One" || !slices.Equal(link.Tags, []string{"x", "ä"}) ||
		link.RedirectStatus != 308 || link.Query != LinkQueryDrop || link.CacheTtl != 60 || link.Owner != "alice" || link.Version != 1 ||
		link.Status != LinkStatusScheduled || link.Domain != apiTestDomain || link.ShortUrl != "http://"+apiTestDomain+"/"+link.Code || len(link.Code) != 7 {
		t.Errorf("%v", a)
	}
	for _, want := range []string{`"not_before":"2031-05-01T07:48:00Z"`, `"expires_at":"2031-05-02T07:48:00.123456Z"`, `a=%2f"`} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("%v lacks %s", a, want)
		}
	}
	if h := a.header; h.Get("ETag") != `"1"` || h.Get("Location") != apiPath(link, "") || h.Get("Idempotency-Key") != "c-1" || h.Get("Content-Type") != "application/json" ||
		h.Get("Idempotency-Replayed") != "" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h)
	}
	if p, err := events.ParsePosition(a.header.Get("Hoplog-Position")); err != nil || p.Stream != events.StreamLink || p.Seq == 0 || p.Bucket != events.BucketOf(link.Domain, link.Code) {
		t.Errorf("position %v, %v", p, err)
	}
	got := r.call(t, "GET", a.header.Get("Location"), nil)
	if got.status != http.StatusOK || !bytes.Equal(got.body, a.body) || got.header.Get("ETag") != `"1"` {
		t.Errorf("read back: %v, created %v", got, a)
	}
}

func testAPIDefaults(t *testing.T, r *apiRig) {
	a := r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/?a=1&b=<2>"})
	fields := apiInto[map[string]any](t, a)
	want := []string{"cache_ttl", "code", "created_at", "domain", "expired_url", "expires_at", "not_before", "owner", "query", "redirect_status", "short_url", "status", "tags",
		"target", "title", "updated_at", "version"}
	if names := slices.Sorted(maps.Keys(fields)); !slices.Equal(names, want) {
		t.Errorf("fields %v", names)
	}
	if fields["title"] != "" || fields["expires_at"] != nil || fields["not_before"] != nil || fields["query"] != "keep" || fields["redirect_status"] != 302.0 ||
		fields["cache_ttl"] != 0.0 || fields["status"] != "active" || fmt.Sprint(fields["tags"]) != "[]" {
		t.Errorf("defaults %v", a)
	}
	if !strings.Contains(string(a.body), `"https://example.com/?a=1&b=<2>"`) {
		t.Errorf("the target is not readable: %s", a.body)
	}
	if len(a.header.Get("Idempotency-Key")) < 16 {
		t.Errorf("no key was made: %v", a.header)
	}
	all := r.call(t, "POST", "/v1/links", `{"target":"https://example.com/n","title":null,"tags":null,"redirect_status":null,"query":null,"cache_ttl":null,"not_before":null,"expires_at":null,
		"domain":null,"code":null,"code_length":null,"code_mode":null,"dedupe":null}`)
	if all.status != http.StatusCreated {
		t.Errorf("null for everything optional: %v", all)
	}
	for length, mode := range map[int]string{5: "sequential", 12: "random"} {
		if link := r.create(t, map[string]any{"target": "https://example.com/l", "code_length": length, "code_mode": mode}); len(link.Code) != length {
			t.Errorf("%d characters asked for: %q", length, link.Code)
		}
	}
}

func testAPIIdempotency(t *testing.T, r *apiRig) {
	body := map[string]any{"target": "https://example.com/idem"}
	first := r.call(t, "POST", "/v1/links", body, "Idempotency-Key", "i-1")
	second := r.call(t, "POST", "/v1/links", body, "Idempotency-Key", "i-1")
	if first.status != 201 || second.status != 200 || second.header.Get("Idempotency-Replayed") != "true" || !bytes.Equal(first.body, second.body) {
		t.Errorf("first %v, second %v %v", first, second, second.header)
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/other"}, "Idempotency-Key", "i-1"), 422, ErrorCodeIdempotencyKeyReused, "")
	link := apiInto[Link](t, first)
	r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "later"})
	if replayed := r.call(t, "POST", "/v1/links", body, "Idempotency-Key", "i-1"); !bytes.Equal(replayed.body, first.body) || replayed.header.Get("ETag") != `"1"` {
		t.Errorf("a replay tells another version: %v", replayed)
	}
	if other := r.call(t, "POST", "/v1/links", body, "Idempotency-Key", "i-1", "Key", apiTestBob); other.status != 201 {
		t.Errorf("another owner's key: %v", other)
	}
	taken := map[string]any{"target": "https://example.com/", "code": link.Code}
	wantProblem(t, r.call(t, "POST", "/v1/links", taken, "Idempotency-Key", "i-2"), 409, ErrorCodeCodeTaken, "code")
	again := r.call(t, "POST", "/v1/links", taken, "Idempotency-Key", "i-2")
	if wantProblem(t, again, 409, ErrorCodeCodeTaken, "code"); again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a refusal is not replayed: %v", again.header)
	}
	for _, bad := range []string{"", "a b", "ä", strings.Repeat("k", 256), "a\tb"} {
		wantProblem(t, r.call(t, "POST", "/v1/links", body, "Idempotency-Key", bad), 400, ErrorCodeInvalidRequest, "Idempotency-Key")
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", body, "Idempotency-Key", "one", "Idempotency-Key", "two"), 400, ErrorCodeInvalidRequest, "Idempotency-Key")
	if long := r.call(t, "POST", "/v1/links", body, "Idempotency-Key", strings.Repeat("~", 255)); long.status != 201 {
		t.Errorf("255 characters: %v", long)
	}
}

func testAPIDedupe(t *testing.T, r *apiRig) {
	body := map[string]any{"target": "https://example.com/dedupe", "dedupe": true}
	first, second := r.call(t, "POST", "/v1/links", body), r.call(t, "POST", "/v1/links", body)
	if first.status != 201 || second.status != 200 || second.header.Get("Idempotency-Replayed") != "" || apiInto[Link](t, first).Code != apiInto[Link](t, second).Code {
		t.Errorf("%v, %v", first, second)
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "dedupe": true, "code": "dd"}), 400, ErrorCodeInvalidRequest, "dedupe")
}

func testAPICodes(t *testing.T, r *apiRig) {
	for code, path := range map[string]string{"T&C": "T%26C", "a+b": "a%2Bb", "a.b_c~d": "a.b_c~d", "caf\u00e9": "caf%C3%A9", "🍞": "%F0%9F%8D%9E", "x@y": "x%40y"} {
		a := r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/code", "code": code})
		if a.status != 201 || a.header.Get("Location") != "/v1/links/"+apiTestDomain+"/"+path {
			t.Errorf("%q: %v, %v", code, a, a.header)
			continue
		}
		if got := r.call(t, "GET", a.header.Get("Location"), nil); got.status != 200 || apiInto[Link](t, got).Code != code {
			t.Errorf("%q read back: %v", code, got)
		}
	}
	if got := r.call(t, "GET", "/v1/links/"+apiTestDomain+"/a+b", nil); got.status != 200 {
		t.Errorf("a plus in a path is a plus: %v", got)
	}
	if got := r.call(t, "GET", "/v1/links/"+apiTestDomain+"/cafe%CC%81", nil); got.status != 200 {
		t.Errorf("decomposed text names the same code: %v", got)
	}
	for _, code := range []string{"", "/", "..", "a b", "a%2Fb", "a\u0000c", strings.Repeat("x", 65), "?", "pаypal"} {
		wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "code": code}), 400, ErrorCodeInvalidCode, "code")
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "code": "robots.txt"}), 400, ErrorCodeReservedCode, "code")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "code": "lenny", "code_length": 5}), 400, ErrorCodeInvalidRequest, "code_length")
	for _, path := range []string{"a%2Fb", "%2F", "%C0", "a%00b", "a%25", "..%2f..", "%20", strings.Repeat("x", 65)} {
		wantProblem(t, r.call(t, "GET", "/v1/links/"+apiTestDomain+"/"+path, nil), 404, ErrorCodeNotFound, "")
	}
}

func testAPIDomains(t *testing.T, r *apiRig) {
	for _, typed := range []string{apiTestDomain, "LocalHost:8081", "localhost.:8081", apiTestAlias} {
		link := r.create(t, map[string]any{"target": "https://example.com/d", "domain": typed})
		if link.Domain != apiTestDomain {
			t.Errorf("%q is not the default domain: %+v", typed, link)
		}
		if got := r.call(t, "GET", "/v1/links/"+strings.ReplaceAll(typed, ":", "%3A")+"/"+link.Code, nil); got.status != 200 {
			t.Errorf("read by %q: %v", typed, got)
		}
	}
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "domain": "unknown.example"}), 403, ErrorCodeDomainNotOwned, "domain")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "domain": apiTestForeign}), 403, ErrorCodeDomainNotOwned, "domain")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "domain": "a b"}), 400, ErrorCodeInvalidRequest, "domain")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "http://" + apiTestAlias + "/x"}), 400, ErrorCodeInvalidTarget, "target")
	if bobs := apiInto[Link](t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "domain": apiTestForeign}, "Key", apiTestBob)); bobs.ShortUrl != "https://"+apiTestForeign+"/"+bobs.Code {
		t.Errorf("%+v", bobs)
	}
	for _, path := range []string{"unknown.example/x", "a%20b/x", "%ff/x", "localhost:99999/x"} {
		wantProblem(t, r.call(t, "GET", "/v1/links/"+path, nil), 404, ErrorCodeNotFound, "")
	}
}

func testAPIUpdate(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/u", "title": "kept"})
	a := r.call(t, "PATCH", apiPath(link, ""), map[string]any{"target": "https://example.com/new", "reason": "moved"}, "Idempotency-Key", "u-1")
	got := apiInto[Link](t, a)
	if a.status != 200 || got.Version != 2 || got.Target != "https://example.com/new" || got.Title != "kept" || a.header.Get("ETag") != `"2"` ||
		orZero(got.PropagationMs) <= 0 || a.header.Get("Hoplog-Position") == "" || !got.UpdatedAt.After(got.CreatedAt) {
		t.Errorf("%v %v", a, a.header)
	}
	again := r.call(t, "PATCH", apiPath(link, ""), `{"reason":"moved","target":"https://example.com/new"}`, "Idempotency-Key", "u-1")
	if again.status != 200 || again.header.Get("Idempotency-Replayed") != "true" || !bytes.Equal(again.body, a.body) {
		t.Errorf("replay: %v %v", again, again.header)
	}
	for _, same := range []string{`{}`, `{"target":"https://example.com/new"}`} {
		if a := r.call(t, "PATCH", apiPath(link, ""), same); a.status != 200 || apiInto[Link](t, a).Version != 2 {
			t.Errorf("no change: %v", a)
		}
	}
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"code": "x"}), 400, ErrorCodeInvalidRequest, "code")
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"target": "ftp://x"}), 400, ErrorCodeInvalidTarget, "target")
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"target": nil}), 400, ErrorCodeInvalidRequest, "target")
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": strings.Repeat("x", 1025)}), 400, ErrorCodeInvalidRequest, "title")
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"reason": strings.Repeat("x", 1001)}), 400, ErrorCodeInvalidRequest, "reason")
	wantProblem(t, r.call(t, "PATCH", "/v1/links/"+apiTestDomain+"/no-such", map[string]any{"title": "x"}), 404, ErrorCodeNotFound, "")
}

func testAPIClear(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/c", "title": "T", "tags": []string{"a"}, "redirect_status": 301, "query": "reject", "cache_ttl": 9,
		"not_before": "2020-01-01T00:00:00Z", "expires_at": "2040-01-01T00:00:00Z"})
	a := r.call(t, "PATCH", apiPath(link, ""), `{"title":null,"tags":null,"redirect_status":null,"query":null,"cache_ttl":null,"not_before":null,"expires_at":null}`)
	got := apiInto[Link](t, a)
	if got.Version != 2 || got.Title != "" || len(got.Tags) != 0 || got.RedirectStatus != 302 || got.Query != LinkQueryKeep || got.CacheTtl != 0 || got.NotBefore != nil || got.ExpiresAt != nil ||
		got.Target != link.Target {
		t.Errorf("%v", a)
	}
}

func testAPIIfMatch(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/m"})
	if a := r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "2"}, "If-Match", `"1"`); a.status != 200 {
		t.Errorf("%v", a)
	}
	late := wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "3"}, "If-Match", `"1"`), 412, ErrorCodeVersionMismatch, "")
	if !strings.Contains(late.Detail, "version 2") {
		t.Errorf("412 does not tell the version: %s", late.Detail)
	}
	wantProblem(t, r.call(t, "POST", apiPath(link, "/disable"), `{}`, "If-Match", `"1"`), 412, ErrorCodeVersionMismatch, "")
	wantProblem(t, r.call(t, "DELETE", apiPath(link, ""), nil, "If-Match", `"1"`), 412, ErrorCodeVersionMismatch, "")
	if a := r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "3"}, "If-Match", "*"); a.status != 200 {
		t.Errorf("%v", a)
	}
	for _, bad := range []string{"", "3", `"3`} {
		wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "4"}, "If-Match", bad), 400, ErrorCodeInvalidRequest, "If-Match")
	}
	for _, other := range []string{`W/"3"`, `"x"`, `"03"`, `"1", "2"`} {
		wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "4"}, "If-Match", other), 412, ErrorCodeVersionMismatch, "")
	}
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "4"}, "If-Match", `"3"`, "If-Match", `"4"`), 400, ErrorCodeInvalidRequest, "If-Match")
	if a := r.call(t, "PATCH", apiPath(link, ""), map[string]any{"title": "4"}, "If-Match", `"9", W/"2" ,"3"`); a.status != 200 || a.header.Get("ETag") != `"4"` {
		t.Errorf("%v", a)
	}
	// A link's status follows the clock without a new version, so a read is always answered in full.
	for _, none := range []string{`"4"`, `W/"4"`, `"3", "4"`, "*", "4"} {
		if a := r.call(t, "GET", apiPath(link, ""), nil, "If-None-Match", none); a.status != 200 || apiInto[Link](t, a).Version != 4 {
			t.Errorf("If-None-Match %s: %v", none, a)
		}
	}
}

func testAPILife(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/life", "code": "life"})
	for i, step := range []struct{ verb, body, status string }{
		{"disable", `{"reason":"why"}`, "disabled"}, {"enable", ``, "active"}, {"ban", `{"reason":"why","legal":true}`, "banned"}, {"unban", `{}`, "active"},
	} {
		a := r.call(t, "POST", apiPath(link, "/"+step.verb), step.body)
		got := apiInto[Link](t, a)
		if a.status != 200 || string(got.Status) != step.status || got.Version != uint64(i+2) || a.header.Get("ETag") != etag(got.Version) || got.PropagationMs == nil {
			t.Errorf("%s: %v", step.verb, a)
		}
	}
	wantProblem(t, r.call(t, "POST", apiPath(link, "/disable"), `{"legal":true}`), 400, ErrorCodeInvalidRequest, "legal")
	wantProblem(t, r.call(t, "POST", apiPath(link, "/ban"), `{"reason":1}`), 400, ErrorCodeInvalidRequest, "reason")
	gone := r.call(t, "DELETE", apiPath(link, "?reason=done"), nil, "Idempotency-Key", "life-delete")
	if got := apiInto[Link](t, gone); gone.status != 200 || got.Status != LinkStatusDeleted || got.Version != 6 {
		t.Errorf("delete: %v", gone)
	}
	if again := r.call(t, "DELETE", apiPath(link, "?reason=done"), nil, "Idempotency-Key", "life-delete"); again.status != 200 || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("delete again: %v", again)
	}
	wantProblem(t, r.call(t, "DELETE", apiPath(link, ""), nil), 404, ErrorCodeNotFound, "")
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), `{"title":"x"}`), 404, ErrorCodeNotFound, "")
	wantProblem(t, r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/", "code": "life"}), 409, ErrorCodeCodeTaken, "code")
	if got := apiInto[Link](t, r.call(t, "GET", apiPath(link, ""), nil)); got.Status != LinkStatusDeleted {
		t.Errorf("the tombstone: %+v", got)
	}
}

func testAPIHistory(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/h", "tags": []string{"a"}})
	r.call(t, "PATCH", apiPath(link, ""), `{"target":"https://example.com/h2","cache_ttl":5,"reason":"moved"}`)
	r.call(t, "POST", apiPath(link, "/ban"), `{"reason":"bad"}`, "Key", apiTestAdmin)
	a := r.call(t, "GET", apiPath(link, "/history"), nil)
	history := apiInto[History](t, a)
	if a.status != 200 || len(history.Events) != 3 {
		t.Fatalf("%v", a)
	}
	for i, want := range []struct{ kind, actor, reason, changes string }{
		{"link.created", "key:a", "", `{"cache_ttl":{"from":null,"to":0},"query":{"from":null,"to":"keep"},"redirect_status":{"from":null,"to":302},"tags":{"from":null,"to":["a"]},"target":{"from":null,"to":"https://example.com/h"}}`},
		{"link.updated", "key:a", "moved", `{"cache_ttl":{"from":0,"to":5},"target":{"from":"https://example.com/h","to":"https://example.com/h2"}}`},
		{"link.banned", "key:root", "bad", `{"banned":{"from":false,"to":true}}`},
	} {
		e := history.Events[i]
		changes, err := json.Marshal(e.Changes)
		if err != nil || e.Version != uint64(i+1) || e.Type != want.kind || e.Actor != want.actor || e.Reason != want.reason || string(changes) != want.changes || len(e.Hash) != 64 {
			t.Errorf("event %d: %+v, changes %s, wanted %+v", i, e, changes, want)
		}
		if p, err := events.ParsePosition(e.Position); err != nil || p.Bucket != events.BucketOf(link.Domain, link.Code) {
			t.Errorf("position %v, %v", e.Position, err)
		}
	}
}

func testAPIBatch(t *testing.T, r *apiRig) {
	rows := []map[string]any{{"target": "https://example.com/b0"}, {"target": "nonsense"}, {"target": "https://example.com/b2", "code": "b2"},
		{"target": "https://example.com/b3", "expires_at": "x"}, {"target": "https://example.com/b4", "domain": "unknown.example"}, {"title": "no target"}}
	a := r.call(t, "POST", "/v1/links:batch", map[string]any{"links": rows}, "Idempotency-Key", "b-1")
	results := apiInto[BatchResults](t, a).Results
	if a.status != 200 || len(results) != len(rows) || a.header.Get("Idempotency-Key") != "b-1" {
		t.Fatalf("%v", a)
	}
	for i, want := range []struct {
		status int
		code   ErrorCode
		field  string
	}{{201, "", ""}, {400, ErrorCodeInvalidTarget, "target"}, {201, "", ""}, {400, ErrorCodeInvalidRequest, "expires_at"}, {403, ErrorCodeDomainNotOwned, "domain"}, {400, ErrorCodeInvalidRequest, "target"}} {
		got := results[i]
		if got.Status != want.status || want.code == "" && (got.Link == nil || got.Link.Target != rows[i]["target"] || got.Error != nil) ||
			want.code != "" && (got.Error == nil || got.Error.Code != want.code || orZero(got.Error.Field) != want.field || got.Link != nil) {
			t.Errorf("row %d: %+v %+v, wanted %v", i, got, got.Error, want)
		}
	}
	again := apiInto[BatchResults](t, r.call(t, "POST", "/v1/links:batch", map[string]any{"links": rows}, "Idempotency-Key", "b-1")).Results
	if again[0].Status != 200 || !orZero(again[0].Replayed) || again[0].Link.Code != results[0].Link.Code || again[4].Status != 403 {
		t.Errorf("the batch again: %+v", again)
	}
	many := make([]map[string]any, 1001)
	for i := range many {
		many[i] = map[string]any{"target": fmt.Sprintf("https://example.com/%d", i)}
	}
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", map[string]any{"links": many}), 400, ErrorCodeInvalidRequest, "links")
	var full []BatchResult
	apiEventually(t, "1000 rows are made", func() bool { // a writer may be short of leased ids for a moment
		full = apiInto[BatchResults](t, r.call(t, "POST", "/v1/links:batch", map[string]any{"links": many[:1000]}, "Idempotency-Key", "b-1000")).Results
		return !slices.ContainsFunc(full, func(row BatchResult) bool { return row.Status == 503 })
	})
	for i, row := range full {
		if row.Status > 201 || row.Link.Target != many[i]["target"] {
			t.Fatalf("row %d of 1000: %+v %+v", i, row, row.Error)
		}
	}
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", `{"links":[]}`), 400, ErrorCodeInvalidRequest, "links")
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", `{}`), 400, ErrorCodeInvalidRequest, "links")
	wantProblem(t, r.call(t, "POST", "/v1/links:batch", `{"links":[{"target":"https://example.com/"},{"tarqet":1}]}`), 400, ErrorCodeInvalidRequest, "links[1].tarqet")
}

func testAPIList(t *testing.T, r *apiRig) {
	var codes []string
	for i := range 5 {
		codes = append(codes, r.create(t, map[string]any{"target": "https://example.com/list", "title": fmt.Sprintf("Länge %d", i), "tags": []string{"list"}}).Code)
	}
	seen, cursor := []string(nil), ""
	for range 10 {
		page := apiInto[LinkPage](t, r.call(t, "GET", "/v1/links?tag=list&limit=2&sort=created"+cursor, nil))
		for _, link := range page.Links {
			seen = append(seen, link.Code)
		}
		if page.AsOf.IsZero() {
			t.Errorf("no as_of: %+v", page)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if !slices.Equal(seen, codes) {
		t.Errorf("pages give %v, created %v", seen, codes)
	}
	for query, want := range map[string]int{"?tag=list": 5, "?tag=list&q=l%C3%84NGE%203": 1, "?tag=list&domain=LOCALHOST:8081": 5, "?tag=list&domain=" + apiTestAlias: 5, "?tag=list&domain=unknown.example": 0,
		"?tag=list&status=active": 5, "?tag=list&status=deleted": 0, "?tag=none": 0} {
		if page := apiInto[LinkPage](t, r.call(t, "GET", "/v1/links"+query, nil)); len(page.Links) != want {
			t.Errorf("%s: %d links, wanted %d", query, len(page.Links), want)
		}
	}
	if a := r.call(t, "GET", "/v1/links?tag=list", nil, "Key", apiTestAdmin); string(a.body[:10]) != `{"as_of":"` || len(apiInto[LinkPage](t, a).Links) != 0 {
		t.Errorf("an administrator lists its own links: %v", a)
	}
	for query, field := range map[string]string{"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?limit=1&limit=2": "limit", "?limit=": "limit", "?limit=99999999999": "limit",
		"?status=nope": "status", "?sort=target": "sort", "?cursor=nope": "cursor", "?cursor=": "cursor", "?page=0": "page", "?q=%ff": "q", "?q=%zz": "", "?q=a;b": "", "?tag=" + strings.Repeat("x", 101): "tag",
		"?domain=a%20b": "domain", "?tag=": "tag"} {
		wantProblem(t, r.call(t, "GET", "/v1/links"+query, nil), 400, ErrorCodeInvalidRequest, field)
	}
	next := apiInto[LinkPage](t, r.call(t, "GET", "/v1/links?tag=list&limit=2", nil)).NextCursor
	wantProblem(t, r.call(t, "GET", "/v1/links?tag=other&limit=2&cursor="+*next, nil), 400, ErrorCodeInvalidRequest, "cursor")
}

func testAPIRequests(t *testing.T, r *apiRig) {
	key := "r/1?#%"
	a := r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/r"}, "Idempotency-Key", key)
	report := apiInto[RequestReport](t, r.call(t, "GET", "/v1/requests/"+escapeSegment(key), nil))
	if report.Key != key || report.State != RequestStateSucceeded || report.Link == nil || report.Link.Code != apiInto[Link](t, a).Code || orZero(report.Status) != 200 ||
		orZero(report.Position) != a.header.Get("Hoplog-Position") || report.AsOf.IsZero() || report.Rows != nil {
		t.Errorf("%+v", report)
	}
	r.call(t, "POST", "/v1/links", map[string]any{"target": "http://" + apiTestDomain}, "Idempotency-Key", "r-2")
	failed := apiInto[RequestReport](t, r.call(t, "GET", "/v1/requests/r-2", nil))
	if failed.State != RequestStateFailed || failed.Error == nil || failed.Error.Code != ErrorCodeInvalidTarget || orZero(failed.Status) != 400 || failed.Link != nil {
		t.Errorf("%+v", failed)
	}
	for _, caller := range []string{apiTestBob, apiTestAdmin} {
		if other := apiInto[RequestReport](t, r.call(t, "GET", "/v1/requests/r-2", nil, "Key", caller)); other.State != RequestStateUnknown || other.AsOf.IsZero() {
			t.Errorf("%s sees %+v", caller, other)
		}
	}
	rows := []map[string]any{{"target": "https://example.com/r0"}, {"target": "http://" + apiTestDomain}, {"target": "never sent"}}
	r.call(t, "POST", "/v1/links:batch", map[string]any{"links": rows}, "Idempotency-Key", "r-3")
	batch := apiInto[RequestReport](t, r.call(t, "GET", "/v1/requests/r-3", nil))
	if list := orZero(batch.Rows); batch.State != RequestStateSucceeded || len(list) != 2 || list[0].Row != 0 || list[0].Link == nil || list[1].Row != 1 || list[1].State != RequestStateFailed {
		t.Errorf("%+v", batch)
	}
	for _, path := range []string{"%20", "%ff", strings.Repeat("k", 256), "a%00"} {
		wantProblem(t, r.call(t, "GET", "/v1/requests/"+path, nil), 404, ErrorCodeNotFound, "")
	}
}

func testAPIOwners(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/mine"})
	for _, call := range [][2]string{{"GET", ""}, {"GET", "/history"}, {"GET", "/stats"}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/ban"}} {
		body := any(nil)
		if call[0] == "PATCH" {
			body = `{"title":"x"}`
		}
		wantProblem(t, r.call(t, call[0], apiPath(link, call[1]), body, "Key", apiTestBob), 404, ErrorCodeNotFound, "")
	}
	if a := r.call(t, "GET", apiPath(link, ""), nil, "Key", apiTestAdmin); a.status != 200 {
		t.Errorf("an administrator sees every link: %v", a)
	}
	if a := r.call(t, "POST", apiPath(link, "/ban"), `{"reason":"spam"}`, "Key", apiTestAdmin); a.status != 200 || apiInto[Link](t, a).Owner != "alice" {
		t.Errorf("an administrator bans every link: %v", a)
	}
}

func testAPIPositions(t *testing.T, r *apiRig) {
	a := r.call(t, "POST", "/v1/links", map[string]any{"target": "https://example.com/p", "tags": []string{"position"}})
	position, link := a.header.Get("Hoplog-Position"), apiInto[Link](t, a)
	if page := apiInto[LinkPage](t, r.call(t, "GET", "/v1/links?tag=position", nil, "Hoplog-Position", position)); len(page.Links) != 1 {
		t.Errorf("the list does not hold what was written: %+v", page)
	}
	p, err := events.ParsePosition(position)
	if err != nil {
		t.Fatal(err)
	}
	for _, reached := range []string{position, "control/0/1"} {
		if got := r.call(t, "GET", apiPath(link, ""), nil, "Hoplog-Position", reached); got.status != 200 {
			t.Errorf("%s: %v", reached, got)
		}
		if got := r.call(t, "PATCH", apiPath(link, ""), `{"title":"`+reached+`"}`, "Hoplog-Position", reached); got.status != 200 {
			t.Errorf("write after %s: %v", reached, got)
		}
	}
	p.Seq += 1000
	far := r.call(t, "GET", apiPath(link, ""), nil, "Hoplog-Position", p.String())
	if wantProblem(t, far, 503, ErrorCodeUnavailable, "Hoplog-Position"); far.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", far.header)
	}
	wantProblem(t, r.call(t, "PATCH", apiPath(link, ""), `{}`, "Hoplog-Position", "control/0/99999"), 503, ErrorCodeUnavailable, "Hoplog-Position")
	for _, bad := range []string{"", "x", "link/1", "link/1/-1", "other/1/1", "link/9999/1", "link/01/1", "link/1/1 "} {
		if bad == "link/1/1 " {
			continue // trimmed by every HTTP client and server
		}
		wantProblem(t, r.call(t, "GET", apiPath(link, ""), nil, "Hoplog-Position", bad), 400, ErrorCodeInvalidRequest, "Hoplog-Position")
		wantProblem(t, r.call(t, "POST", "/v1/links", `{"target":"https://example.com/"}`, "Hoplog-Position", bad), 400, ErrorCodeInvalidRequest, "Hoplog-Position")
	}
}

func testAPIParallel(t *testing.T, r *apiRig) {
	count := func(n int, body func(i int) map[string]any, key func(i int) []string) (statuses map[int]int, codes map[string]int) {
		statuses, codes = map[int]int{}, map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				a := r.call(t, "POST", "/v1/links", body(i), key(i)...)
				mu.Lock()
				defer mu.Unlock()
				statuses[a.status]++
				codes[fmt.Sprint(apiInto[map[string]any](t, a)["code"])]++
			})
		}
		all.Wait()
		return statuses, codes
	}
	none := func(int) []string { return nil }
	same := func(fields map[string]any) func(int) map[string]any {
		return func(int) map[string]any { return fields }
	}
	if statuses, _ := count(20, same(map[string]any{"target": "https://example.com/", "code": "race"}), none); statuses[201] != 1 || statuses[409] != 19 {
		t.Errorf("one code, 20 times: %v", statuses)
	}
	if statuses, codes := count(200, same(map[string]any{"target": "https://example.com/"}), none); statuses[201] != 200 || len(codes) != 200 {
		t.Errorf("200 generated codes: %v, %d codes", statuses, len(codes))
	}
	if statuses, codes := count(10, same(map[string]any{"target": "https://example.com/twin", "dedupe": true}), none); statuses[201] != 1 || statuses[200] != 9 || len(codes) != 1 {
		t.Errorf("dedupe: %v %v", statuses, codes)
	}
	if statuses, codes := count(20, same(map[string]any{"target": "https://example.com/key"}), func(int) []string { return []string{"Idempotency-Key", "race"} }); statuses[201] != 1 || statuses[200] != 19 || len(codes) != 1 {
		t.Errorf("one key: %v %v", statuses, codes)
	}
}
