package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestScan guesses codes at a node from one address while another visits links, and from a network that may guess.
func TestScan(t *testing.T) {
	p := dev(t)
	node := p.serve(t, "redirect", "--trusted-hops", "1", "--scan-limit", "30", "--scan-allow", "192.0.2.0/24")
	code := p.made(fields{"target": "https://example.com/"})
	visit := func(path, from string) answer {
		return node.visit("/"+path, "Host", p.domain(), "X-Forwarded-For", from+", 10.0.0.1")
	}
	node.eventually("the node serves "+code, func() bool { return visit(code, "203.0.113.1").status == http.StatusFound })
	count := map[int]int{}
	for i := range 200 {
		a := visit(fmt.Sprintf("guess-%d", i), "198.51.100.7")
		count[a.status]++
		if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
			t.Fatalf("%v", a.header)
		}
		if i%10 == 0 {
			for _, other := range []string{"203.0.113.1", "198.51.100.8"} {
				if a := visit(code, other); a.status != http.StatusFound {
					t.Errorf("a visitor from %s: %d", other, a.status)
				}
				if a := visit("typo", other); a.status != http.StatusNotFound {
					t.Errorf("a typo from %s: %d", other, a.status)
				}
			}
			if a := visit(fmt.Sprintf("probe-%d", i), "192.0.2.1"); a.status != http.StatusNotFound {
				t.Errorf("who may guess: %d", a.status)
			}
		}
	}
	if count[http.StatusNotFound] < 30 || count[http.StatusNotFound] > 60 || count[http.StatusNotFound]+count[http.StatusTooManyRequests] != 200 {
		t.Errorf("guesses: %v", count)
	}
	if a := visit(code, "198.51.100.7"); a.status != http.StatusFound {
		t.Errorf("a link that many follow, from the guesser's address: %d", a.status)
	}
	var status struct {
		Scan struct {
			Closed   int
			UnderWay bool `json:"under_way"`
			Network  string
		}
	}
	if exit := node.cliJSON(&status, "status"); exit != 0 || status.Scan.Closed != 1 || !status.Scan.UnderWay || status.Scan.Network != "198.51.100.0/24" {
		t.Errorf("status: exit %d, %+v", exit, status)
	}
	if _, text := node.get(node.ports["admin"], "/metrics"); !strings.Contains(text, `hoplog_redirect_scan_refused_total{what="unknown"} 1`) || !strings.Contains(text, `hoplog_redirect_connections{listener="http"}`) {
		t.Error("the metrics do not show it")
	}
	node.eventually("one line in the log says so", func() bool { return strings.Count(node.out.String(), "codes are being guessed") == 1 })
}
