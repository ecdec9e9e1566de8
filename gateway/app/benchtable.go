package app

import (
	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/gateway/bench"
)

func newBenchTable() *cobra.Command {
	return &cobra.Command{
		Use:   "table FILE...",
		Short: "Print saved results as a table in Markdown",
		Long:  "A line for each figure, with its range over the results that were measured by the same command. Files are those of --" + setOut + ".",
		RunE: func(c *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return usagef("name files with results")
			}
			reports := make([]*bench.Saved, len(paths))
			for i, path := range paths {
				var err error
				if reports[i], err = bench.Load(path); err != nil {
					return err
				}
			}
			return bench.Table(c.OutOrStdout(), reports)
		},
	}
}
