package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// listPurges is links of several kinds, an effects process, and a server as its CDN, which looks at each link before it says
// that it is purged: a CDN would fetch its answer again right then.
type listPurges struct {
	*process
	node *process
	cdn  *cdn

	mu    sync.Mutex
	early []string // what was not refused yet when it was purged
}

// TestListsPurge: who denies a host, or no longer allows one, has every answer purged that a CDN may hold of a link there, once
// the nodes refuse it, and no other; kill -9 of the process in between, with a CDN that is down, loses none.
func TestListsPurge(t *testing.T) {
	l := &listPurges{process: shared(t), cdn: newCDN(t)}
	links := func(what, target string, ttl int, n int) (codes []string) {
		for i := range n {
			codes = append(codes, l.made(fields{"target": fmt.Sprintf("https://%s/%s/%d", target, what, i), "cache_ttl": ttl}))
		}
		return codes
	}
	deny := func(list string, f fields) string {
		a := l.api("POST", "/v1/"+list, f)
		if a.status != http.StatusCreated {
			t.Fatalf("%s %v: %d %s", list, f, a.status, a.raw)
		}
		return a.str("id")
	}
	evil, good, plain := links("evil", "evil.lists.example", 600, 20), links("good", "good.lists.example", 600, 5), links("plain", "evil.lists.example", 0, 5)
	below, allowed, later := links("below", "a.below.lists.example", 600, 20), links("allowed", "b.below.lists.example", 600, 5), links("later", "later.lists.example", 600, 20)
	id := deny("allowlist", fields{"value": "b.below.lists.example"})
	l.cdn.look = l.looked
	l.node = newProcess(t, append([]string{"serve", "--roles", "effects"}, l.cdn.purgeArgs()...), "admin")
	l.node.ports["kafka"] = l.ports["kafka"]
	l.node.env = append(l.node.env, "HOPLOG_PURGE_TOKEN="+cdnToken)
	l.node.start()
	l.joined()

	deny("denylist", fields{"kind": "host", "value": "evil.lists.example"})
	took := l.eventually("the host's links are purged", func() bool { return l.purged(evil...) })
	t.Logf("%d links of a denied host were purged %s after the answer", len(evil), took.Round(time.Millisecond))
	if l.asked(good, plain, below, allowed, later) {
		t.Error("links were purged that the host does not concern")
	}
	deny("denylist", fields{"kind": "code", "value": l.domain() + "/" + good[0]})
	l.eventually("a denied code is purged", func() bool { return l.purged(good[0]) })

	l.cdn.answers(http.StatusServiceUnavailable)
	deny("denylist", fields{"kind": "host_suffix", "value": "below.lists.example"})
	l.eventually("the CDN is asked", func() bool { _, n := l.cdn.times(l.url(below[0])); return n > 0 })
	l.node.kill()
	deny("denylist", fields{"kind": "host", "value": "later.lists.example"})
	l.node.start()
	time.Sleep(700 * time.Millisecond) // while it waits for the nodes
	l.node.kill()
	l.cdn.answers(http.StatusOK)
	l.node.start()
	l.eventually("what was denied around the kills is purged", func() bool { return l.purged(below...) && l.purged(later...) })
	if l.asked(allowed, good[1:], plain) {
		t.Error("links were purged that no list concerns")
	}
	if a := l.api("DELETE", "/v1/allowlist/"+id+"?note=over", nil); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	l.eventually("what is no longer allowed is purged", func() bool { return l.purged(allowed...) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.early) > 0 {
		t.Errorf("purged before the nodes refused: %v", l.early)
	}
	l.tells(t)
}

// looked notes what was purged too early.
func (l *listPurges) looked(url string) {
	path := strings.TrimSuffix(strings.TrimPrefix(url, "http://"+l.domain()), "/")
	if strings.HasPrefix(path, "http://") { // another name of the domain
		return
	}
	a, err := l.tryVisit("GET", path)
	if err != nil || a.status != http.StatusForbidden {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.early = append(l.early, fmt.Sprint(path, ": ", a.status, " ", err))
	}
}

// purged reports whether all of these links were, without and with the slash.
func (l *listPurges) purged(codes ...string) bool {
	for _, code := range codes {
		plain, _ := l.cdn.times(l.url(code))
		slash, _ := l.cdn.times(l.url(code) + "/")
		if len(plain) == 0 || len(slash) == 0 {
			return false
		}
	}
	return true
}

// asked reports whether the CDN was asked to purge any of these.
func (l *listPurges) asked(lists ...[]string) bool {
	for _, codes := range lists {
		for _, code := range codes {
			if _, n := l.cdn.times(l.url(code)); n > 0 {
				return true
			}
		}
	}
	return false
}

// joined waits until the process follows the control log: a new group begins where it ends then.
func (l *listPurges) joined() {
	l.eventually("the group follows", func() bool {
		_, metrics := l.node.get(l.node.ports["admin"], "/metrics")
		return strings.Contains(metrics, `hoplog_effects_lag{handler="lists",partition="0"}`)
	})
}

// tells looks at what status and metrics say.
func (l *listPurges) tells(t *testing.T) {
	t.Helper()
	_, metrics := l.node.get(l.node.ports["admin"], "/metrics")
	if n := metric(t, metrics, `hoplog_effects_swept_links_total{what="found"}`); n < 5 { // since its last start
		t.Errorf("%v links found", n)
	}
	if n := metric(t, metrics, `hoplog_effects_sweeps_total`); n < 1 {
		t.Errorf("%v sweeps", n)
	}
	l.eventually("nothing is queued", func() bool {
		_, metrics := l.node.get(l.node.ports["admin"], "/metrics")
		return metric(t, metrics, `hoplog_effects_queued{handler="purge"}`) == 0
	})
	var status struct {
		Effects []struct {
			Handler string
			Dead    int
			Sweeps  *struct {
				Found int `json:"links_found"`
			}
		}
	}
	l.node.cliJSON(&status, "status")
	for _, e := range status.Effects {
		if e.Dead > 0 || (e.Handler == "lists") != (e.Sweeps != nil) || e.Sweeps != nil && e.Sweeps.Found < 5 {
			t.Errorf("status %+v", status)
		}
	}
}
