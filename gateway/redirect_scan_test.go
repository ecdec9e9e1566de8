package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/schemas/pb"
)

func newScanGuard(t testing.TB, config scan.Config) *scan.Guard {
	t.Helper()
	guard, err := scan.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// pipelined asks for paths on one connection and returns the statuses.
func (n *redirectNode) pipelined(paths []string, headers string) (statuses []int, answers []redirectAnswer) {
	n.t.Helper()
	for len(paths) > 0 {
		some := paths[:min(len(paths), 500)]
		paths = paths[len(some):]
		var raw strings.Builder
		for _, path := range some {
			fmt.Fprintf(&raw, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, n.host, headers)
		}
		for _, a := range redirectParseAnswers(n.t, n.send(raw.String()), "GET") {
			statuses, answers = append(statuses, a.status), append(answers, a)
		}
	}
	return statuses, answers
}

func countStatuses(statuses []int) map[int]int {
	count := map[int]int{}
	for _, s := range statuses {
		count[s]++
	}
	return count
}

func guessedPaths(prefix string, n int) (paths []string) {
	for i := range n {
		paths = append(paths, "/"+prefix+strconv.Itoa(i))
	}
	return paths
}

func TestRedirectScanIsLimited(t *testing.T) {
	var now atomic.Int64
	now.Store(redirectTestNow)
	var log bytes.Buffer
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Scan, d.Clock, d.Logger = newScanGuard(t, scan.Config{}), now.Load, slog.New(slog.NewTextHandler(&log, nil))
	})
	for i := range 200 {
		node.add(fmt.Sprintf("link%d", i), &pb.Redirect{Target: "https://example.com/"})
	}
	if a := node.get("/link0"); a.status != http.StatusFound {
		t.Fatal(a.status)
	}
	statuses, answers := node.pipelined(guessedPaths("guess", 1000), "")
	if count := countStatuses(statuses); count[404] != 60 || count[429] != 940 {
		t.Fatalf("%v", count)
	}
	last := answers[len(answers)-1]
	checkSafe(t, "a guess", last)
	if last.header.Get("Retry-After") == "" || last.header.Get("Cache-Control") != redirectNever {
		t.Errorf("%v", last.header)
	}
	// A closed source learns little, and nothing from how it is refused.
	statuses, answers = node.pipelined(guessedPaths("link", 200), "")
	if count := countStatuses(statuses); count[302] < 15 || count[302] > 17 || count[302]+count[429] != 200 {
		t.Errorf("links that exist: %v", count)
	}
	if hit := answers[len(answers)-1]; hit.body != last.body || fmt.Sprint(hit.header) != fmt.Sprint(last.header) {
		t.Errorf("a link is refused with %v, a guess with %v", hit.header, last.header)
	}
	for path, status := range map[string]int{"/link0": 302, "/link3": 302, "/link150": 429, "/link150+": 429, "/robots.txt": 200} {
		if a := node.get(path); (a.status != status) && path != "/link0" { // link0 was followed long before
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
	now.Add(200e6)
	statuses, _ = node.pipelined([]string{"/link150", "/nothing"}, "")
	if fmt.Sprint(statuses) != "[302 404]" {
		t.Errorf("when it was silent as long as asked: %v", statuses)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "codes are being guessed") {
		t.Errorf("%d lines: %s", lines, &log)
	}
}

// Where the domain sends visitors of unknown codes elsewhere, a guess is one all the same.
func TestRedirectScanCountsWhoIsSentElsewhere(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Scan, d.Domains = newScanGuard(t, scan.Config{}), redirectTestNotFound{d.Domains, map[string]string{"s.example": "https://example.com/none"}}
	})
	statuses, answers := node.pipelined(guessedPaths("guess", 1000), "")
	if count := countStatuses(statuses); count[302] != 60 || count[429] != 940 {
		t.Fatalf("%v", count)
	}
	if last := answers[len(answers)-1]; last.location() != "" || last.header.Get("Retry-After") == "" {
		t.Errorf("%v", last.header)
	}
	if n := len(node.clicks()); n != 0 {
		t.Errorf("%d clicks", n)
	}
}

// On every listener, and before the disk is asked.
func TestRedirectScanOnListeners(t *testing.T) {
	guard := newScanGuard(t, scan.Config{})
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Scan = guard })
	for i := range 100 {
		node.add(fmt.Sprintf("link%d", i), &pb.Redirect{Target: "https://example.com/"})
	}
	node.pipelined(guessedPaths("guess", 500), "")
	for name, client := range redirectClients(t, node) {
		scheme := "http"
		if strings.HasSuffix(name, "TLS") {
			scheme = "https"
		}
		answer, err := client.Get(scheme + "://s.example/another-guess")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v", name, answer.StatusCode, answer.Header)
		}
	}
	node.store.setCold(true)
	count := map[int]int{}
	for i := range 100 {
		count[node.get(fmt.Sprintf("/link%d", i)).status]++
	}
	before := node.store.loaded()
	for i := range 100 {
		count[node.get(fmt.Sprintf("/cold%d", i)).status]++
	}
	if node.store.loaded() != before || count[302] < 15 || count[302] > 17 || count[302]+count[429] != 200 {
		t.Errorf("%v, %d asked of the store", count, node.store.loaded()-before)
	}
}

// Who is limited is who guesses: never the proxy, and nobody whom a visitor names.
func TestRedirectScanSources(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]struct {
		change          func(*RedirectDeps)
		guesser, victim string // headers
		before          string // PROXY header of the victim
		limited         bool   // the guesser is
	}{
		"spoofed header, no proxy":   {func(*RedirectDeps) {}, "X-Forwarded-For: 192.0.2.7\r\n", "", "", true},
		"spoofed behind a proxy":     {func(d *RedirectDeps) { d.TrustedHops = 1 }, "X-Forwarded-For: 192.0.2.7, 203.0.113.1, 10.0.0.1\r\n", "X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\n", "", true},
		"a proxy that names nobody":  {func(d *RedirectDeps) { d.TrustedHops = 1 }, "", "X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\n", "", false},
		"a proxy that names rubbish": {func(d *RedirectDeps) { d.TrustedHops = 1 }, "X-Forwarded-For: unknown, 10.0.0.1\r\n", "", "", false},
		"PROXY":                      {func(d *RedirectDeps) { d.Proxies = loopback }, "", "", "PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			node := newRedirectNode(t, c.change, func(d *RedirectDeps) { d.Scan = newScanGuard(t, scan.Config{}) })
			node.add("abc", &pb.Redirect{Target: "https://example.com/"})
			var raw strings.Builder
			if c.before != "" {
				raw.WriteString("PROXY UNKNOWN\r\n")
			}
			for i := range 300 {
				fmt.Fprintf(&raw, "GET /g%d HTTP/1.1\r\nHost: s.example\r\n%s\r\n", i, c.guesser)
			}
			answers := redirectParseAnswers(t, node.send(raw.String()), "GET")
			if got := answers[len(answers)-1].status; got != map[bool]int{true: 429, false: 404}[c.limited] {
				t.Errorf("the last guess: %d", got)
			}
			if c.victim == c.guesser || c.victim == "" && c.before == "" {
				return
			}
			a := redirectParseAnswers(t, node.send(c.before+"GET /typo HTTP/1.1\r\nHost: s.example\r\n"+c.victim+"\r\n"), "GET")
			if len(a) != 1 || a[0].status != http.StatusNotFound {
				t.Errorf("the victim's typo: %v", a)
			}
		})
	}
}

// A node that does not know all links yet counts nothing against anybody.
func TestRedirectScanWhileIncomplete(t *testing.T) {
	guard := newScanGuard(t, scan.Config{})
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Scan, d.Complete = guard, func() error { return http.ErrBodyNotAllowed }
	})
	statuses, _ := node.pipelined(guessedPaths("x", 500), "")
	if count := countStatuses(statuses); count[503] != 500 {
		t.Errorf("%v", count)
	}
	if s := guard.Status(redirectTestNow); s.Guesses != 0 {
		t.Errorf("%+v", s)
	}
}
