package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func (r *apiRig) testDomains(t *testing.T) {
	const path, url = "/v1/domains/" + apiTestDomain, "https://example.com/none?q=%2f"
	was := apiInto[Domain](t, r.asAdmin(t, "GET", path, nil))
	if was.Domain != apiTestDomain || !was.IsDefault || was.Owner != nil || was.NotFoundUrl != nil || len(was.Aliases) == 0 || was.Aliases[0] != apiTestAlias {
		t.Fatalf("%+v", was)
	}
	for _, missing := range []string{"/v1/domains/nowhere.example", "/v1/domains/%ff", "/v1/domains/a%20b", "/v1/domains/a%2Fb"} {
		wantProblem(t, r.asAdmin(t, "GET", missing, nil), http.StatusNotFound, ErrorCodeNotFound, "")
		wantProblem(t, r.asAdmin(t, "PATCH", missing, `{"not_found_url":null}`), http.StatusNotFound, ErrorCodeNotFound, "")
	}
	for _, body := range []string{``, `[]`, `{"owner":"ann"}`, `{"not_found_url":7}`, `{"not_found_url":null,"not_found_url":null}`, `{"not_found_url":null} x`} {
		wantProblem(t, r.asAdmin(t, "PATCH", path, body), http.StatusBadRequest, ErrorCodeInvalidRequest, "")
	}
	r.added(t, "denylist", `{"kind":"host","value":"lost.evil.example"}`)
	for target, code := range map[string]ErrorCode{
		"": ErrorCodeInvalidTarget, "example.com": ErrorCodeInvalidTarget, "ftp://example.com/": ErrorCodeInvalidTarget, "https://me@example.com/": ErrorCodeInvalidTarget,
		"https://example.com/" + strings.Repeat("x", 8192): ErrorCodeInvalidTarget,
		"http://" + apiTestAlias + "/none":                 ErrorCodeInvalidTarget, "https://" + strings.ToUpper(apiTestDomain) + "./": ErrorCodeInvalidTarget,
		"https://lost.EVIL.example/": ErrorCodeTargetBlocked,
	} {
		a := r.asAdmin(t, "PATCH", path, map[string]any{"not_found_url": target})
		want := wantProblem(t, r.asAdmin(t, "POST", "/v1/links", map[string]any{"target": target}), a.status, code, "target")
		if got := wantProblem(t, a, want.Status, code, "not_found_url"); strings.Contains(got.Detail, "the target is") {
			t.Errorf("%.50q: %s", target, got.Detail)
		}
	}

	body := map[string]any{"not_found_url": "  https://example.com/none?q=%2f "}
	first := r.asAdmin(t, "PATCH", "/v1/domains/"+apiTestAlias, body, headerKey, "domain-key")
	if now := apiInto[Domain](t, first); first.status != http.StatusOK || now.Domain != apiTestDomain || orZero(now.NotFoundUrl) != url || !strings.HasPrefix(first.header.Get(headerPosition), "control/0/") {
		t.Fatalf("%v %v", first, first.header)
	}
	if a := r.asAdmin(t, "GET", path, nil, headerPosition, first.header.Get(headerPosition)); orZero(apiInto[Domain](t, a).NotFoundUrl) != url {
		t.Error(a)
	}
	for _, unchanged := range []string{`{}`, `{"not_found_url":"` + url + `"}`} {
		if a := r.asAdmin(t, "PATCH", path, unchanged); a.status != http.StatusOK || orZero(apiInto[Domain](t, a).NotFoundUrl) != url {
			t.Errorf("%s: %v", unchanged, a)
		}
	}
	if a := r.asAdmin(t, "PATCH", path, `{"not_found_url":null}`); a.status != http.StatusOK || apiInto[Domain](t, a).NotFoundUrl != nil {
		t.Errorf("cleared: %v", a)
	}
	again := r.asAdmin(t, "PATCH", path, body, headerKey, "domain-key")
	if again.status != http.StatusOK || again.header.Get(headerReplayed) != "true" || !bytes.Equal(again.body, first.body) {
		t.Errorf("a repeat: %v", again)
	}
	wantProblem(t, r.asAdmin(t, "PATCH", path, `{"not_found_url":null}`, headerKey, "domain-key"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")

	audit := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=domains&q="+apiTestDomain, nil))
	if len(audit.Events) != 2 || audit.Events[0].Type != "domain.updated" || audit.Events[0].NotFoundUrl != nil || orZero(audit.Events[1].NotFoundUrl) != url ||
		orZero(audit.Events[1].Domain) != apiTestDomain || audit.Events[1].Actor != "key:root" {
		t.Errorf("%+v", audit)
	}
	r.testDomainVersions(t)
	r.testDomainPages(t)
}

// A caller who read a domain before it changed changes nothing.
func (r *apiRig) testDomainVersions(t *testing.T) {
	const path = "/v1/domains/" + apiTestDomain
	patch := func(url any, headers ...string) apiAnswer {
		return r.asAdmin(t, "PATCH", path, map[string]any{"not_found_url": url}, headers...)
	}
	version := func(a apiAnswer) uint64 {
		t.Helper()
		d := apiInto[Domain](t, a)
		if a.status != http.StatusOK || d.Version == 0 || a.header.Get("ETag") != etag(d.Version) {
			t.Errorf("%v with ETag %s", a, a.header.Get("ETag"))
		}
		return d.Version
	}
	read := version(r.asAdmin(t, "GET", "/v1/domains/"+apiTestAlias, nil))
	first := patch("https://example.com/1", headerIfMatch, etag(read), headerKey, "domain-version")
	changed := version(first)
	if changed <= read || first.header.Get(headerPosition) != controlPosition(changed) {
		t.Errorf("version %d after %d, at %s", changed, read, first.header.Get(headerPosition))
	}
	if again := patch("https://example.com/1", headerIfMatch, etag(read), headerKey, "domain-version"); again.header.Get(headerReplayed) != "true" || version(again) != changed {
		t.Errorf("a repeat: %v", again)
	}
	r.added(t, "denylist", `{"kind":"host","value":"version.evil.example"}`) // moves the control log, not the domain
	for _, stale := range []string{etag(read), "W/" + etag(changed), `"x"`, etag(read) + `, "18446744073709551615"`} {
		for _, to := range []any{"https://example.com/2", "https://example.com/1"} {
			refused := wantProblem(t, patch(to, headerIfMatch, stale), http.StatusPreconditionFailed, ErrorCodeVersionMismatch, "")
			if !strings.Contains(refused.Detail, "the domain is at version ") {
				t.Errorf("If-Match %s: %s", stale, refused.Detail)
			}
		}
	}
	wantProblem(t, patch(nil, headerIfMatch, "1"), http.StatusBadRequest, ErrorCodeInvalidRequest, headerIfMatch)
	wantProblem(t, r.asAdmin(t, "PATCH", "/v1/domains/nowhere.example", `{}`, headerIfMatch, "*"), http.StatusNotFound, ErrorCodeNotFound, "")
	if same := version(patch("https://example.com/1", headerIfMatch, etag(changed))); same != changed {
		t.Errorf("nothing changed, but the version: %d", same)
	}
	if now := version(r.asAdmin(t, "GET", path, nil)); now != changed {
		t.Errorf("read: %d, wanted %d", now, changed)
	}
	listed := version(patch("https://example.com/3", headerIfMatch, etag(read)+", "+etag(changed)))
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if patch(fmt.Sprintf("https://example.com/at-once/%d", i), headerIfMatch, etag(listed)).status == http.StatusOK {
				won.Add(1)
			}
		})
	}
	if all.Wait(); won.Load() != 1 {
		t.Errorf("%d of 8 changes to one version were made", won.Load())
	}
	if version(patch(nil, headerIfMatch, "*")) <= listed {
		t.Error("the version did not grow")
	}
}

func (r *apiRig) testDomainPages(t *testing.T) {
	whole := apiInto[DomainPage](t, r.asAdmin(t, "GET", "/v1/domains", nil))
	if len(whole.Domains) < 2 || whole.NextCursor != nil {
		t.Fatalf("%+v", whole)
	}
	cursor := ""
	for i, d := range whole.Domains {
		page := apiInto[DomainPage](t, r.asAdmin(t, "GET", "/v1/domains?limit=1"+cursor, nil))
		if len(page.Domains) != 1 || page.Domains[0].Domain != d.Domain || (page.NextCursor == nil) != (i == len(whole.Domains)-1) {
			t.Fatalf("page %d: %+v", i, page)
		}
		cursor = "&cursor=" + orZero(page.NextCursor)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?cursor=%21", "?nonsense=1"} {
		wantProblem(t, r.asAdmin(t, "GET", "/v1/domains"+query, nil), http.StatusBadRequest, ErrorCodeInvalidRequest, "")
	}
}
