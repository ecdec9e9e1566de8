package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Saved is a report that was read from a file.
type Saved struct {
	Report
	path string
}

// resultsOf makes an empty result of each scenario.
var resultsOf = map[string]func() Result{
	"create": func() Result { return &CreateResult{} }, "redirect": func() Result { return &RedirectResult{} },
	"replay": func() Result { return &ReplayResult{} }, "memory": func() Result { return &MemoryResult{} },
	"takeover": func() Result { return &TakeoverResult{} }, "start": func() Result { return &StartResult{} },
	"ban": func() Result { return &BanResult{} },
}

// Load reads a report that Save wrote.
func Load(path string) (*Saved, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a result: %w", err)
	}
	var raw struct {
		Scenario string          `json:"scenario"`
		Result   json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrResult, err)
	}
	empty := resultsOf[raw.Scenario]
	if empty == nil || len(raw.Result) == 0 {
		return nil, fmt.Errorf("%s: %w: scenario %q", path, ErrResult, raw.Scenario)
	}
	s := &Saved{Report: Report{Result: empty()}, path: path}
	if err := json.Unmarshal(text, &s.Report); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrResult, err)
	}
	return s, nil
}

// row is a line of the table: one figure, of one way to measure it.
type row struct {
	what, command, floor string
	figures              []figureRange
}

// figureRange is a figure over all results of the same kind.
type figureRange struct {
	format   func(from, to float64) string
	from, to float64
}

// figureOf is a figure with the text around it, %s; of several the smallest and largest are shown.
func figureOf(text string, value float64, show func(float64) string) figureRange {
	return figureRange{from: value, to: value, format: func(from, to float64) string {
		shown := show(from)
		if other := show(to); other != shown {
			shown += "–" + other
		}
		return fmt.Sprintf(text, shown)
	}}
}

func (r *row) add(other row) {
	for i := range r.figures {
		r.figures[i].from, r.figures[i].to = min(r.figures[i].from, other.figures[i].from), max(r.figures[i].to, other.figures[i].to)
	}
}

// Table writes the figures of reports as a table in Markdown: a line for each figure, with the range over the reports in which
// it was measured the same way. Reports with wrong answers in them are refused.
func Table(w io.Writer, reports []*Saved) error {
	var rows []row
	machines, versions := map[string]bool{}, map[string]bool{}
	for _, r := range reports {
		if r.Wrong != "" {
			return fmt.Errorf("%s: %w: %s", r.path, ErrWrong, r.Wrong)
		}
		machines[r.Machine.line()], versions[r.Machine.Hoplog] = true, true
		for _, next := range r.rows() {
			if i := slices.IndexFunc(rows, next.same); i >= 0 {
				rows[i].add(next)
			} else {
				rows = append(rows, next)
			}
		}
	}
	fmt.Fprintln(w, "| what | command | figure | floor |\n|---|---|---|---|")
	before := ""
	for _, r := range rows {
		command := "`" + r.command + "`"
		if command == before {
			command = "the same"
		} else {
			before = command
		}
		figures := make([]string, len(r.figures))
		for i, f := range r.figures {
			figures[i] = f.format(f.from, f.to)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", cell(r.what), cell(command), cell(strings.Join(figures, "; ")), cell(r.floor))
	}
	_, err := fmt.Fprintf(w, "\n%d runs of hoplog %s on %s.\n", len(reports), strings.Join(sortedKeys(versions), ", "), strings.Join(sortedKeys(machines), " and on "))
	return err
}

func (r row) same(other row) bool {
	return r.what == other.what && r.command == other.command && len(r.figures) == len(other.figures)
}

// cell keeps a text within its cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(text)
}

func sortedKeys(set map[string]bool) (keys []string) {
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// line describes a machine in a line.
func (m Machine) line() string {
	return fmt.Sprintf("%s, %d cores, %.0f GiB, Linux %s, %s", m.CPU, m.Cores, m.MemoryGiB, m.Kernel, m.Filesystem)
}

// rows are the figures of a report: those of redirects, and the floors of every scenario.
func (s *Saved) rows() (rows []row) {
	if r, ok := s.Result.(*RedirectResult); ok {
		return r.rows(s.Command)
	}
	for _, f := range s.Result.floors() {
		rows = append(rows, row{f.Name, s.Command, figure(f.Bound), []figureRange{figureOf("%s", f.Measured, figure)}})
	}
	return rows
}

func decimals(f float64) string { return fmt.Sprintf("%.2f", f) }
func tenths(f float64) string   { return fmt.Sprintf("%.1f", f) }

func (r *RedirectResult) rows(command string) (rows []row) {
	links := thousands(float64(r.Links)) + " links"
	add := func(what, floor string, figures ...figureRange) {
		rows = append(rows, row{what, command, floor, figures})
	}
	own := []figureRange{figureOf("%s µs", r.Hoplog.CPU, tenths)}
	floor := ""
	if r.Nginx != nil {
		floor = fmt.Sprintf("%.1f × nginx", floorRedirect)
		own = append(own, figureOf("%s × nginx `return 302` in the same run", r.Ratios.CPU, decimals), figureOf("%s of its requests/s", r.Ratios.Throughput, decimals),
			figureOf("%s with the same clicks for log and sink beside nginx", r.Ratios.ThroughputBusy, decimals))
	}
	if r.Hoplog.Hits > 0 {
		own = append(own, figureOf("%s %% of look-ups from memory", 100*r.Hoplog.Hits, tenths))
	}
	add("CPU per redirect, click included, "+links, floor, own...)
	if r.Hoplog.Half != nil {
		half := []figureRange{figureOf("%s", r.Hoplog.Half.P99MS, short)}
		if r.Nginx != nil {
			half = append(half, figureOf("nginx with the same clicks beside it %s", r.NginxBusy.Half.P99MS, short), figureOf("alone %s", r.Nginx.Half.P99MS, short))
		}
		add("p99 of a redirect at half load, log and sink beside it, "+links, "", half...)
	}
	if r.Few != nil {
		add("growth of CPU per redirect from "+thousands(float64(r.SmallLinks))+" links to "+thousands(float64(r.Links))+", as many visited", "", figureOf("%s", r.Ratios.Growth, decimals))
	}
	for _, p := range r.Beside {
		add(p.Name+" in the same runs, "+links+" of ours", "", figureOf("%s × the CPU of hoplog per redirect", per(p.CPU, r.Hoplog.CPU), tenths),
			figureOf("%s of its requests/s", per(p.PerSecond, r.Hoplog.PerSecond), decimals))
	}
	if r.ReadySeconds > 0 {
		add("a redirect node with "+links, "", figureOf("built from the log in %s s", r.ReadySeconds, tenths), figureOf("started again in %s s", r.AgainSeconds, tenths),
			figureOf("%s bytes of disk a link", r.DiskBytes, thousands), figureOf("%s bytes of heap a link beside blocks of the store", r.HeapBytes, tenths),
			figureOf("%s MiB", r.MemoryMiB, thousands))
	}
	return rows
}
