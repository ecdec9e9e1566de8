package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// childVariable marks a process started by [Start].
const childVariable = "HOPLOG_ENGINE_CHILD"

// statusFile is the descriptor on which the child reports once: ready, or why not.
const statusFile = 3

// status is the one line on it.
type status struct {
	Addr    string `json:"addr,omitempty"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
	Kind    string `json:"kind,omitempty"`
}

// errorKinds carries sentinels over the process border.
var errorKinds = map[string]error{"locked": ErrLocked, "address": ErrAddrInUse, "open": ErrOpen}

// IsChild reports whether this process was started by [Start]. Test binaries that start engines ask it in TestMain.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// Main is the whole child process; it returns the exit code.
func Main() int {
	if !IsChild() {
		fmt.Fprintln(os.Stderr, "this command is started by hoplog itself")
		return 2
	}
	yield()
	report := os.NewFile(statusFile, "status")
	if err := ServeChild(context.Background(), os.Stdin, report); err != nil {
		fmt.Fprintln(os.Stderr, "clickhouse engine:", err)
		return 1
	}
	return 0
}

// ServeChild reads [Options], one line of JSON, from control and serves until ctx ends or the process gets SIGTERM. The
// other end of control is the parent's life: when it closes, this process ends at once, without a clean shutdown; the
// engine's files are made for that. On Linux the kernel's parent-death signal usually comes first.
func ServeChild(ctx context.Context, control io.Reader, report io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	in := bufio.NewReader(control)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading options: %w", err)
	}
	var o Options
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("reading options: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // any end is the parent's end
		os.Exit(1)
	}()
	err = Serve(ctx, o, func(addr, version string) { send(report, status{Addr: addr, Version: version}) })
	if err != nil {
		send(report, failure(err))
	}
	return err
}

func failure(err error) status {
	s := status{Error: err.Error()}
	for kind, sentinel := range errorKinds {
		if errors.Is(err, sentinel) {
			s.Kind = kind
		}
	}
	return s
}

func send(w io.Writer, s status) {
	// If the parent does not listen any more it is gone, and so are we.
	_ = json.NewEncoder(w).Encode(s)
}

// err is the child's failure as the parent sees it.
func (s status) err() error {
	if sentinel, ok := errorKinds[s.Kind]; ok {
		return &childError{text: s.Error, kind: sentinel}
	}
	return errors.New(s.Error)
}

type childError struct {
	text string
	kind error
}

func (e *childError) Error() string { return e.text }
func (e *childError) Unwrap() error { return e.kind }

// absolute: parent and child may have different working directories.
func (o Options) absolute() (Options, error) {
	lib, err := filepath.Abs(o.Lib)
	if err != nil {
		return o, err
	}
	dir, err := filepath.Abs(o.DataDir)
	o.Lib, o.DataDir = lib, dir
	return o, err
}
