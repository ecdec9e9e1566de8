package systemtest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPropagationIsKept edits links 200 times under light load, fewer on a machine that needs longer for them: every node answers the new target within what the answer to the
// edit promised. The nodes measure the same, and say that they keep it.
func TestPropagationIsKept(t *testing.T) {
	p := shared(t)
	other := p.serve(t, "redirect")
	nodes := []*process{p, other}
	var codes []string
	for i := range 20 {
		codes = append(codes, p.made(fields{"target": fmt.Sprint("https://example.com/propagation/", i)}))
	}
	for _, node := range nodes {
		p.eventually("every node serves them", func() bool { return visitNode(t, node, p.domain(), "/"+codes[19]).status == http.StatusFound })
	}
	var stop atomic.Bool
	var visitors sync.WaitGroup
	for i, node := range nodes {
		visitors.Go(func() {
			for n := i; !stop.Load(); n++ {
				_, _ = node.tryVisit("HEAD", "/"+codes[n%len(codes)], "Host", p.domain()) // the test itself looks at answers
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	defer visitors.Wait()
	defer stop.Store(true)
	var took []time.Duration
	began := time.Now()
	for edit := 0; edit < 200 && time.Since(began) < 20*time.Second; edit++ {
		path, target := codes[edit%len(codes)], fmt.Sprint("https://example.com/propagation/new/", edit)
		a := p.api("PATCH", p.link(path), fields{"target": target})
		answered := time.Now()
		if a.status == http.StatusServiceUnavailable {
			continue // a machine that is too busy: nothing was promised
		}
		bound, _ := a.body["propagation_ms"].(float64)
		if a.status != http.StatusOK || bound <= 0 {
			t.Fatalf("edit %d: %d %s", edit, a.status, a.raw)
		}
		for i, node := range nodes {
			for visitNode(t, node, p.domain(), "/"+path).header.Get("Location") != target {
				time.Sleep(time.Millisecond)
				if late := time.Since(answered); late > time.Duration(bound)*time.Millisecond {
					t.Fatalf("edit %d: node %d serves the old target %s after the answer, which promised %v ms", edit, i, late, bound)
				}
			}
		}
		took = append(took, time.Since(answered))
	}
	slices.Sort(took)
	n := len(took)
	if n < 20 {
		t.Fatalf("%d edits in %s", n, time.Since(began))
	}
	t.Logf("%d edits in %s; from the answer to the last of %d nodes: p50 %s, p99 %s, worst %s", n, time.Since(began).Round(time.Millisecond), len(nodes),
		took[n/2], took[n*99/100], took[n-1])
	_, metrics := other.get(other.ports["admin"], "/metrics")
	if n := metric(t, metrics, `hoplog_propagation_seconds_count{cache="redirect"}`); n < float64(len(took))/2 {
		t.Errorf("the other node has measured %v of %d edits", n, len(took))
	}
	if bound, late := metric(t, metrics, `hoplog_propagation_bound_seconds{cache="redirect"}`), metric(t, metrics, `hoplog_propagation_late_total{cache="redirect"}`); bound != 1 || late != 0 {
		t.Errorf("the other node measured %v late, bound %v s", late, bound)
	}
}

// metric reads a sample of a scrape.
func metric(t *testing.T, scrape, sample string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\S+)$`).FindStringSubmatch(scrape)
	if found == nil {
		t.Fatalf("there is no metric %s", sample)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
