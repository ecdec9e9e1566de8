package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func loadAll(t *testing.T, names ...string) (reports []*Saved) {
	t.Helper()
	for _, name := range names {
		r, err := Load(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	return reports
}

func TestTableShowsTheRangeOverResultsOfOneCommand(t *testing.T) {
	var out bytes.Buffer
	if err := Table(&out, loadAll(t, "redirect-1.json", "redirect-2.json", "replay.json")); err != nil {
		t.Fatal(err)
	}
	want := `| what | command | figure | floor |
|---|---|---|---|
| CPU per redirect, click included, 10,000,000 links | ` + "`hoplog bench redirect --links=10000000`" + ` | 8.0–9.0 µs; 1.00–1.25 × nginx ` + "`return 302`" + ` in the same run; 0.70–0.80 of its requests/s; 0.95–1.05 with the same clicks for log and sink beside nginx | 1.3 × nginx |
| p99 of a redirect at half load, log and sink beside it, 10,000,000 links | the same | 4.0 ms–12 ms; nginx with the same clicks beside it 5.0 ms; alone 3.0 ms |  |
| growth of CPU per redirect from 10,000 links to 10,000,000, as many visited | the same | 1.02–1.05 |  |
| a\|peer in the same runs, 10,000,000 links of ours | the same | 6.0 × the CPU of hoplog per redirect; 0.20–0.25 of its requests/s |  |
| replayed events/s | ` + "`hoplog bench replay`" + ` | 512,345 | 400,000 |

3 runs of hoplog abc, def on AMD EPYC, 2 cores, 24 GiB, Linux 6.1, ext4.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestTableTakesNoWrongResults(t *testing.T) {
	reports := loadAll(t, "replay.json")
	reports[0].Wrong = "two requests failed"
	if err := Table(&bytes.Buffer{}, reports); !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
	for name, text := range map[string]string{"no JSON": "x", "no scenario": "{}", "another scenario": `{"scenario":"other","result":{}}`, "no result": `{"scenario":"replay"}`,
		"a list": `{"scenario":"replay","result":[]}`} {
		path := filepath.Join(t.TempDir(), "file.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !errors.Is(err, ErrResult) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestFilesHaveShortNumbers(t *testing.T) {
	in := "{\n  \"a\": 1.23456,\n  \"b\": -0.00009,\n  \"c\": [\n    2.0005001\n  ],\n  \"d\": \"3.14159\",\n  \"e\": 5.25,\n  \"f\": \"x \\\"y\\\": 3.14159,\"\n}"
	want := strings.NewReplacer("1.23456", "1.235", "-0.00009", "-0", "2.0005001", "2.001").Replace(in)
	if got := string(roundNumbers([]byte(in))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
