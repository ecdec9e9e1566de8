package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/bench"
)

// Settings of load scenarios.
const (
	setBatch        = "batch"
	setBeside       = "beside"
	setBatchClients = "batch-clients"
	setBrokers      = "brokers"
	setClients      = "clients"
	setDir          = "dir"
	setEvents       = "events"
	setFill         = "fill"
	setGrowthFrom   = "growth-from"
	setHotLinks     = "hot-links"
	setLinks        = "links"
	setOut          = "out"
	setProfile      = "profile"
	setRate         = "rate"
	setRedirect     = "redirect"
	setRounds       = "rounds"
	setSeconds      = "seconds"
	setSession      = "session-timeout"
	setVisited      = "visited"
)

const brokersUsage = "addresses of a Kafka on this machine to work on, comma separated, instead of the embedded broker (the topics stay there)"

func newBench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine: create links, visit them, replay the log",
		Long: "Each scenario starts processes of its own, loads them from this one, checks that what it loaded was done right, and removes\n" +
			"their data. Limits that stand beside the figures are measured in the same run. A figure with wrong answers in it is an error.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown scenario %q", args[0])
			}
			return c.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(newBenchCreate(), newBenchRedirect(), newBenchReplay(), newBenchMemory(), newBenchTakeover(), newBenchStart(), newBenchBan(), newBenchTable())
	return c
}

func benchFlags(f *pflag.FlagSet) {
	f.String(setDir, "", "directory for the data while it runs, by default the system's for such; its disk is what is measured")
	f.String(setOut, "", "directory in which to save the result as a dated file")
}

// runningFlags point a scenario at processes that run already. Unlike elsewhere only the command line counts for them: a
// HOPLOG_SERVER meant for other commands must not get load.
func runningFlags(f *pflag.FlagSet) {
	f.String(setServer, "", "URL of a running command API to load instead of processes of its own (on this machine; what is made there stays)")
	f.String(setKey, "", "API key for it; better in HOPLOG_KEY, where others cannot read it")
	f.String(setRedirect, "", "with --server: address of the redirect node to visit")
	f.String(setAdmin, "", "with --server: admin address of the process whose processor time counts")
}

func newBenchCreate() *cobra.Command {
	c := &cobra.Command{
		Use:   "create",
		Short: "Measure creating links over HTTP: one by one, one by one at a fixed rate, in batches",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setSeconds, setClients, setRate, setBatch, setBatchClients}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				return bench.Create(ctx, bench.CreateConfig{Setup: setup, During: s.seconds(), Clients: s.GetInt(setClients), Rate: s.GetFloat64(setRate),
					Batch: s.GetInt(setBatch), BatchClients: s.GetInt(setBatchClients)})
			})
		},
	}
	return withFlags(c, benchFlags, runningFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.Int(setSeconds, 10, "length of each phase")
		f.String(setBrokers, "", brokersUsage)
		f.Int(setClients, 256, "connections that create one by one")
		f.Float64(setRate, 500, "creates per second in the phase with a fixed rate")
		f.Int(setBatch, 200, "links in a batch, 1000 at most")
		f.Int(setBatchClients, 16, "connections that create batches")
	})
}

func newBenchMemory() *cobra.Command {
	c := &cobra.Command{
		Use:   "memory",
		Short: "Measure what a hoplog dev with many links needs, and how it starts again",
		Long:  "It creates the links, lets the process settle, loads it, starts it again after a clean stop and after kill -9.",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setLinks, setSeconds}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				return bench.Memory(ctx, bench.MemoryConfig{Setup: setup, Links: s.GetInt(setLinks), Settle: s.seconds()})
			})
		},
	}
	return withFlags(c, benchFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.Int(setLinks, 1_000_000, "links")
		f.Int(setSeconds, 15, "how long the process is left alone before it is measured, and loaded")
	})
}

func newBenchTakeover() *cobra.Command {
	c := &cobra.Command{
		Use:   "takeover",
		Short: "Measure how long links cannot be created when a process that writes partitions is killed",
		Long: "Two processes write the partitions. One is killed, and for each of its partitions it is measured how long it takes until a create\n" +
			"that belongs there is answered. --" + setBrokers + " names a Kafka on this machine instead of the embedded broker.",
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setLinks, setRounds}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				return bench.Takeover(ctx, bench.TakeoverConfig{Setup: setup, Links: s.GetInt(setLinks), Rounds: s.GetInt(setRounds), Session: s.GetDuration(setSession)})
			})
		},
	}
	return withFlags(c, benchFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.String(setBrokers, "", brokersUsage)
		f.Int(setLinks, 1_000_000, "links in the log")
		f.Int(setRounds, 3, "kills")
		f.Duration(setSession, time.Second, "how long a silent process keeps its partitions; the brokers must allow it")
	})
}

func newBenchReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay",
		Short: "Measure building the redirects from the log",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, []string{setEvents, setRounds}, func(ctx context.Context, s settings, setup bench.Setup) (bench.Result, error) {
				collectRarely() // as a node does
				return bench.Replay(ctx, bench.ReplayConfig{Setup: setup, Events: s.GetInt(setEvents), Rounds: s.GetInt(setRounds), Profile: s.GetString(setProfile)})
			})
		},
	}
	return withFlags(c, benchFlags, jsonFlag, func(f *pflag.FlagSet) {
		f.Int(setEvents, 1_000_000, "events in the log")
		f.Int(setRounds, 3, "rounds; the figures are their medians")
		f.String(setProfile, "", "file for a CPU profile of the last round, to be read with go tool pprof")
	})
}

func (s settings) seconds() time.Duration { return time.Duration(s.GetInt(setSeconds)) * time.Second }

// runBench runs a scenario and shows what came out. The settings that numbers names must be above 0; they are part of the
// report.
func runBench(c *cobra.Command, numbers []string, run func(context.Context, settings, bench.Setup) (bench.Result, error)) error {
	s, err := load(c)
	if err != nil {
		return err
	}
	shown := map[string]any{}
	for _, name := range numbers {
		if shown[name] = s.GetFloat64(name); s.GetFloat64(name) <= 0 {
			return usagef("%s: want more than 0", name)
		}
	}
	if s.GetInt(setBatch) > maxBenchBatch {
		return usagef("%s: %d at most", setBatch, maxBenchBatch)
	}
	setup, err := s.benchSetup(c)
	if err != nil {
		return err
	}
	bar := benchBar{progress: newProgress(c.ErrOrStderr())}
	setup.Progress = bar.tell
	report := bench.NewReport(c.Name(), &setup, time.Now(), shown)
	report.Command = benchCommand(c)
	result, err := run(c.Context(), s, setup)
	bar.progress.end()
	if err != nil && !errors.Is(err, bench.ErrWrong) {
		return err
	}
	if report.Result = result; err != nil {
		report.Wrong = err.Error()
	}
	return errors.Join(err, showBench(c, s, report))
}

// benchCommand is a scenario's command line without what is this machine's only.
func benchCommand(c *cobra.Command) string {
	line := c.CommandPath()
	c.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case setDir, setOut, setKey, setServer, setRedirect, setAdmin, setBrokers, setProfile, "json", "config":
		case setBeside:
			line += " --" + f.Name + " …"
		default:
			if line += " --" + f.Name; f.Value.Type() != "bool" || f.Value.String() != "true" {
				line += "=" + f.Value.String()
			}
		}
	})
	return line
}

// maxBenchBatch is the API's bound.
const maxBenchBatch = 1000

func (s settings) benchSetup(c *cobra.Command) (bench.Setup, error) {
	binary, err := os.Executable()
	if err != nil {
		return bench.Setup{}, fmt.Errorf("finding this binary: %w", err)
	}
	setup := bench.Setup{Binary: binary, Version: version, Dir: s.GetString(setDir)}
	if c.Flags().Lookup(setBrokers) != nil {
		setup.Kafka = s.GetString(setBrokers)
	}
	given := func(name string) string {
		if !c.Flags().Changed(name) {
			return ""
		}
		return s.GetString(name)
	}
	if given(setServer) != "" {
		setup.Running = &bench.Running{Server: given(setServer), Key: s.GetString(setKey), Redirect: given(setRedirect), Admin: given(setAdmin)}
	} else if given(setRedirect)+given(setAdmin) != "" {
		return setup, usagef("--redirect and --admin belong to a running process: name its API with --server too")
	}
	return setup, nil
}

func showBench(c *cobra.Command, s settings, report *bench.Report) error {
	var err error
	if s.GetBool("json") {
		err = printJSON(c.OutOrStdout(), report)
	} else {
		err = report.Print(c.OutOrStdout())
	}
	if dir := s.GetString(setOut); dir != "" {
		path, saving := report.Save(dir)
		if err = errors.Join(err, saving); err == nil {
			fmt.Fprintln(c.ErrOrStderr(), "saved", path)
		}
	}
	return err
}

// benchBar shows a scenario's steps as one bar after the other.
type benchBar struct {
	progress *progress
	step     string
}

func (b *benchBar) tell(step string, done, total int64) {
	if step != b.step {
		b.step = step
		if total == 0 {
			total = -1
		}
		b.progress.begin(step, total)
	}
	b.progress.set(done, total)
}
