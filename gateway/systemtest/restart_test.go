package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestStartFoldsOnlyTheTail: a start goes on where the stores stand. How many envelopes it folds again does not grow with the
// log, neither after a clean stop nor after kill -9.
func TestStartFoldsOnlyTheTail(t *testing.T) {
	const batches, batch = 5, 400
	p := dev(t)
	for i := range batches {
		rows := make([]fields, batch)
		for n := range rows {
			rows[n] = fields{"target": fmt.Sprintf("https://example.com/%d/%d", i, n)}
		}
		if a := p.api(http.MethodPost, "/v1/links:batch", map[string]any{"links": rows}); a.status != http.StatusOK {
			t.Fatalf("batch: %d %s", a.status, a.raw)
		}
	}
	for name, end := range map[string]func(){"kill -9": p.kill, "SIGTERM": func() { p.stop() }} {
		end()
		p.start()
		for fold, records := range p.foldedOfLinks() {
			// The last 32 KiB of a store's own log may still be in the process when it is killed, about a hundred envelopes.
			if records > batches*batch/5 {
				t.Errorf("after %s, %s folded %d of %d envelopes again", name, fold, records, batches*batch)
			}
		}
		if code := p.made(fields{"target": "https://example.com/after"}); code == "" {
			t.Errorf("after %s, nothing is created", name)
		}
	}
}

// foldedOfLinks is how many envelopes of links each fold of the process has read from the log since the start. Those that a
// writer wrote itself do not count.
func (p *process) foldedOfLinks() map[string]int {
	p.t.Helper()
	code, body := p.get(p.ports["admin"], "/status")
	var status struct {
		Projections []struct {
			Projection string
			Applied    int
		}
		Writers []struct {
			Stream string
			Folded int
		}
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != http.StatusOK {
		p.t.Fatalf("status: %d %v %s", code, err, body)
	}
	folded := map[string]int{}
	for _, projection := range status.Projections {
		if !strings.HasPrefix(projection.Projection, "control") {
			folded[projection.Projection] = projection.Applied
		}
	}
	for _, w := range status.Writers {
		if w.Stream == "link" {
			folded["writers"] += w.Folded
		}
	}
	if len(folded) != 3 {
		p.t.Fatalf("folds of links: %v", folded)
	}
	return folded
}
