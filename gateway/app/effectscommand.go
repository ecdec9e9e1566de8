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

	"github.com/hoplog/hoplog/gateway/effects"
)

func newEffects() *cobra.Command {
	c := &cobra.Command{Use: "effects", Short: "Look after the effects of link changes on caches outside", Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(newEffectsDead())
	return c
}

func deadFlags(f *pflag.FlagSet) {
	f.Bool("requeue", false, "have all of them tried again")
	f.Bool("drop", false, "look after all of them by doing nothing")
	f.Int("limit", 100, "how many are shown at most (0: all)")
}

// deadReport is what `effects dead --json` prints.
type deadReport struct {
	Waiting  int64            `json:"waiting"` // when the command started
	Letters  []effects.Letter `json:"letters"` // the oldest of them
	Requeued int64            `json:"requeued,omitempty"`
	Dropped  int64            `json:"dropped,omitempty"`
}

func newEffectsDead() *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "Show the dead letters: effects that were given up; have them tried again, or drop them",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			if s.GetBool("requeue") && s.GetBool("drop") {
				return usagef("--requeue and --drop exclude each other")
			}
			r, err := openReader(c.Context(), s)
			if err != nil {
				return err
			}
			defer r.Close()
			report, err := lookAfter(c.Context(), effects.DeadLetters(r.Log), s, newProgress(c.ErrOrStderr()))
			if err != nil {
				return err
			}
			if s.GetBool("json") {
				return printJSON(c.OutOrStdout(), report)
			}
			return report.print(c.OutOrStdout())
		},
	}
	return withFlags(c, deadFlags, kafkaFlags, jsonFlag)
}

// lookAfter shows the letters that wait now, and does with them what was asked for.
func lookAfter(ctx context.Context, letters effects.Letters, s settings, bar *progress) (*deadReport, error) {
	from, to, err := letters.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	r := &deadReport{Waiting: to - from, Letters: []effects.Letter{}}
	limit := s.GetInt("limit")
	errEnough := errors.New("enough")
	err = letters.Each(ctx, from, to, func(l *effects.Letter) error {
		if limit > 0 && len(r.Letters) >= limit {
			return errEnough
		}
		r.Letters = append(r.Letters, *l)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	switch {
	case r.Waiting == 0:
	case s.GetBool("requeue"):
		bar.begin("putting back", r.Waiting)
		defer bar.end()
		if err := letters.Requeue(ctx, from, to, func(n int) { r.Requeued += int64(n); bar.set(r.Requeued, r.Waiting) }); err != nil {
			return nil, fmt.Errorf("%w: %d of %d were put back; run the command again, some may be tried twice", err, r.Requeued, r.Waiting)
		}
	case s.GetBool("drop"):
		if err := letters.Drop(ctx, to); err != nil {
			return nil, err
		}
		r.Dropped = r.Waiting
	}
	return r, nil
}

func (r *deadReport) print(w io.Writer) error {
	if r.Waiting == 0 {
		_, err := fmt.Fprintln(w, "no dead letters wait")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "OFFSET\tTIME\tHANDLER\tLINK\tVERSION\tREASON")
	for _, l := range r.Letters {
		link, version := "unreadable", uint64(0)
		if l.Change != nil {
			link, version = l.Change.String(), l.Change.Version
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%q\t%d\t%q\n", l.Offset, l.Time.Format(time.RFC3339), l.Handler, link, version, l.Reason)
	}
	if more := r.Waiting - int64(len(r.Letters)); more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	switch {
	case r.Requeued > 0:
		fmt.Fprintf(t, "%d are put back: a running effects process tries them again\n", r.Requeued)
	case r.Dropped > 0:
		fmt.Fprintf(t, "%d are dropped\n", r.Dropped)
	default:
		fmt.Fprintln(t, "when the reason is gone: hoplog effects dead --requeue")
	}
	return t.Flush()
}
