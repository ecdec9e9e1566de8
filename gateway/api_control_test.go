package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/readmodels/control"
)

// asAdmin calls the API with an admin key.
func (r *apiRig) asAdmin(t testing.TB, method, path string, body any, headers ...string) apiAnswer {
	t.Helper()
	return r.call(t, method, path, body, append([]string{"Key", apiTestAdmin}, headers...)...)
}

func (r *apiRig) added(t testing.TB, list, body string, headers ...string) ListEntry {
	t.Helper()
	a := r.asAdmin(t, "POST", "/v1/"+list, body, headers...)
	if a.status != http.StatusCreated || !strings.HasPrefix(a.header.Get(headerPosition), "control/0/") || a.header.Get(headerKey) == "" {
		t.Fatalf("%s %s: %v %v", list, body, a, a.header)
	}
	return apiInto[ListEntry](t, a)
}

func TestAPIControlPlane(t *testing.T) {
	r := newAPIRig(t)
	t.Run("admins only", r.testControlAdmins)
	t.Run("bad requests", r.testControlRefusals)
	t.Run("entries", r.testControlEntries)
	t.Run("pages", r.testControlPages)
	t.Run("request keys", r.testControlKeys)
	t.Run("target blocked", r.testTargetBlocked)
	t.Run("keys", r.testAPIKeys)
	t.Run("domains", r.testDomains)
	t.Run("switches", r.testSwitches)
	t.Run("pulse", r.testPulse)
}

func (r *apiRig) testControlAdmins(t *testing.T) {
	for _, call := range []string{"GET /v1/denylist", "POST /v1/denylist", "GET /v1/denylist/x", "DELETE /v1/denylist/x", "GET /v1/allowlist", "POST /v1/allowlist",
		"DELETE /v1/allowlist/x", "GET /v1/trust", "POST /v1/trust", "DELETE /v1/trust/x", "GET /v1/switches", "POST /v1/switches/low/close", "POST /v1/switches/low/open", "GET /v1/audit",
		"GET /v1/keys", "POST /v1/keys", "GET /v1/keys/x", "DELETE /v1/keys/x", "GET /v1/domains", "GET /v1/domains/" + apiTestDomain, "PATCH /v1/domains/" + apiTestDomain} {
		method, path, _ := strings.Cut(call, " ")
		wantProblem(t, r.call(t, method, path, nil), http.StatusForbidden, ErrorCodeForbidden, "")
	}
}

func (r *apiRig) testControlRefusals(t *testing.T) {
	for _, c := range []struct{ list, body, field string }{
		{"denylist", `{}`, "kind"}, {"denylist", `{"kind":"host"}`, "value"}, {"denylist", `{"kind":"owner","value":"ann"}`, "kind"},
		{"denylist", `{"kind":"host","value":"https://evil.example/"}`, "value"}, {"denylist", `{"kind":"network","value":"0.0.0.0/0"}`, "value"},
		{"denylist", `{"kind":"code","value":"nowhere.example/x"}`, "value"}, {"denylist", `{"kind":"host","value":"x.example","reason":"spam"}`, "reason"},
		{"denylist", `{"kind":"host","value":"x.example","tier":"low"}`, "tier"}, {"denylist", `{"kind":"host","value":"x.example","expires_at":"soon"}`, "expires_at"},
		{"denylist", `{"kind":"host","value":"x.example","expires_at":"2001-01-01T00:00:00Z"}`, "expires_at"}, {"denylist", `{"kind":"host","value":"x.example","note":"` + strings.Repeat("x", 1001) + `"}`, "note"},
		{"allowlist", `{"kind":"host_suffix","value":"x.example"}`, "kind"}, {"allowlist", `{"value":"x.example","reason":"legal"}`, "reason"},
		{"trust", `{"kind":"owner","value":"ann"}`, "tier"}, {"trust", `{"kind":"owner","value":"","tier":"low"}`, "value"}, {"trust", `{"kind":"host","value":"x.example","tier":"low"}`, "kind"},
		{"denylist", `{"kind":"host","value":1}`, "value"}, {"denylist", `{"kind":"host","kind":"host","value":"x.example"}`, "kind"},
	} {
		wantProblem(t, r.asAdmin(t, "POST", "/v1/"+c.list, c.body), http.StatusBadRequest, ErrorCodeInvalidRequest, c.field)
	}
	for _, query := range []string{"?kind=owner", "?limit=0", "?limit=1001", "?cursor=%21", "?nonsense=1", "?limit=x"} {
		wantProblem(t, r.asAdmin(t, "GET", "/v1/denylist"+query, nil), http.StatusBadRequest, ErrorCodeInvalidRequest, "")
	}
	for _, query := range []string{"?of=links", "?cursor=x", "?limit=0"} {
		wantProblem(t, r.asAdmin(t, "GET", "/v1/audit"+query, nil), http.StatusBadRequest, ErrorCodeInvalidRequest, "")
	}
	wantProblem(t, r.asAdmin(t, "GET", "/v1/denylist/0123", nil), http.StatusNotFound, ErrorCodeNotFound, "")
	wantProblem(t, r.asAdmin(t, "DELETE", "/v1/denylist/0123", nil), http.StatusNotFound, ErrorCodeNotFound, "")
	wantProblem(t, r.asAdmin(t, "POST", "/v1/switches/middle/close", nil), http.StatusNotFound, ErrorCodeNotFound, "")
}

func (r *apiRig) testControlEntries(t *testing.T) {
	e := r.added(t, "denylist", `{"kind":"host_suffix","value":"*.Bad.Example","reason":"legal","note":"order 5","expires_at":"2099-01-01T00:00:00+01:00"}`)
	if e.Kind != "host_suffix" || e.Value != "bad.example" || *e.Reason != DenyReasonLegal || e.Note != "order 5" || !e.Active || e.Actor != "key:root" || e.Tier != nil ||
		!e.ExpiresAt.Equal(time.Date(2098, 12, 31, 23, 0, 0, 0, time.UTC)) || e.List != "denylist" {
		t.Errorf("%+v", e)
	}
	if a := r.asAdmin(t, "GET", "/v1/denylist/"+e.Id, nil, headerPosition, e.Position); a.status != http.StatusOK || apiInto[ListEntry](t, a).Value != "bad.example" {
		t.Error(a)
	}
	wantProblem(t, r.asAdmin(t, "GET", "/v1/allowlist/"+e.Id, nil), http.StatusNotFound, ErrorCodeNotFound, "")
	same := r.asAdmin(t, "POST", "/v1/denylist", `{"kind":"host_suffix","value":"bad.example","reason":"legal","note":"order 5","expires_at":"2098-12-31T23:00:00Z"}`)
	if same.status != http.StatusOK || apiInto[ListEntry](t, same).Position != e.Position {
		t.Errorf("the same again: %v", same)
	}
	if changed := r.added(t, "denylist", `{"kind":"host_suffix","value":"bad.example"}`); changed.Id != e.Id || *changed.Reason != DenyReasonAbuse || changed.ExpiresAt != nil {
		t.Errorf("%+v", changed)
	}
	if code := r.added(t, "denylist", `{"kind":"code","value":"`+apiTestAlias+`/Abc"}`); code.Value != apiTestDomain+"/Abc" {
		t.Errorf("%+v", code)
	}
	if trust := r.added(t, "trust", `{"kind":"owner","value":"alice","tier":"low"}`); *trust.Tier != TrustTierLow || trust.Reason != nil {
		t.Errorf("%+v", trust)
	}
	a := r.asAdmin(t, "DELETE", "/v1/denylist/"+e.Id+"?note=settled", nil, headerKey, "remove-1")
	if removed := apiInto[ListEntry](t, a); a.status != http.StatusOK || removed.Active || removed.Value != "bad.example" {
		t.Error(a)
	}
	again := r.asAdmin(t, "DELETE", "/v1/denylist/"+e.Id+"?note=settled", nil, headerKey, "remove-1")
	if again.status != http.StatusOK || again.header.Get(headerReplayed) != "true" || !bytes.Equal(again.body, a.body) {
		t.Errorf("a repeat: %v, first %v", again, a)
	}
	wantProblem(t, r.asAdmin(t, "DELETE", "/v1/denylist/"+e.Id, nil), http.StatusNotFound, ErrorCodeNotFound, "")
	audit := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=denylist&q=BAD.ex", nil))
	if len(audit.Events) != 3 || audit.Events[0].Type != "denylist.removed" || audit.Events[0].Note != "settled" || audit.Events[0].Actor != "key:root" || *audit.Events[2].Reason != DenyReasonLegal {
		t.Errorf("%+v", audit)
	}
}

func (r *apiRig) testControlPages(t *testing.T) {
	const n = 7
	for i := range n {
		r.added(t, "allowlist", fmt.Sprintf(`{"value":"h%d.page.example"}`, i))
	}
	seen, cursor := []string{}, ""
	for range n {
		page := apiInto[ListPage](t, r.asAdmin(t, "GET", "/v1/allowlist?limit=3&q=page.example"+cursor, nil))
		for _, e := range page.Entries {
			seen = append(seen, e.Value)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if fmt.Sprint(seen) != "[h0.page.example h1.page.example h2.page.example h3.page.example h4.page.example h5.page.example h6.page.example]" {
		t.Errorf("%v", seen)
	}
	first := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=allowlist&limit=4", nil))
	second := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=allowlist&limit=4&cursor="+*first.NextCursor, nil))
	if len(first.Events) != 4 || *first.Events[0].Value != "h6.page.example" || len(second.Events) != 3 || *second.Events[0].Value != "h2.page.example" || second.NextCursor != nil {
		t.Errorf("%+v\n%+v", first, second)
	}
}

func (r *apiRig) testControlKeys(t *testing.T) {
	body := `{"kind":"host","value":"keys.example"}`
	first := r.added(t, "denylist", body, headerKey, "control-key")
	again := r.asAdmin(t, "POST", "/v1/denylist", body, headerKey, "control-key")
	if again.status != http.StatusOK || again.header.Get(headerReplayed) != "true" || apiInto[ListEntry](t, again).Position != first.Position {
		t.Errorf("a repeat: %v", again)
	}
	wantProblem(t, r.asAdmin(t, "POST", "/v1/denylist", `{"kind":"host","value":"others.example"}`, headerKey, "control-key"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")
	wantProblem(t, r.asAdmin(t, "POST", "/v1/links", `{"target":"https://example.com/"}`, headerKey, "control-key"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")
	wantProblem(t, r.asAdmin(t, "POST", "/v1/links:batch", `{"links":[{"target":"https://example.com/"}]}`, headerKey, "control-key"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")
	if a := r.asAdmin(t, "POST", "/v1/links", `{"target":"https://example.com/"}`, headerKey, "link-key"); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	wantProblem(t, r.asAdmin(t, "POST", "/v1/denylist", `{"kind":"host","value":"others.example"}`, headerKey, "link-key"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")
	report := apiInto[RequestReport](t, r.asAdmin(t, "GET", "/v1/requests/control-key", nil))
	if report.State != RequestStateSucceeded || *report.Position != first.Position || *report.Status != http.StatusOK {
		t.Errorf("%+v", report)
	}
	if report := apiInto[RequestReport](t, r.call(t, "GET", "/v1/requests/control-key", nil)); report.State != RequestStateUnknown {
		t.Errorf("of another owner: %+v", report)
	}
}

func (r *apiRig) testTargetBlocked(t *testing.T) {
	there := r.create(t, map[string]any{"target": "https://blocked.example/old"})
	entry := r.added(t, "denylist", `{"kind":"host_suffix","value":"blocked.example"}`)
	r.added(t, "allowlist", `{"value":"good.blocked.example"}`)
	blocked := func(a apiAnswer) {
		t.Helper()
		if p := wantProblem(t, a, http.StatusUnprocessableEntity, ErrorCodeTargetBlocked, "target"); !strings.Contains(p.Detail, "denylist: host_suffix blocked.example") {
			t.Errorf("it does not say which list: %s", p.Detail)
		}
	}
	blocked(r.call(t, "POST", "/v1/links", `{"target":"https://www.BLOCKED.example:8443/x"}`, headerPosition, entry.Position))
	r.create(t, map[string]any{"target": "https://good.blocked.example/"})
	other := r.create(t, map[string]any{"target": "https://example.com/"})
	blocked(r.call(t, "PATCH", apiPath(other, ""), `{"target":"https://blocked.example/"}`))
	if a := r.call(t, "PATCH", apiPath(there, ""), `{"title":"still mine"}`); a.status != http.StatusOK {
		t.Errorf("another field of a link whose target was denied later: %v", a)
	}
	batch := apiInto[BatchResults](t, r.call(t, "POST", "/v1/links:batch", `{"links":[{"target":"https://blocked.example/"},{"target":"https://example.com/"}]}`))
	if batch.Results[0].Status != http.StatusUnprocessableEntity || batch.Results[0].Error.Code != ErrorCodeTargetBlocked || batch.Results[1].Status != http.StatusCreated {
		t.Errorf("%+v", batch)
	}
}

func (r *apiRig) testAPIKeys(t *testing.T) {
	for _, body := range []string{`{"owner":""}`, `{"owner":1}`, `{"admin":"yes"}`, `{"id":"x"}`, `{"owner":"` + strings.Repeat("x", 256) + `"}`, `{"owner":"a\u0000b"}`, `{"note":"` + strings.Repeat("x", 1001) + `"}`, `[]`} {
		wantProblem(t, r.asAdmin(t, "POST", "/v1/keys", body), http.StatusBadRequest, ErrorCodeInvalidRequest, "")
	}
	wantProblem(t, r.asAdmin(t, "GET", "/v1/keys/nobody", nil), http.StatusNotFound, ErrorCodeNotFound, "")
	wantProblem(t, r.asAdmin(t, "DELETE", "/v1/keys/nobody", nil), http.StatusNotFound, ErrorCodeNotFound, "")

	a := r.asAdmin(t, "POST", "/v1/keys", `{"owner":"carol","note":"CI"}`, headerKey, "key-1")
	made := apiInto[ApiKey](t, a)
	if a.status != http.StatusCreated || made.Secret == nil || !strings.HasPrefix(*made.Secret, "hop_") || len(*made.Secret) < 40 || made.Owner != "carol" || made.Admin || !made.Active ||
		made.Note != "CI" || made.Actor != "key:root" || !strings.HasPrefix(made.Position, "control/0/") {
		t.Fatalf("%v", a)
	}
	secret := *made.Secret
	again := r.asAdmin(t, "POST", "/v1/keys", `{"owner":"carol","note":"CI"}`, headerKey, "key-1")
	if repeat := apiInto[ApiKey](t, again); again.status != http.StatusOK || again.header.Get(headerReplayed) != "true" || repeat.Secret != nil || repeat.Id != made.Id {
		t.Errorf("a repeat: %v", again)
	}
	wantProblem(t, r.asAdmin(t, "POST", "/v1/keys", `{"owner":"dave"}`, headerKey, "key-1"), http.StatusUnprocessableEntity, ErrorCodeIdempotencyKeyReused, "")
	if a := r.call(t, "POST", "/v1/links", `{"target":"https://example.com/carol"}`, "Key", secret); a.status != http.StatusCreated || apiInto[Link](t, a).Owner != "carol" {
		t.Errorf("with the new key: %v", a)
	}
	wantProblem(t, r.call(t, "GET", "/v1/keys", nil, "Key", secret), http.StatusForbidden, ErrorCodeForbidden, "")

	first := apiInto[KeyPage](t, r.asAdmin(t, "GET", "/v1/keys?limit=1", nil))
	second := apiInto[KeyPage](t, r.asAdmin(t, "GET", "/v1/keys?limit=100&cursor="+*first.NextCursor, nil))
	if len(first.Keys) != 1 || first.Keys[0].Id == made.Id || second.NextCursor != nil || second.Keys[len(second.Keys)-1].Id != made.Id {
		t.Errorf("%+v\n%+v", first, second)
	}
	for _, page := range []apiAnswer{r.asAdmin(t, "GET", "/v1/keys", nil), r.asAdmin(t, "GET", "/v1/keys/"+made.Id, nil), r.asAdmin(t, "GET", "/v1/audit?of=keys", nil)} {
		if page.status != http.StatusOK || !bytes.Contains(page.body, []byte(made.Id)) || bytes.Contains(page.body, []byte("hop_")) || bytes.Contains(page.body, []byte("hash")) {
			t.Errorf("%v", page)
		}
	}

	a = r.asAdmin(t, "DELETE", "/v1/keys/"+made.Id+"?note=leaked", nil, headerKey, "revoke-1")
	if was := apiInto[ApiKey](t, a); a.status != http.StatusOK || was.Active || was.Id != made.Id || was.Secret != nil || !was.AddedAt.Equal(made.AddedAt) || was.Position != made.Position {
		t.Errorf("%v", a)
	}
	wantProblem(t, r.call(t, "GET", "/v1/links", nil, "Key", secret), http.StatusUnauthorized, ErrorCodeUnauthorized, "")
	if again := r.asAdmin(t, "DELETE", "/v1/keys/"+made.Id+"?note=leaked", nil, headerKey, "revoke-1"); again.status != http.StatusOK || !bytes.Equal(again.body, a.body) {
		t.Errorf("a repeat: %v, first %v", again, a)
	}
	wantProblem(t, r.asAdmin(t, "DELETE", "/v1/keys/"+made.Id, nil), http.StatusNotFound, ErrorCodeNotFound, "")
	wantProblem(t, r.asAdmin(t, "DELETE", "/v1/keys/root", nil), http.StatusForbidden, ErrorCodeForbidden, "")
	audit := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=keys&q=carol", nil))
	if len(audit.Events) != 2 || audit.Events[0].Type != "key.revoked" || audit.Events[0].Note != "leaked" || *audit.Events[1].Owner != "carol" || *audit.Events[1].Admin {
		t.Errorf("%+v", audit)
	}
}

func (r *apiRig) testSwitches(t *testing.T) {
	other := apiInto[ApiKey](t, r.asAdmin(t, "POST", "/v1/keys", `{"admin":true,"note":"the second of two"}`))
	apiTestSecond := *other.Secret
	turn := func(key, what, state string, pending bool) Switch {
		t.Helper()
		a := r.call(t, "POST", "/v1/switches/low/"+what, `{"note":"incident 7"}`, "Key", key)
		s := apiInto[Switch](t, a)
		if a.status != http.StatusOK || s.State != state || (s.Pending != nil) != pending || s.Tier != TrustTierLow || s.Summary == "" {
			t.Errorf("%s by %s: %v", what, key, a)
		}
		return s
	}
	if s := turn(apiTestAdmin, "close", "open", true); s.Pending.Actor != "key:root" || s.Pending.State != "closed" || s.Pending.Note != "incident 7" || s.Pending.Until.Sub(s.Pending.At) != 10*time.Minute {
		t.Errorf("%+v", s.Pending)
	}
	turn(apiTestAdmin, "close", "open", true)
	if s := turn(apiTestSecond, "close", "closed", false); fmt.Sprint(s.Actors) != "[key:root key:"+other.Id+"]" || s.ChangedAt == nil {
		t.Errorf("%+v", s)
	}
	turn(apiTestSecond, "open", "closed", true)
	list := apiInto[SwitchList](t, r.asAdmin(t, "GET", "/v1/switches", nil))
	if len(list.Switches) != 3 || list.Switches[0].Tier != TrustTierLow || list.Switches[0].State != "closed" || list.Switches[1].State != "open" {
		t.Errorf("%+v", list)
	}
	turn(apiTestAdmin, "open", "open", false)
	audit := apiInto[AuditPage](t, r.asAdmin(t, "GET", "/v1/audit?of=switches", nil))
	got := ""
	for _, e := range audit.Events {
		got += e.Type + " " + *e.State + " " + e.Actor + "\n"
	}
	if got = strings.ReplaceAll(got, other.Id, "second"); got != "switch.turned open key:root\nswitch.proposed open key:second\nswitch.turned closed key:second\nswitch.proposed closed key:root\n" {
		t.Error(got)
	}
}

// The writer of the control stream sends pulses, and a reader knows by them that its lists are fresh.
func (r *apiRig) testPulse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	beating, beat := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	pulse := control.NewPulse(r.source, r.controls, apiTestLogger(), time.Now)
	go func() { pulse.Run(ctx); done <- struct{}{} }()
	go func() { _ = r.commands.Pulse(beating); done <- struct{}{} }()
	apiEventually(t, "the lists are fresh", func() bool { return pulse.Age() < 5*time.Second })
	beat()
	apiEventually(t, "without a pulse they grow old", func() bool { return pulse.Age() > 5*time.Second })
	cancel()
	<-done
	<-done
}
