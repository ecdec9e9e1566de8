package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/projections/runner"
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
	for _, p := range r.Projections {
		fmt.Fprintf(t, "projection %s\tat %v\tbehind %v\t%d folded, %d void\t%s\n", p.Projection, p.Positions, p.Lag, p.Applied, p.Voids, p.Error)
	}
	for _, p := range r.Writers {
		fmt.Fprintf(t, "writer %s/%d\t%s\tat %d\t%d void\t%s\n", p.Stream, p.Partition, p.Mode, p.Next, p.Voids, p.Error)
	}
	if c := r.Clicks; c != nil {
		fmt.Fprintf(t, "clicks of this node\t%d sent, %d dropped, %d waiting\t%s\t%s\n", c.Sent, c.Dropped, c.Waiting, c.Durability, c.LastError)
	}
	for _, s := range r.Sink {
		fmt.Fprintf(t, "sink %d\tat %d\t%d rows, %d repeats, %d missing\t%s\n", s.Partition, s.Next, s.Rows, s.Repeats, s.Gaps, s.Error)
	}
	if e := r.ClickHouse; e != nil {
		fmt.Fprintf(t, "embedded ClickHouse\t%s\tready: %v\t%d restarts\n", e.Version, e.Ready, e.Restarts)
	}
	return t.Flush()
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
