package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// StartConfig is how much the log holds when the embedded broker starts on it, and how often it does.
type StartConfig struct {
	Setup
	Links  int
	Rounds int
}

// StartResult is what a start of the embedded broker on a log costs, in a process of its own that does nothing else. The log
// holds one envelope per link, and no commands, which are kept for a week beside them.
type StartResult struct {
	Links     int     `json:"links"`
	LogBytes  int64   `json:"log_bytes"`
	FilledPer float64 `json:"links_filled_per_second"`
	Clean     []Start `json:"after_clean_stop"`
	Killed    []Start `json:"after_kill"`
}

// Start is one start.
type Start struct {
	VerifiedMS float64 `json:"verified_ms"` // until the files were verified
	TookMS     float64 `json:"took_ms"`     // until the broker answered
	CPUMS      float64 `json:"cpu_ms"`      // of the process until then, user and system time
	PeakMiB    float64 `json:"peak_mib"`    // of resident memory until then
	Bytes      int64   `json:"bytes_verified"`
}

// StartAfter measures starts on a log of so many links, after clean stops and as after kill -9.
func StartAfter(ctx context.Context, cfg StartConfig) (_ *StartResult, err error) {
	dir, err := cfg.tempDir()
	if err != nil {
		return nil, err
	}
	defer removeAll(dir, &err)
	kafka := filepath.Join(dir, "kafka")
	result := &StartResult{Links: cfg.Links}
	if err := cfg.fillFor(ctx, kafka, result); err != nil {
		return nil, err
	}
	if result.LogBytes, err = sizeOf(kafka); err != nil {
		return nil, err
	}
	for round := range cfg.Rounds {
		cfg.Progress.tell("starting", int64(2*round), int64(2*cfg.Rounds))
		clean, err := cfg.startChild(ctx, kafka)
		if err != nil {
			return nil, err
		}
		result.Clean = append(result.Clean, *clean)
		// What a crash leaves: no word of where the partitions end.
		for _, pattern := range []string{filepath.Join(kafka, "log", "partitions", "*", "snapshot.json"), filepath.Join(kafka, "acknowledged.json")} {
			paths, err := filepath.Glob(pattern)
			for _, path := range paths {
				err = errors.Join(err, os.Remove(path))
			}
			if err != nil {
				return nil, fmt.Errorf("making the directory as after a crash: %w", err)
			}
		}
		killed, err := cfg.startChild(ctx, kafka)
		if err != nil {
			return nil, err
		}
		result.Killed = append(result.Killed, *killed)
	}
	return result, nil
}

func (cfg *StartConfig) fillFor(ctx context.Context, dir string, result *StartResult) (err error) {
	b, err := startBroker(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	began := time.Now()
	// One envelope of ten is an update.
	events := cfg.Links * updateEvery / (updateEvery - 1)
	_, err = b.fill(ctx, events, func(done int64) { cfg.Progress.tell("filling the log", done, int64(events)) })
	result.FilledPer = per(float64(cfg.Links), time.Since(began).Seconds())
	return err
}

// startChild starts the broker in a new process and returns what that says.
func (cfg *StartConfig) startChild(ctx context.Context, dir string) (*Start, error) {
	cmd := exec.CommandContext(ctx, cfg.Binary, "bench", "start", "--only", dir)
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = withoutSettings(os.Environ()), diesWithUs(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: starting the broker on %s: %w", ErrNoStart, dir, err)
	}
	var s Start
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("reading what a start took: %w", err)
	}
	return &s, nil
}

// StartOnly starts the embedded broker on a directory, stops it, and says what the start took.
func StartOnly(dir string) (*Start, error) {
	var s Start
	began := time.Now()
	since := func() float64 { return float64(time.Since(began).Microseconds()) / 1000 }
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0", Progress: func(done, total int64) {
		s.Bytes = done
		if done == total {
			s.VerifiedMS = since()
		}
	}}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return nil, err
	}
	s.TookMS, s.CPUMS, s.PeakMiB = since(), us(cpuOfSelf())/1000, peakMiB()
	return &s, b.Close()
}

// peakMiB is the largest resident memory that this process has had; 0 where the system does not say.
func peakMiB() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	if err != nil {
		return 0
	}
	return kilobytes / 1024
}

func (r *StartResult) floors() []Floor { return nil }

func (r *StartResult) print(w io.Writer) error {
	fmt.Fprintf(w, "%s links, %s MiB of log, filled at %s links/s\n\n", thousands(float64(r.Links)), thousands(float64(r.LogBytes>>20)), thousands(r.FilledPer))
	t := table(w)
	fmt.Fprintln(t, "start\tverified after\tof that GB/s\tanswers after\tCPU\tpeak memory")
	for _, group := range []struct {
		name   string
		starts []Start
	}{{"after a clean stop", r.Clean}, {"as after kill -9", r.Killed}} {
		for _, s := range group.starts {
			fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%s\t%.0f MiB\n", group.name, short(s.VerifiedMS), per(float64(s.Bytes)/1e6, s.VerifiedMS), short(s.TookMS), short(s.CPUMS), s.PeakMiB)
		}
	}
	return t.Flush()
}
