package systemtest

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

// common is one `hoplog dev` for all tests that leave it as they would like to find it: alive, with the links of others
// untouched.
var common struct {
	once sync.Once
	p    *process
}

func TestMain(m *testing.M) {
	code := m.Run()
	if p := common.p; p != nil {
		p.kill()
		_ = os.RemoveAll(p.data)
	}
	if s := damaged.source; s != nil {
		_ = os.RemoveAll(s.data)
	}
	os.Exit(code)
}

// shared returns the common instance; the first test that asks for it starts it.
func shared(t *testing.T) *process {
	t.Helper()
	common.once.Do(func() {
		data, err := os.MkdirTemp("", "hoplog-systemtest-")
		if err != nil {
			t.Fatal(err)
		}
		p := &process{t: t, args: []string{"dev"}, data: data, ports: map[string]string{}, out: &log{}}
		for _, setting := range []string{"api", "redirect", "admin", "kafka", "clickhouse"} {
			p.ports[setting] = loopback.FreeAddr(t)
		}
		common.p = p
		p.start()
	})
	if common.p == nil || common.p.cmd == nil {
		t.Fatal("the instance that tests share did not start")
	}
	p := *common.p
	p.t = t
	logged := len(p.out.String())
	t.Cleanup(func() {
		if t.Failed() {
			text := p.out.String()[logged:]
			t.Logf("what the shared hoplog wrote meanwhile:\n%s", text[max(0, len(text)-3000):])
		}
	})
	return &p
}

// serve starts a process of its own with this role, on the log and the ClickHouse of p.
func (p *process) serve(t testing.TB, role string, args ...string) *process {
	t.Helper()
	listens := map[string][]string{"api": {"api"}, "redirect": {"redirect"}}[role]
	node := newProcess(t, append([]string{"serve", "--roles", role}, args...), append(listens, "admin")...)
	for setting, addr := range p.ports {
		if node.ports[setting] == "" {
			node.ports[setting] = addr
		}
	}
	node.start()
	return node
}

// sql asks ClickHouse and returns what it answers, without the last line break.
func (p *process) sql(query string) string {
	p.t.Helper()
	resp, err := direct.Post("http://"+p.ports["clickhouse"]+"/", "text/plain", strings.NewReader(query))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("ClickHouse: %s: %d %s", query, resp.StatusCode, body)
	}
	return strings.TrimSuffix(string(body), "\n")
}

// stableCodes are the codes of errors that callers rely on.
var stableCodes = []string{
	"invalid_target", "invalid_code", "reserved_code", "code_taken", "version_mismatch", "idempotency_key_reused", "domain_not_owned",
	"target_blocked", "quota_exceeded", "rate_limited", "not_found", "unauthorized", "forbidden", "unavailable", "analytics_unavailable",
	"invalid_request", "too_large", "method_not_allowed", "outcome_unknown", "command_expired",
}

// refusedWith checks that an answer is an RFC 9457 error with this stable code ("": any) and a status of 4xx.
func refusedWith(t testing.TB, what string, a answer, code string) {
	t.Helper()
	got := a.str("code")
	status, _ := a.body["status"].(float64)
	switch {
	case a.status < 400 || a.status > 499:
		t.Errorf("%s: status %d, want 4xx: %.200q", what, a.status, a.raw)
	case a.header.Get("Content-Type") != "application/problem+json" || int(status) != a.status || a.str("title") == "" || a.str("detail") == "" || a.str("type") == "":
		t.Errorf("%s: %d is no problem of RFC 9457: %v %.300q", what, a.status, a.header, a.raw)
	case !slices.Contains(stableCodes, got) || code != "" && got != code:
		t.Errorf("%s: %d, code %q, want %q: %.300q", what, a.status, got, code, a.raw)
	}
}
