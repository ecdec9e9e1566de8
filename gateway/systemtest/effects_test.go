package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const cdnToken = "cdn-token-0123456789"

// cdn is a server that is told to purge, and answers as it is told.
type cdn struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	purged map[string][]time.Time // URL → when a purge was confirmed
	asked  map[string]int         // URL → purges, confirmed or not
	look   func(url string)       // hears of each URL before its purge is answered; nil: nobody
}

func newCDN(t *testing.T) *cdn {
	t.Helper()
	c := &cdn{status: http.StatusOK, purged: map[string][]time.Time{}, asked: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *cdn) serve(w http.ResponseWriter, r *http.Request) {
	var request struct{ Files []string }
	if r.Header.Get("Authorization") != "Bearer "+cdnToken || json.NewDecoder(r.Body).Decode(&request) != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	look := c.look
	c.mu.Unlock()
	for _, url := range request.Files {
		if look != nil {
			look(url)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, url := range request.Files {
		c.asked[url]++
		if c.status == http.StatusOK {
			c.purged[url] = append(c.purged[url], time.Now())
		}
	}
	w.WriteHeader(c.status)
}

func (c *cdn) answers(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// times returns when purges of a URL were confirmed, and how many were asked for.
func (c *cdn) times(url string) (purged []time.Time, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.purged[url]), c.asked[url]
}

// purgeArgs configure a process for the CDN.
func (c *cdn) purgeArgs() []string {
	return []string{"--purge-url", c.URL + "/purge", "--purge-headers", "Authorization: Bearer {{.Token}}", "--purge-scheme", "http"}
}

func (p *process) url(code string) string { return "http://" + p.domain() + "/" + code }

// TestPurge: `hoplog dev` with a CDN promises its bound and keeps it, purges what may be cached and nothing else, turns what the
// CDN refuses into dead letters, says so, and tries them again when asked to. It never shows the token.
func TestPurge(t *testing.T) {
	c := newCDN(t)
	p := newProcess(t, append([]string{"dev"}, c.purgeArgs()...), "api", "redirect", "admin", "kafka", "clickhouse")
	p.env = append(p.env, "HOPLOG_PURGE_TOKEN="+cdnToken)
	p.start()
	cached, plain := p.made(fields{"target": "https://example.com/purge/1", "cache_ttl": 600}), p.made(fields{"target": "https://example.com/purge/plain"})
	for _, code := range []string{plain, cached} {
		began := time.Now()
		a := p.api("PATCH", p.link(code), fields{"target": "https://example.com/purge/2"})
		bound, _ := a.body["propagation_ms"].(float64)
		if a.status != http.StatusOK || bound != 3000 {
			t.Fatalf("%d %s: want a promise of 3 s", a.status, a.raw)
		}
		if code == plain {
			continue
		}
		answered := time.Now()
		p.eventually("the CDN has purged "+code, func() bool { done, _ := c.times(p.url(code)); return len(done) == 1 })
		done, _ := c.times(p.url(code))
		if early, late := done[0].Sub(began), done[0].Sub(answered); early < time.Second || late > time.Duration(bound)*time.Millisecond {
			t.Errorf("purged %s after the edit: want not before redirect nodes follow (1 s) and within %v ms", early, bound)
		}
	}
	if _, asked := c.times(p.url(plain)); asked != 0 {
		t.Error("a link that nobody may cache was purged")
	}
	if _, asked := c.times("http://127.0.0.1:" + strings.Split(p.domain(), ":")[1] + "/" + cached); asked == 0 {
		t.Error("the link was not purged under the other name of its domain")
	}

	c.answers(http.StatusNotFound)
	if a := p.api("POST", p.link(cached, "/disable"), fields{"reason": "purge"}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	var dead struct {
		Waiting, Requeued int
		Letters           []struct {
			Handler, Reason string
			Change          struct{ Code string }
		}
	}
	p.eventually("there is a dead letter", func() bool { p.cliJSON(&dead, "effects", "dead"); return dead.Waiting == 1 })
	if l := dead.Letters[0]; l.Handler != "purge" || l.Change.Code != cached || !strings.Contains(l.Reason, "404") {
		t.Errorf("letter %+v", l)
	}
	var status struct {
		DeadLetters int `json:"dead_letters"`
		Effects     []struct {
			Handler    string
			Done, Dead int
		}
		Attention []struct{ Part, Do string }
	}
	p.eventually("status knows of it", func() bool { p.cliJSON(&status, "status"); return status.DeadLetters == 1 })
	if len(status.Effects) != 2 || status.Effects[0].Handler != "purge" || status.Effects[1].Handler != "lists" || status.Effects[0].Done != 1 || status.Effects[0].Dead != 1 ||
		!slices.ContainsFunc(status.Attention, func(a struct{ Part, Do string }) bool {
			return a.Part == "dead letters" && strings.Contains(a.Do, "--requeue")
		}) {
		t.Errorf("status %+v", status)
	}
	c.answers(http.StatusOK)
	if exit := p.cliJSON(&dead, "effects", "dead", "--requeue"); exit != 0 || dead.Requeued != 1 {
		t.Errorf("requeue: exit %d, %+v", exit, dead)
	}
	p.eventually("it is purged after all", func() bool { done, _ := c.times(p.url(cached)); return len(done) == 2 })
	if exit := p.cliJSON(&dead, "effects", "dead"); exit != 0 || dead.Waiting != 0 {
		t.Errorf("exit %d, %d dead letters wait", exit, dead.Waiting)
	}
	_, metrics := p.get(p.ports["admin"], "/metrics")
	if n := metric(t, metrics, `hoplog_effects_total{handler="purge",outcome="done"}`); n != 2 {
		t.Errorf("%v purges counted", n)
	}
	metric(t, metrics, `hoplog_propagation_seconds_count{cache="purge"}`)
	_, shown := p.get(p.ports["admin"], "/status")
	if strings.Contains(p.out.String()+metrics+shown, cdnToken) {
		t.Error("the token is shown")
	}
	if code, took := p.stop(); code != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: exit %d after %s", code, took)
	}
}

// TestPurgeSurvivesKills kills the effects process while a CDN that is down is asked for purges: when both are back, every
// link that was changed is purged after its change.
func TestPurgeSurvivesKills(t *testing.T) {
	c, p := newCDN(t), shared(t)
	var codes []string
	for i := range 30 {
		codes = append(codes, p.made(fields{"target": fmt.Sprint("https://example.com/kills/", i), "cache_ttl": 600}))
	}
	node := newProcess(t, append([]string{"serve", "--roles", "effects"}, c.purgeArgs()...), "admin")
	node.ports["kafka"] = p.ports["kafka"]
	node.env = append(node.env, "HOPLOG_PURGE_TOKEN="+cdnToken)
	node.start()
	edited := map[string]time.Time{}
	edit := func(codes []string) {
		for _, code := range codes {
			edited[code] = time.Now()
			if a := p.api("PATCH", p.link(code), fields{"target": "https://example.com/kills/new/" + code}); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.raw)
			}
		}
	}
	edit(codes[:10]) // may be done when the process is killed
	time.Sleep(1200 * time.Millisecond)
	c.answers(http.StatusServiceUnavailable)
	edit(codes[10:20]) // under way
	time.Sleep(1300 * time.Millisecond)
	node.kill()
	edit(codes[20:]) // nobody is there
	node.start()
	time.Sleep(1500 * time.Millisecond)
	node.kill()
	c.answers(http.StatusOK)
	node.start()
	for _, code := range codes {
		p.eventually("purged after its change: "+code, func() bool {
			done, _ := c.times(p.url(code))
			return slices.ContainsFunc(done, func(at time.Time) bool { return at.After(edited[code]) })
		})
	}
	if code, took := node.stop(); code != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: exit %d after %s", code, took)
	}
}
