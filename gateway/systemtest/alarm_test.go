package systemtest

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/events/eventlog"
)

// A record that no writer of ours wrote stops who reads it and turns its role red, with the place. A redirect node goes on
// serving the map that it has, and says that it is degraded.
func TestForeignRecordAlarms(t *testing.T) {
	p := dev(t)
	code := p.made(fields{"target": "https://example.com/"})
	kafka, err := eventlog.Open(eventlog.Config{Brokers: []string{p.ports["kafka"]}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	session, err := kafka.NewAppender(eventlog.EventsLink)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Append(t.Context(), 1, []eventlog.Record{{Key: []byte{8, 1}, Value: []byte("not an envelope")}}, eventlog.AnyOffset); err != nil {
		t.Fatal(err)
	}
	var ready struct {
		Ready bool
		Roles map[string]struct{ State, Reason string }
	}
	look := func() (status int) {
		status, body := p.get(p.ports["admin"], "/readyz")
		if err := json.Unmarshal([]byte(body), &ready); err != nil {
			t.Fatalf("%d %s", status, body)
		}
		return status
	}
	p.eventually("the API turns red, and the redirect node says that it stands still", func() bool {
		return look() == http.StatusServiceUnavailable && ready.Roles["api"].State == "not_ready" && ready.Roles["redirect"].State != "ready"
	})
	for _, role := range []string{"api", "redirect"} {
		reason := ready.Roles[role].Reason
		for _, words := range []string{"hoplog.events.link", "partition 1", "offset"} {
			if !strings.Contains(reason, words) {
				t.Errorf("%s does not name %q: %s", role, words, reason)
			}
		}
	}
	if got := ready.Roles["redirect"].State; got != "degraded" {
		t.Errorf("the redirect node is %s", got)
	}
	if a := p.visit("/" + code); a.status != http.StatusFound {
		t.Errorf("the known link: %d", a.status)
	}
	if a := p.create(fields{"target": "https://example.com/2"}); a.status != http.StatusServiceUnavailable || a.str("code") != "unavailable" {
		t.Errorf("a write whose answer cannot be seen: %d %s", a.status, a.raw)
	}
	var verify struct{ Problems []any }
	if code := p.cliJSON(&verify, "audit", "verify"); code != 1 || len(verify.Problems) == 0 {
		t.Errorf("audit verify: exit %d, %v", code, verify.Problems)
	}
	if code, out, _ := p.cli("status"); code != 1 || !strings.Contains(out, "partition 1") {
		t.Errorf("status: exit %d: %s", code, out)
	}
}
