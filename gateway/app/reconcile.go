package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/clicks"
)

func reconcileFlags(f *pflag.FlagSet) {
	f.String("from", "", "compare clicks from this time on (RFC 3339, cut to minutes); default: all that is retained")
	f.String("to", "", "compare clicks before this time (RFC 3339, cut to minutes)")
	f.Bool("repair", false, "make ClickHouse hold again what the log says")
}

func newReconcile() *cobra.Command {
	c := &cobra.Command{
		Use:   "reconcile [--from T] [--to T] [--repair]",
		Short: "Count the clicks in the log again and compare ClickHouse with them",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			o, err := reconcileOptions(s)
			if err != nil {
				return err
			}
			return withReader(c, nil, func(ctx context.Context, r *reading) error { return reconcile(ctx, r, o) })
		},
	}
	return withFlags(c, reconcileFlags, kafkaFlags, clickhouseFlags, jsonFlag)
}

func reconcileOptions(s settings) (o clicks.Options, err error) {
	if o.From, err = timeSetting(s, "from"); err != nil {
		return o, err
	}
	if o.To, err = timeSetting(s, "to"); err != nil {
		return o, err
	}
	if !o.From.IsZero() && !o.To.IsZero() && !o.From.Truncate(time.Minute).Before(o.To.Truncate(time.Minute)) {
		return o, usagef("--from %s is not before --to %s", s.GetString("from"), s.GetString("to"))
	}
	o.Repair = s.GetBool("repair")
	return o, nil
}

// timeSetting reads an RFC 3339 time; zero when it is not set.
func timeSetting(s settings, name string) (time.Time, error) {
	text := s.GetString(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, usagef("--%s %.80q: want a time as 2026-01-02T15:04:05Z", name, text)
	}
	return at, nil
}

func reconcile(ctx context.Context, r *reading, o clicks.Options) error {
	store, err := clicks.Open(r.clickhouse(), r.logger)
	if err != nil {
		return usageError{err}
	}
	defer store.Close()
	stage := ""
	o.Progress = func(now string, done, total int64) {
		if now != stage {
			stage = now
			r.told.begin(now, total)
		}
		r.told.set(done, total)
	}
	report, err := clicks.Reconcile(ctx, runner.ClickLogOf(r.Log), store, o)
	r.told.end()
	if errors.Is(err, clicks.ErrUnavailable) {
		return fmt.Errorf("ClickHouse at %s does not answer: is `hoplog dev` running? Name it with --clickhouse (%w)", r.GetString("clickhouse"), err)
	}
	if err != nil {
		return fmt.Errorf("reconciling: %w", err)
	}
	if r.GetBool("json") {
		err = printJSON(r.out, report)
	} else {
		err = printReconciliation(r.out, report)
	}
	if err == nil && !report.OK() {
		return errSilent
	}
	return err
}

func printReconciliation(w io.Writer, r *clicks.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	bound := func(at *time.Time, none string) string {
		if at == nil {
			return none
		}
		return at.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(t, "from\t%s\nto\t%s\n", bound(r.From, "the beginning of the log"), bound(r.To, "the end of the log"))
	for _, o := range r.Offsets {
		fmt.Fprintf(t, "partition %d\toffsets %d–%d\n", o.Partition, o.From, o.To)
	}
	fmt.Fprintf(t, "clicks in the log\t%d\nraw rows\t%d\naggregates\t%d\nmissing\t%d\nduplicated\t%d\ndifferences\t%d\n",
		r.LogClicks, r.RawClicks, r.AggregateClicks, r.Missing, r.Duplicated, len(r.Differences))
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range r.Differences {
		if _, err := fmt.Fprintln(w, differenceLine(&r.Differences[i])); err != nil {
			return err
		}
	}
	if !r.OK() {
		_, err := fmt.Fprintln(w, "`hoplog reconcile --repair` makes ClickHouse hold again what the log says")
		return err
	}
	return nil
}

func differenceLine(d *clicks.Difference) string {
	line := fmt.Sprintf("%s: partition %d", d.Kind, d.Partition)
	if d.ToOffset > 0 {
		line += fmt.Sprintf(" offsets %d–%d", d.FromOffset, d.ToOffset)
	}
	if d.Table != "" {
		line += " " + d.Table
	}
	if d.LinkID != 0 {
		line += fmt.Sprintf(" link %d", d.LinkID)
	}
	if d.Bucket != nil {
		line += " " + d.Bucket.UTC().Format(time.RFC3339)
	}
	line += fmt.Sprintf(": log %d, raw %d, aggregate %d (%s)", d.Log, d.Raw, d.Aggregate, d.Detail)
	if d.Repaired {
		line += ", repaired"
	}
	return printable(line)
}
