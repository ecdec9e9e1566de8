package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/bench"
)

// fillAbove is from how many links on they are written straight to the log: through the API ten millions would take ten minutes.
const fillAbove = 1_000_000

func newBenchRedirect() *cobra.Command {
	c := &cobra.Command{
		Use:   "redirect",
		Short: "Measure a redirect node, beside nginx if it is installed",
		Long: "Each round loads the node as far as it goes, and then with half of that at a fixed rate; nginx the same way, alone and with the same\n" +
			"clicks going to the log and the sink beside it; and the servers that --" + setBeside + " names as far as they go.\n\n" +
			"Links are created through the API, or with --" + setFill + " written straight to the log as a writer would: one link in nine is then changed once,\n" +
			"and the process beside the node holds the log and the click sink alone.",
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setLinks, setSeconds, setRounds, setClients}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				cfg, err := s.benchRedirect(setup)
				if err != nil {
					return nil, err
				}
				return bench.Redirect(ctx, cfg)
			})
		},
	}
	return withFlags(c, benchFlags, runningFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.Int(setLinks, 100_000, "links that the node holds")
		f.Int(setVisited, 0, "how many of them are visited, by Zipf's law and scattered over all of them; 0: all")
		f.Bool(setFill, false, fmt.Sprintf("write the links straight to the log instead of creating them through the API; so it is done with more than %d", fillAbove))
		f.Int(setGrowthFrom, 0, "measure in the same rounds what a redirect costs when so many of the links are visited, and what on a second node that holds no more than so many; 0: not")
		f.Int(setHotLinks, 0, "MiB of links that the node keeps in memory; 0: what it does by itself")
		f.StringArray(setBeside, nil, "another server to load, as NAME=HOST:PORT,PID,FILE; the file names the path of one of its links in each line")
		f.Int(setSeconds, 5, "length of a round")
		f.Int(setRounds, 3, "rounds; the figures are their medians")
		f.Int(setClients, 64, "connections")
	})
}

// benchRedirect reads what is measured.
func (s settings) benchRedirect(setup bench.Setup) (cfg bench.RedirectConfig, err error) {
	cfg = bench.RedirectConfig{Setup: setup, Links: s.GetInt(setLinks), Visited: s.GetInt(setVisited), GrowthFrom: s.GetInt(setGrowthFrom), HotMiB: s.GetInt(setHotLinks),
		Connections: s.GetInt(setClients), During: s.seconds(), Rounds: s.GetInt(setRounds)}
	if cfg.Links < 2 || cfg.Visited == 1 || cfg.GrowthFrom == 1 {
		return cfg, usagef("Zipf's law takes two links")
	}
	cfg.Fill = cfg.Links > fillAbove && setup.Running == nil
	if s.IsSet(setFill) {
		cfg.Fill = s.GetBool(setFill)
	}
	if (cfg.Fill || cfg.GrowthFrom > 0) && setup.Running != nil {
		return cfg, usageError{bench.ErrFillOwn}
	}
	for _, text := range s.GetStringSlice(setBeside) {
		peer, err := bench.ParsePeer(text)
		if err != nil {
			return cfg, usageError{err}
		}
		cfg.Beside = append(cfg.Beside, peer)
	}
	return cfg, nil
}
