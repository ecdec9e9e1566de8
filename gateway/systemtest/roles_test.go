package systemtest

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/realkafka"
	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

// fleet is one process per role, each with a data directory of its own, on a real Kafka and a ClickHouse that none of them
// runs. The embedded process is for asking: its addresses are those of all roles.
type fleet struct {
	*process
	roles      map[string]*process
	broker     *realkafka.Broker
	clickhouse *engine.Child
}

// startFleet starts all roles at once: they wait for what they need of each other. The process of commands gets these arguments.
func startFleet(t *testing.T, commands ...string) *fleet {
	t.Helper()
	broker := realkafka.Start(t)
	options := enginetest.Options(t, t.TempDir())
	options.Command = []string{binary(t)}
	clickhouse := enginetest.StartWith(t, options)

	f := &fleet{process: newProcess(t, nil, "api", "redirect"), roles: map[string]*process{}, broker: broker, clickhouse: clickhouse}
	f.ports["kafka"], f.ports["clickhouse"] = broker.Addr(), clickhouse.Addr()
	for _, role := range []string{"analytics", "api", "redirect"} {
		f.launchRole(t, role)
	}
	f.launchRole(t, "commands", append(commands, "--domain", f.domain())...)
	for _, role := range f.roles {
		role.ready()
	}
	f.ports["admin"] = f.roles["redirect"].ports["admin"]
	return f
}

// launchRole starts another process of a role, on an empty data directory.
func (f *fleet) launchRole(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := newProcess(t, append([]string{"serve", "--roles", role}, args...), "admin")
	for setting, addr := range f.ports {
		if setting != "admin" {
			p.ports[setting] = addr
		}
	}
	p.launch()
	f.roles[role] = p
	return p
}

// TestRolesOnRealKafka walks one link and its clicks through four processes, and replaces the one that writes.
func TestRolesOnRealKafka(t *testing.T) {
	f := startFleet(t)
	code := f.made(fields{"target": "https://example.com/roles/1"})
	visit := func(n int, target string) {
		t.Helper()
		f.eventually("the target is "+target, func() bool { return f.visitAs("HEAD", "/"+code).header.Get("Location") == target })
		for range n {
			if v := f.visit("/" + code); v.status != http.StatusFound || v.header.Get("Location") != target {
				t.Errorf("%d %q, want %s", v.status, v.header.Get("Location"), target)
			}
		}
	}
	visit(30, "https://example.com/roles/1")
	if a := f.api("PATCH", f.link(code), fields{"target": "https://example.com/roles/2"}, "If-Match", `"1"`); a.status != http.StatusOK {
		t.Fatalf("edit: %d %s", a.status, a.raw)
	}
	visit(20, "https://example.com/roles/2")
	f.eventually("50 clicks are counted", func() bool { return clicksOf(f.process, code) == 50 })
	if a := f.api("POST", f.link(code, "/ban"), fields{"reason": "spam"}); a.status != http.StatusOK {
		t.Fatalf("ban: %d %s", a.status, a.raw)
	}
	f.eventually("the ban is obeyed", func() bool { return f.visitAs("HEAD", "/"+code).status == http.StatusForbidden }) // a GET may come before it, and count
	f.truth(t, 50)

	var topics []struct {
		Topic      string
		Partitions int
	}
	if exit := f.cliJSON(&topics, "topics"); exit != 0 || len(topics) != 9 {
		t.Errorf("topics: exit %d, %v", exit, topics)
	}
	for _, topic := range topics {
		want := 16
		if slices.Contains([]string{"hoplog.commands.control", "hoplog.events.control", "hoplog.pulse", "hoplog.effects.dead", "hoplog.effects.retry"}, topic.Topic) {
			want = 1
		}
		if topic.Partitions != want {
			t.Errorf("%s has %d partitions, want %d", topic.Topic, topic.Partitions, want)
		}
	}
	f.replaceWriter(t)
	f.truth(t, 51) // it was visited once while nobody wrote
	for name, role := range f.roles {
		var s struct {
			Ready bool
			Roles map[string]struct{ State string }
		}
		if exit := role.cliJSON(&s, "status"); exit != 0 || !s.Ready || len(s.Roles) != 1 || s.Roles[name].State != "ready" {
			t.Errorf("status of %s: exit %d, %+v", name, exit, s)
		}
	}
	for _, name := range []string{"redirect", "api", "analytics", "commands"} {
		if exit, took := f.roles[name].stop(); exit != 0 || took > 10*time.Second {
			t.Errorf("SIGTERM to %s: exit %d after %s", name, exit, took)
		}
	}
}

// truth compares clicks, log and chains.
func (f *fleet) truth(t *testing.T, clicks int) {
	t.Helper()
	if r, exit := f.reconcile(); exit != 0 || r.LogClicks != clicks || r.RawClicks != clicks || r.AggregateClicks != clicks {
		t.Errorf("reconcile: exit %d, %+v, want %d clicks", exit, r, clicks)
	}
	var verify struct {
		Envelopes, Links int
		Problems         []any
	}
	if exit := f.cliJSON(&verify, "audit", "verify"); exit != 0 || len(verify.Problems) > 0 || verify.Links == 0 {
		t.Errorf("audit verify: exit %d, %+v", exit, verify)
	}
}

// replaceWriter kills the commands process and starts another on an empty directory: nothing acknowledged is lost, visitors
// notice nothing, and what was sent meanwhile is decided once.
func (f *fleet) replaceWriter(t *testing.T) {
	before := f.create(fields{"target": "https://example.com/roles/before"}, "Idempotency-Key", "roles-before")
	path := "/" + f.made(fields{"target": "https://example.com/roles/on"})
	f.roles["commands"].kill()
	killed := time.Now()
	orphan := f.create(fields{"target": "https://example.com/roles/orphan"}, "Idempotency-Key", "roles-orphan")
	if orphan.status != http.StatusAccepted || orphan.header.Get("Location") != "/v1/requests/roles-orphan" || orphan.str("state") != "RECEIVED" {
		t.Errorf("a create that nobody decides: %d %v %s", orphan.status, orphan.header, orphan.raw)
	}
	if v := f.visit(path); v.status != http.StatusFound {
		t.Errorf("a visit meanwhile: %d", v.status)
	}
	f.launchRole(t, "commands")
	for end := killed.Add(patient); ; time.Sleep(100 * time.Millisecond) {
		a := f.create(fields{"target": "https://example.com/roles/after"}, "Idempotency-Key", "roles-after")
		if a.status == http.StatusCreated || a.status == http.StatusOK {
			break
		}
		if a.status != http.StatusAccepted && a.status != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("a create %s after the kill: %d %s", time.Since(killed), a.status, a.raw)
		}
	}
	t.Logf("creates go on %s after the writer was killed", time.Since(killed).Round(10*time.Millisecond))
	f.roles["commands"].ready()
	replayed(t, "from before the kill", before, f.create(fields{"target": "https://example.com/roles/before"}, "Idempotency-Key", "roles-before"))
	f.eventually("the orphan is decided", func() bool { return f.api("GET", "/v1/requests/roles-orphan", nil).str("state") == "succeeded" })
	again := f.create(fields{"target": "https://example.com/roles/orphan"}, "Idempotency-Key", "roles-orphan")
	list := f.api("GET", "/v1/links?q="+"roles/orphan", nil)
	if links, _ := list.body["links"].([]any); again.status != http.StatusOK || len(links) != 1 || links[0].(fields)["code"] != again.str("code") {
		t.Errorf("the orphan: %d %s, listed %s", again.status, again.raw, list.raw)
	}
	codes := together(20, func(i int) answer { return f.create(fields{"target": fmt.Sprint("https://example.com/roles/new/", i)}) })
	if got := statuses(codes); got["201"] != 20 || len(codesOf(codes)) != 20 {
		t.Errorf("20 creates: %v", got)
	}
	f.eventually("the new links are served", func() bool { return f.visitAs("HEAD", "/"+codes[19].str("code")).status == http.StatusFound })
}
