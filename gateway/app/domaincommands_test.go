package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/gateway"
)

func (r *rig) testDomain(t *testing.T) {
	is := func(want string, args ...string) {
		t.Helper()
		got := decoded[gateway.Domain](t, r.cli(exitOK, "", append(args, "--json")...))
		if got.Domain != r.domain || !got.IsDefault || (got.NotFoundUrl == nil) != (want == "") || want != "" && *got.NotFoundUrl != want {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
	}
	is("", "domain", "get", r.domain)
	is("https://example.com/none", "domain", "update", r.domain, "--not-found-url", "https://example.com/none", "--idempotency-key", "d")
	is("https://example.com/none", "domain", "update", "--not-found-url", "https://example.com/none", "--idempotency-key", "d", r.domain)
	if table := r.cli(exitOK, "", "domain", "list"); !strings.Contains(table, "https://example.com/none") {
		t.Errorf("%s", table)
	}
	stale := fmt.Sprint(decoded[gateway.Domain](t, r.cli(exitOK, "", "domain", "get", r.domain, "--json")).Version)
	is("", "domain", "update", r.domain, "--not-found-url", "", "--if-match", stale)
	r.cli(exitFailed, "version_mismatch: ", "domain", "update", r.domain, "--not-found-url", "https://example.com/late", "--if-match", stale)
	if page := decoded[gateway.DomainPage](t, r.cli(exitOK, "", "domain", "list", "--json")); len(page.Domains) != 1 || page.Domains[0].NotFoundUrl != nil {
		t.Errorf("%+v", page)
	}
	r.cli(exitFailed, "invalid_target: ", "domain", "update", r.domain, "--not-found-url", "http://"+r.domain+"/x")
	r.cli(exitFailed, "not_found: ", "domain", "get", "nowhere.example")
	for _, args := range [][]string{{"domain", "update", r.domain}, {"domain", "update", r.domain, "--not-found-url", "", "--if-match", "x"}, {"domain", "update"}, {"domain", "get"}, {"domain", "x"}, {"domain", "list", "x"}} {
		r.cli(exitUsage, "\nsee: hoplog ", args...)
	}
}
