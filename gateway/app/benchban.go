package app

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/bench"
)

const setNodes = "nodes"

func newBenchBan() *cobra.Command {
	c := &cobra.Command{
		Use:   "ban",
		Short: "Measure how soon all redirect nodes refuse what was denied or banned",
		Long: "Several redirect nodes are visited all the time. Codes are denied, and links banned, and for each it is measured how long after the\n" +
			"API's answer the last node refuses. --" + setBrokers + " names a Kafka on this machine instead of the embedded broker.",
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setNodes, setRounds}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				return bench.Ban(ctx, bench.BanConfig{Setup: setup, Nodes: s.GetInt(setNodes), Rounds: s.GetInt(setRounds)})
			})
		},
	}
	return withFlags(c, benchFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.String(setBrokers, "", brokersUsage)
		f.Int(setNodes, 3, "redirect nodes, processes of their own")
		f.Int(setRounds, 300, "denials, and as many bans")
	})
}
