package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's tour works as printed: every command succeeds, and what a reader is promised is in the output.
func TestReadmeTour(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```sh\n# Make a link")
	tour, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the README has no tour")
	}
	p := dev(t)
	ports := strings.NewReplacer("localhost:8081", p.domain(), "127.0.0.1:8080", p.ports["api"], "bin/hoplog", binary(t))
	script := filepath.Join(t.TempDir(), "tour.sh")
	if err := os.WriteFile(script, []byte("set -euo pipefail\n# Make a link"+ports.Replace(tour)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", script)
	cmd.Env = p.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	for _, words := range []string{"https://example.com/spring\r", "https://example.com/summer?from=short&utm_source=mail\r", "\n403\n",
		"HTTP/1.1 201", "Idempotency-Replayed: true", `"data_age_seconds"`, "link.unbanned", "problems   0", "differences        0", "0 differed", "hoplog.events.link", "ready: true"} {
		at := strings.Index(text, words)
		if at < 0 {
			t.Errorf("the tour does not show %q, or not in its place", words)
			continue
		}
		text = text[at+len(words):]
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
