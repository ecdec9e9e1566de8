package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Report is a scenario's result with when and where it was measured.
type Report struct {
	Scenario string         `json:"scenario"`
	Time     time.Time      `json:"time"`
	Machine  Machine        `json:"machine"`
	Settings map[string]any `json:"settings"`
	// Command is the command line as somebody else would type it: without names of files and addresses of this machine.
	Command string `json:"command,omitempty"`
	// Wrong says what was not done right; then the figures are of a load with wrong answers in it.
	Wrong  string `json:"wrong,omitempty"`
	Result Result `json:"result"`
}

// Result is what a scenario found.
type Result interface {
	print(w io.Writer) error
	floors() []Floor
}

// NewReport describes the machine: before the run, for the load average.
func NewReport(scenario string, s *Setup, now time.Time, settings map[string]any) *Report {
	return &Report{Scenario: scenario, Time: now.UTC().Truncate(time.Second), Machine: describe(s.Version, s.dataDir()), Settings: settings}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	m := r.Machine
	_, err := fmt.Fprintf(w, "hoplog bench %s, %s\n%s, %d cores, %.0f GiB, Linux %s, %s, data on %s, hoplog %s, load average before %.2f\n\n",
		r.Scenario, r.Time.Format("2006-01-02 15:04 UTC"), m.CPU, m.Cores, m.MemoryGiB, m.Kernel, m.Go, m.Filesystem, m.Hoplog, m.Load)
	if err = errors.Join(err, r.Result.print(w)); err != nil {
		return err
	}
	for _, f := range r.Result.floors() {
		word := "kept"
		if !f.Kept {
			word = "NOT KEPT"
		}
		fmt.Fprintf(w, "floor: %s: %s, measured %s: %s\n", f.Name, figure(f.Bound), figure(f.Measured), word)
	}
	if m.Load > float64(m.Cores)/4 {
		fmt.Fprintf(w, "note: the machine was busy before the run (load average %.2f): the rates are too low and the latencies too high\n", m.Load)
	}
	if r.Wrong != "" {
		fmt.Fprintf(w, "WRONG: %s\n", r.Wrong)
	}
	return nil
}

// figure writes small numbers with decimals and large ones without.
func figure(f float64) string {
	if f < 100 {
		return fmt.Sprintf("%.2f", f)
	}
	return thousands(f)
}

// Save writes the report to a file in dir, named by scenario and time, and returns its path.
func (r *Report) Save(dir string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the report: %w", err)
	}
	text = roundNumbers(text)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("saving the report: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.json", r.Time.Format("20060102-150405"), r.Scenario))
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("saving the report: %w", err)
	}
	return path, nil
}

// longNumber is a number in indented JSON that has more than three decimals, with what comes before it on its line. Between the
// two of a name and its value there are no further quotes.
var longNumber = regexp.MustCompile(`(?m)^(\s*(?:"[^"\\]*": )?)(-?\d+\.\d{4,})(,?)$`)

// roundNumbers leaves three decimals of each number: more were never measured, and only make files differ.
func roundNumbers(text []byte) []byte {
	return longNumber.ReplaceAllFunc(text, func(line []byte) []byte {
		m := longNumber.FindSubmatch(line)
		number, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return line
		}
		return slices.Concat(m[1], strconv.AppendFloat(nil, math.Round(number*1000)/1000, 'f', -1, 64), m[3])
	})
}
