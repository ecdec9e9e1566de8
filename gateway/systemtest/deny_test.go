package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// denials is a `hoplog dev` and a redirect node beside it, which stays when the first is killed.
type denials struct {
	*process
	node *process
}

// TestDeny walks through lists, trust, switches and what a node does when it cannot know whether its lists are fresh.
func TestDeny(t *testing.T) {
	p := dev(t)
	d := &denials{process: p, node: p.serve(t, "redirect", "--deny-stale", "2s", "--trusted-hops", "1")}
	plain, low, evil, below, good, legal := d.made(fields{"target": "https://example.com/"}), d.made(fields{"target": "https://example.com/low"}),
		d.made(fields{"target": "https://evil.example:8443/x"}), d.made(fields{"target": "https://a.bad.example/"}), d.made(fields{"target": "https://good.bad.example/"}),
		d.made(fields{"target": "https://example.com/legal"})
	d.is(t, "before", map[string]int{plain: 302, low: 302, evil: 302, below: 302, good: 302, legal: 302})

	d.add(t, "denylist", fields{"kind": "host", "value": "EVIL.example", "note": "phishing"})
	suffix := d.add(t, "denylist", fields{"kind": "host_suffix", "value": "*.bad.example"})
	d.add(t, "allowlist", fields{"value": "good.bad.example"})
	d.add(t, "trust", fields{"kind": "code", "value": d.domain() + "/" + low, "tier": "low"})
	var entry struct{ ID, Value, Reason, Actor string }
	if exit := d.cliJSON(&entry, "deny", "add", "code", d.domain()+"/"+legal, "--legal", "--note", "order 5"); exit != 0 || entry.Value != d.domain()+"/"+legal || entry.Reason != "legal" {
		t.Errorf("deny add: exit %d, %+v", exit, entry)
	}
	d.is(t, "denied", map[string]int{plain: 302, low: 302, evil: 403, below: 403, good: 302, legal: 451, legal + "+": 451})
	for target, code := range map[string]string{"https://evil.example/": "target_blocked", "https://x.bad.example/": "target_blocked", "https://good.bad.example/": ""} {
		if a := d.create(fields{"target": target}); code != "" {
			refusedWith(t, target, a, code)
			if !strings.Contains(a.str("detail"), "denylist") || a.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d %s", target, a.status, a.raw)
			}
		} else if a.status != http.StatusCreated {
			t.Errorf("%s: %d %s", target, a.status, a.raw)
		}
	}
	refusedWith(t, "an update", d.api("PATCH", d.link(plain), fields{"target": "https://bad.example/"}), "target_blocked")

	d.add(t, "denylist", fields{"kind": "network", "value": "198.51.100.0/24"})
	d.eventually("the network is denied", func() bool { return d.at(plain, "X-Forwarded-For", "198.51.100.7") == 403 })
	if s := d.at(plain, "X-Forwarded-For", "198.51.101.7"); s != 302 {
		t.Errorf("another network: %d", s)
	}
	var page struct {
		Entries []struct{ ID, Kind, Value string }
	}
	if exit := d.cliJSON(&page, "deny", "list", "--kind", "network"); exit != 0 || len(page.Entries) != 1 || page.Entries[0].Value != "198.51.100.0/24" {
		t.Fatalf("deny list: exit %d, %+v", exit, page)
	}
	var removed struct{ Active bool }
	if exit := d.cliJSON(&removed, "deny", "remove", page.Entries[0].ID, "--note", "over"); exit != 0 || removed.Active {
		t.Errorf("deny remove: exit %d, %+v", exit, removed)
	}
	d.eventually("the network is let in again", func() bool { return d.at(plain, "X-Forwarded-For", "198.51.100.7") == 302 })
	if a := d.api("DELETE", "/v1/denylist/"+suffix.str("id")+"?note=settled", nil); a.status != http.StatusOK {
		t.Errorf("remove: %d %s", a.status, a.raw)
	}
	d.is(t, "removed", map[string]int{below: 302})
	d.switches(t, plain, low)
	d.stale(t, map[string]int{plain: 302, low: 503, evil: 403, below: 302, legal: 451})
}

// add makes an entry and returns the answer.
func (d *denials) add(t *testing.T, list string, f fields) answer {
	t.Helper()
	a := d.api("POST", "/v1/"+list, f)
	if a.status != http.StatusCreated || a.str("id") == "" || a.str("actor") == "" {
		t.Fatalf("%s %v: %d %s", list, f, a.status, a.raw)
	}
	return a
}

// at visits a path at the node.
func (d *denials) at(path string, headers ...string) int {
	a, err := d.node.tryVisit("GET", "/"+path, append([]string{"Host", d.domain()}, headers...)...)
	if err != nil {
		return 0
	}
	if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
		return -1
	}
	return a.status
}

// is waits until the node answers so.
func (d *denials) is(t *testing.T, when string, want map[string]int) {
	t.Helper()
	for path, status := range want {
		got := 0
		d.eventually(fmt.Sprintf("%s: %s answers %d", when, path, status), func() bool { got = d.at(path); return got == status })
	}
}

func (d *denials) switches(t *testing.T, plain, low string) {
	t.Helper()
	second := []string{"Authorization", "Bearer " + d.secondKey(t)}
	turn := func(what, state string, headers ...string) {
		t.Helper()
		if a := d.api("POST", "/v1/switches/low/"+what, fields{"note": "incident 7"}, headers...); a.status != http.StatusOK || a.str("state") != state {
			t.Errorf("%s: %d %s, want %s", what, a.status, a.raw, state)
		}
	}
	turn("close", "open")
	turn("close", "open") // the same key is no second one
	d.is(t, "closed with one key", map[string]int{low: 302})
	turn("close", "closed", second...)
	d.is(t, "closed", map[string]int{low: 503, plain: 302})
	if code, out, errs := d.cli("switch", "open", "low", "--note", "over"); code != 0 || !strings.Contains(out, "another admin key") {
		t.Errorf("switch open: exit %d %s %s", code, out, errs)
	}
	turn("open", "open", second...)
	d.is(t, "open again", map[string]int{low: 302})
	audit := d.api("GET", "/v1/audit?of=switches", nil)
	list, _ := audit.body["events"].([]any)
	if len(list) != 4 {
		t.Fatalf("history: %s", audit.raw)
	}
	actors := map[any]bool{}
	for _, e := range list {
		actors[e.(fields)["actor"]] = true
	}
	if len(actors) != 2 {
		t.Errorf("the history has not both keys: %s", audit.raw)
	}
}

// secondKey makes an admin key with the first, and shows that keys end when they are revoked.
func (d *denials) secondKey(t *testing.T) string {
	t.Helper()
	var second, spare struct{ ID, Secret string }
	if code := d.cliJSON(&second, "key", "create", "--as-admin", "--note", "the second of two"); code != 0 || len(second.Secret) < 40 {
		t.Fatalf("key create: exit %d, %+v", code, second)
	}
	if code := d.cliJSON(&spare, "key", "create", "--owner", "carol"); code != 0 {
		t.Fatalf("key create: exit %d", code)
	}
	with := []string{"Authorization", "Bearer " + spare.Secret}
	if a := d.api("GET", "/v1/links", nil, with...); a.status != http.StatusOK {
		t.Errorf("with a new key: %d %s", a.status, a.raw)
	}
	if code, out, errs := d.cli("key", "revoke", spare.ID, "--note", "a test"); code != 0 || !strings.Contains(out, "carol") {
		t.Errorf("key revoke: exit %d %s %s", code, out, errs)
	}
	if a := d.api("GET", "/v1/links", nil, with...); a.status != http.StatusUnauthorized {
		t.Errorf("with a revoked key: %d %s", a.status, a.raw)
	}
	if code, out, _ := d.cli("key", "list"); code != 0 || !strings.Contains(out, second.ID) || strings.Contains(out, spare.ID) || strings.Contains(out, second.Secret) {
		t.Errorf("key list: exit %d %s", code, out)
	}
	return second.Secret
}

// stale kills everything behind the node: links of low trust answer 503, and all else goes on as it was; they are served again
// once the log is back.
func (d *denials) stale(t *testing.T, want map[string]int) {
	t.Helper()
	d.kill()
	d.is(t, "without a pulse", want)
	d.eventually("the node is degraded, and ready", func() bool {
		status, body := d.node.get(d.node.ports["admin"], "/readyz")
		return status == http.StatusOK && strings.Contains(body, "degraded") && strings.Contains(body, "low trust")
	})
	d.start()
	for path, status := range want {
		if status == http.StatusServiceUnavailable {
			want[path] = http.StatusFound
		}
	}
	d.is(t, "with a pulse again", want)
}
