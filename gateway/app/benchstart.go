package app

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/bench"
)

// setOnly is for the processes that a scenario starts from this binary.
const setOnly = "only"

func newBenchStart() *cobra.Command {
	c := &cobra.Command{
		Use:   "start",
		Short: "Measure the embedded broker's own start on a log of many links",
		Long:  "Fills a log, and starts the broker on it in processes of its own: after a clean stop, and as after kill -9.",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if dir, _ := c.Flags().GetString(setOnly); dir != "" {
				took, err := bench.StartOnly(dir)
				if err != nil {
					return err
				}
				return printJSON(c.OutOrStdout(), took)
			}
			return runBench(c, []string{setLinks, setRounds}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				return bench.StartAfter(ctx, bench.StartConfig{Setup: setup, Links: s.GetInt(setLinks), Rounds: s.GetInt(setRounds)})
			})
		},
	}
	return withFlags(c, benchFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.Int(setLinks, 1_000_000, "links in the log")
		f.Int(setRounds, 3, "starts of either kind")
		f.String(setOnly, "", "start once on this directory and say what it took (of a broker that does not run)")
	})
}
