package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc: USER_HZ, 100 on every platform of Linux that Go knows.
const clockTick = time.Second / 100

// cpuMeter reads how much processor time something has used since it started, user and system.
type cpuMeter func(context.Context) (time.Duration, error)

// cpuOfPID reads a process of this machine, its children not counted (proc_pid_stat(5), fields 14 and 15).
func cpuOfPID(pid int) cpuMeter {
	return func(context.Context) (time.Duration, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("reading processor time: %w", err)
		}
		return parseStat(string(stat))
	}
}

func parseStat(stat string) (time.Duration, error) {
	// The name of the program is in parentheses and may hold anything.
	_, rest := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading processor time: %.80q", stat)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("reading processor time: %.80q", stat)
	}
	return time.Duration(user+system) * clockTick, nil
}

func cutLast(s, sep string) (before, after string) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):]
	}
	return s, ""
}

// cpuOfAdmin asks a process for its own processor time, at its admin address.
func cpuOfAdmin(admin string) cpuMeter {
	return func(ctx context.Context) (time.Duration, error) {
		figures, err := metricsOf(ctx, admin)
		if err != nil {
			return 0, err
		}
		seconds, found := figures["process_cpu_seconds_total"]
		if !found {
			return 0, fmt.Errorf("asking for processor time: the metrics of %s do not say", admin)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
}

// cpuUnknown is for processes that cannot be looked into.
func cpuUnknown(context.Context) (time.Duration, error) { return 0, nil }

// memoryOf returns the resident memory of a process in MiB, 0 when it cannot be read.
func memoryOf(pid int) float64 { return kibOf(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:") / 1024 }

// ownMemoryOf returns the resident memory of a process that is no file's, in MiB: what the kernel cannot have back for the
// asking. 0 when it cannot be read.
func ownMemoryOf(pid int) float64 {
	return kibOf(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:") / 1024
}

func kibOf(file, name string) float64 {
	for _, line := range linesOf(file) {
		if value, found := strings.CutPrefix(line, name); found {
			kib, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 64)
			return kib
		}
	}
	return 0
}

// childOf returns a child of a process, 0 when there is none yet. Each thread has its own.
func childOf(pid int) int {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, file := range threads {
		for _, line := range linesOf(file) {
			if fields := strings.Fields(line); len(fields) > 0 {
				child, _ := strconv.Atoi(fields[0])
				return child
			}
		}
	}
	return 0
}

func linesOf(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
