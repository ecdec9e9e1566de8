package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/readmodels/clicks/engine"
)

// version is set by the linker.
var version = "unknown"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errSilent ends a command with exit code 1 after it has said why itself.
var errSilent = errors.New("failed")

// usageError is a wrong use of a command: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the sub-command that args name and returns the exit code. SIGTERM and SIGINT end its context.
func Main(args []string) int {
	if engine.IsChild() {
		return engine.Main()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return run(ctx, args, os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "hoplog: %v\nsee: %s --help\n", err, command.CommandPath())
		return exitUsage
	case !errors.Is(err, errSilent):
		fmt.Fprintf(stderr, "hoplog: %v\n", err)
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "hoplog",
		Short:         "A short-link platform whose database is a log",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return c.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newDev(), newServe(), newLink(), newDeny(), newAllow(), newTrust(), newSwitch(), newKey(), newDomain(), newAudit(), newReplay(), newReconcile(), newEffects(), newTopics(), newStatus(), newBench(), newVersion())
	return root
}

// exactArgs and its like are cobra's, with the exit code of wrong use.
func exactArgs(n int) cobra.PositionalArgs { return asUsage(cobra.ExactArgs(n)) }

func maxArgs(n int) cobra.PositionalArgs { return asUsage(cobra.MaximumNArgs(n)) }

func asUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: exactArgs(0), Run: func(c *cobra.Command, _ []string) {
		fmt.Fprintln(c.OutOrStdout(), "hoplog", version)
	}}
}
