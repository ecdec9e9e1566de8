package systemtest

import (
	"net/http"
	"strings"
	"testing"
)

// lost visits a code that nobody made at a node, and returns the status and where the visitor is sent.
func (p *process) lost(domain, path string) (status int, location, cache string) {
	a, err := p.tryVisit("GET", path, "Host", domain)
	if err != nil {
		return 0, "", ""
	}
	return a.status, a.header.Get("Location"), a.header.Get("Cache-Control")
}

// TestDomainNotFoundURL sets where a domain sends visitors of unknown codes, and watches a redirect node of its own obey.
func TestDomainNotFoundURL(t *testing.T) {
	const url = "https://example.com/none?q=%2f"
	p := dev(t)
	node := p.serve(t, "redirect")
	domain := p.domain()
	path, alias := "/v1/domains/"+domain, strings.Replace(domain, "localhost", "127.0.0.1", 1)
	soon := p.create(fields{"target": "https://example.com/", "not_before": "2199-01-01T00:00:00Z"}).str("code")
	sent := func(when, domain, path, to string) {
		t.Helper()
		want := map[bool]int{true: http.StatusNotFound, false: http.StatusFound}[to == ""]
		p.eventually(when+": "+path+" on "+domain+" leads to "+to, func() bool {
			status, location, cache := node.lost(domain, path)
			return status == want && location == to && strings.Contains(cache, "no-store")
		})
	}
	sent("before", domain, "/nothing", "")

	var shown struct {
		Domain      string
		Aliases     []string
		IsDefault   bool    `json:"is_default"`
		NotFoundURL *string `json:"not_found_url"`
	}
	if exit := p.cliJSON(&shown, "domain", "update", domain, "--not-found-url", " "+url); exit != 0 || shown.NotFoundURL == nil || *shown.NotFoundURL != url || !shown.IsDefault {
		t.Fatalf("domain update: exit %d, %+v", exit, shown)
	}
	sent("set", domain, "/nothing", url)
	sent("set", alias, "/nothing?x=1", url)
	sent("set", domain, "/"+soon, url)
	sent("set", domain, "/nothing+", "")
	sent("set", "other.example", "/nothing", "")
	node.kill()
	node.start()
	sent("a new start of the node", domain, "/nothing", url)

	deny := p.api("POST", "/v1/denylist", fields{"kind": "host", "value": "example.com"})
	if deny.status != http.StatusCreated {
		t.Fatalf("deny: %d %s", deny.status, deny.raw)
	}
	sent("denied", domain, "/nothing", "")
	refusedWith(t, "a denied host", p.api("PATCH", path, fields{"not_found_url": "https://example.com/other"}), "target_blocked")
	refusedWith(t, "a loop", p.api("PATCH", path, fields{"not_found_url": "http://" + alias + "/x"}), "invalid_target")
	if a := p.api("DELETE", "/v1/denylist/"+deny.str("id"), nil); a.status != http.StatusOK {
		t.Fatalf("no longer denied: %d %s", a.status, a.raw)
	}
	sent("no longer denied", domain, "/nothing", url)

	if exit := p.cliJSON(&shown, "domain", "update", domain, "--not-found-url", ""); exit != 0 || shown.NotFoundURL != nil {
		t.Errorf("cleared: exit %d, %+v", exit, shown)
	}
	sent("cleared", domain, "/nothing", "")
	if history, _ := p.api("GET", "/v1/audit?of=domains", nil).body["events"].([]any); len(history) != 2 {
		t.Errorf("history: %v", history)
	}
	if code, out, errs := p.cli("audit", "verify"); code != 0 {
		t.Errorf("audit verify: exit %d %s %s", code, out, errs)
	}
}
