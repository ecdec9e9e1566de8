package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
)

// sinkStatus is how the click sink of one partition is, as JSON.
type sinkStatus struct {
	Partition  int32      `json:"partition"`
	Next       int64      `json:"next"`
	Rows       uint64     `json:"rows"`
	Repeats    uint64     `json:"repeats"`
	Gaps       uint64     `json:"gaps"`
	LastInsert *time.Time `json:"last_insert,omitempty"`
	Error      string     `json:"error,omitempty"`
}

func sinkOf(s runner.ClickSinkStatus) (list []sinkStatus) {
	for _, p := range s.Partitions {
		out := sinkStatus{Partition: p.Partition, Next: p.Next, Rows: p.Rows, Repeats: p.Repeats, Gaps: p.Gaps}
		if !p.LastInsert.IsZero() {
			at := p.LastInsert.UTC()
			out.LastInsert = &at
		}
		if err := errors.Join(p.Stopped, p.Waiting); err != nil {
			out.Error = err.Error()
		}
		list = append(list, out)
	}
	return list
}

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how a running process is: health, freshness, writers, projections, clicks",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			var r statusReport
			if err := askAdmin(c.Context(), s.GetString(setAdmin), "/status", &r); err != nil {
				return err
			}
			if s.GetBool("json") {
				err = printJSON(c.OutOrStdout(), r)
			} else {
				err = r.print(c.OutOrStdout())
			}
			if err == nil && !r.Ready {
				return errSilent
			}
			return err
		},
	}
	return withFlags(c, adminFlags, jsonFlag)
}

// askAdmin reads JSON from a running process's admin address.
func askAdmin(ctx context.Context, addr, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return usagef("admin address: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no process answers at the admin address %s (name another with --admin): %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the admin address %s answers %s", addr, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", addr, err)
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (r statusReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "hoplog %s\tready: %v\tdomain: %s\tcontrol: control/0/%d\n", r.Version, r.Ready, r.Domain, r.Control)
	for _, role := range allRoles {
		if h, ok := r.Roles[role]; ok {
			fmt.Fprintf(t, "%s\t%s\t%s\n", role, h.State, h.Reason)
		}
	}
	if r.AsOf != nil {
		fmt.Fprintf(t, "read models\tas of %s\t(%s ago)\n", r.AsOf.Format(time.RFC3339), time.Since(*r.AsOf).Round(time.Millisecond))
	}
	if r.DataAge != nil {
		fmt.Fprintf(t, "data\tat most %.1f s old\n", *r.DataAge)
	}
	if r.ListsAge != nil {
		fmt.Fprintf(t, "lists and switches\tat most %.1f s old\n", *r.ListsAge)
	}
	for _, p := range r.Projections {
		fmt.Fprintf(t, "projection %s\tat %v\tbehind %v\t%s\n", p.Projection, p.Positions, p.Lag, withError(fmt.Sprintf("%d folded, %d void", p.Applied, p.Voids), p.Error))
	}
	for _, w := range r.Writers {
		fmt.Fprintf(t, "%s\t%s\tat %d\t%s\n", w.name(), w.Mode, w.Next, withError(w.counts(), w.Error))
	}
	if c := r.Clicks; c != nil {
		fmt.Fprintf(t, "clicks of this node\t%d sent, %d dropped, %d waiting, %d%% of the spool\t%s\t%s\n", c.Sent, c.Dropped, c.Waiting,
			100*c.WaitingBytes/max(1, c.SpoolBytes), c.Durability, c.LastError)
	}
	if r.Scan != nil {
		fmt.Fprintf(t, "visitors\t%s\n", scanLine(r.Scan))
	}
	for _, s := range r.Sink {
		fmt.Fprintf(t, "sink %d\tat %d\t%d rows, %d repeats, %d missing\t%s\n", s.Partition, s.Next, s.Rows, s.Repeats, s.Gaps, s.Error)
	}
	for _, e := range r.Effects {
		fmt.Fprintf(t, "effects %s\tbehind %v%s\t%d done, %d failed attempts, %d given up\t%s\n", e.Handler, e.Lag, e.beside(), e.Done, e.Failed, e.Dead, e.Error)
	}
	for _, p := range r.Propagation {
		fmt.Fprintf(t, "changes to %s\t%s\n", p.Cache, p)
	}
	if e := r.ClickHouse; e != nil {
		fmt.Fprintf(t, "embedded ClickHouse\t%s\tready: %v\t%d restarts\n", e.Version, e.Ready, e.Restarts)
	}
	if s := r.Shared; s != nil {
		fmt.Fprintf(t, "shared tier %s\t%s\t%d hits, %d misses, %d unusable; %d written, %d there, %d newer there\t%s\n", s.URL, sharedState(s), s.Hits, s.Misses, s.Unusable,
			s.Written, s.Same, s.Newer, s.Error)
	}
	for _, a := range r.Attention {
		fmt.Fprintf(t, "\nlook at %s: %s\n  %s\n", a.Part, a.Off, a.Do)
	}
	if len(r.Attention) == 0 {
		fmt.Fprintln(t, "nothing to look at")
	}
	return t.Flush()
}

func sharedState(s *shared.Status) string {
	if s.State == "closed" {
		return "in use"
	}
	return "not asked since " + s.Since.Format(time.RFC3339)
}

// counts is what a writer did since the start, what waits for it, and what it has left.
func (w writerStatus) counts() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d void", w.Voids)
	if !w.Writing() {
		return b.String()
	}
	fmt.Fprintf(&b, ", %d waiting, %d decided", w.Behind, w.Decided)
	if w.Batches > 0 {
		fmt.Fprintf(&b, " in batches of %.1f", float64(w.Decided)/float64(w.Batches))
	}
	fmt.Fprintf(&b, ", %d replays, %d not confirmed", w.Lives, w.Unconfirmed)
	if w.Mint != nil {
		fmt.Fprintf(&b, ", %d codes pooled", w.Mint.Pooled)
		for _, s := range w.Mint.Spaces {
			fmt.Fprintf(&b, ", %d ids left for %s", s.Left, spaceName(s.Space))
		}
	}
	return b.String()
}

// spaceName says what the ids of a space are for.
func spaceName(space uint32) string {
	if space == 0 {
		return "custom and random codes"
	}
	return fmt.Sprintf("codes of %d characters", space)
}

// withError is what a row says last.
func withError(text, fault string) string {
	if fault == "" {
		return text
	}
	return text + ": " + fault
}

// sleep reports whether the time passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
