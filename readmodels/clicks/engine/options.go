package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	DefaultAddr       = "127.0.0.1:8123"
	DefaultMaxBody    = 256 << 20
	DefaultMaxQueries = 16
	DefaultWait       = 5 * time.Second
)

// ChildCommand is the hidden sub-command that [Start] gives to this executable when Options.Command is empty. It has
// to call [Main].
const ChildCommand = "clickhouse-engine"

// Errors of this package. Those of the child process reach the parent as the same values.
var (
	// ErrNoEngine: libchdb.so was not found. The text says how to get it.
	ErrNoEngine = errors.New("clickhouse engine (libchdb.so) not found; run `make engine`")
	// ErrLocked: another engine has the data directory and kept it for longer than Options.Wait.
	ErrLocked = errors.New("data directory is used by another clickhouse engine")
	// ErrAddrInUse: the address stayed taken for longer than Options.Wait.
	ErrAddrInUse = errors.New("clickhouse engine address is in use")
	// ErrOpen: the library refused to open the data directory.
	ErrOpen = errors.New("clickhouse engine cannot open its data directory")
	// ErrStopped: the child was stopped.
	ErrStopped = errors.New("clickhouse engine is stopped")
)

// Options configure the engine. They travel from parent to child on the child's stdin, never on a command line or in
// the environment, where others could read the password. The zero value of a field means its default.
type Options struct {
	// Lib is the path of libchdb.so (see [Find]). Required.
	Lib string
	// DataDir holds tables, the lock file and the generated configuration; created when missing. Required.
	DataDir string
	// Addr is host:port to listen on; port 0 picks a free one (and keeps it over restarts of the child).
	Addr string
	// User and Password that requests must carry. Both empty: user "default" without a password.
	User, Password string
	// MemoryLimit for the engine, in bytes: a query that would pass it fails. Default: a quarter of the machine's
	// memory, at least 1 GiB and at most 4 GiB.
	MemoryLimit int64
	// Threads of one query. Default: the number of CPUs, at most 8.
	Threads int
	// MaxBody bounds a request body, in bytes, after decompression. Larger ones get 413.
	MaxBody int64
	// MaxQueries that run at once; further ones wait for a place.
	MaxQueries int
	// Wait bounds how long a start waits for the address and the data directory of an engine that is still dying.
	Wait time.Duration

	// Command is the argument vector of the child; default: this executable with [ChildCommand].
	Command []string `json:"-"`
	// Log of the parent; default slog.Default().
	Log *slog.Logger `json:"-"`
}

// LogValue hides the password.
func (o Options) LogValue() slog.Value {
	return slog.GroupValue(slog.String("lib", o.Lib), slog.String("data", o.DataDir), slog.String("addr", o.Addr),
		slog.Int64("memory", o.MemoryLimit), slog.Int("threads", o.Threads))
}

func (o Options) withDefaults() (Options, error) {
	if o.Lib == "" || o.DataDir == "" {
		return o, errors.New("clickhouse engine needs a library path and a data directory")
	}
	if strings.ContainsRune(o.DataDir, 0) || strings.ContainsRune(o.Lib, 0) {
		return o, errors.New("clickhouse engine paths must not contain a zero byte")
	}
	if o.Addr == "" {
		o.Addr = DefaultAddr
	}
	if o.MemoryLimit <= 0 {
		o.MemoryLimit = min(max(totalMemory()/4, 1<<30), 4<<30)
	}
	if o.Threads <= 0 {
		o.Threads = min(runtime.NumCPU(), 8)
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxQueries <= 0 {
		o.MaxQueries = DefaultMaxQueries
	}
	if o.Wait <= 0 {
		o.Wait = DefaultWait
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if len(o.Command) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("finding this executable: %w", err)
		}
		o.Command = []string{exe, ChildCommand}
	}
	return o, nil
}
