package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine is where a figure was measured.
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"` // that this process may use
	MemoryGiB  float64 `json:"memory_gib"`
	Kernel     string  `json:"kernel"`
	Filesystem string  `json:"filesystem"` // of the measured processes' data
	Go         string  `json:"go"`
	Hoplog     string  `json:"hoplog"`
	// Load is the load average of the last minute before the run: above 0 something else was at work.
	Load float64 `json:"load_before"`
}

// describe describes this machine; version is that of hoplog, dir where the data goes.
func describe(version, dir string) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Hoplog: version, Filesystem: filesystemOf(dir)}
	for _, line := range linesOf("/proc/cpuinfo") {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	for _, line := range linesOf("/proc/meminfo") {
		if value, found := strings.CutPrefix(line, "MemTotal:"); found {
			kib, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 64)
			m.MemoryGiB = kib / (1 << 20)
		}
	}
	m.Kernel = strings.Join(linesOf("/proc/sys/kernel/osrelease"), " ")
	m.Load = loadAverage()
	return m
}

func loadAverage() float64 {
	for _, line := range linesOf("/proc/loadavg") {
		first, _, _ := strings.Cut(line, " ")
		load, _ := strconv.ParseFloat(first, 64)
		return load
	}
	return 0
}

// filesystemOf returns the type of the file system that a directory lies on, from the mount with the longest path above it.
func filesystemOf(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	kind, longest := "unknown", -1
	for _, line := range linesOf("/proc/mounts") {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at := strings.TrimSuffix(fields[1], string(os.PathSeparator))
		if (dir == at || strings.HasPrefix(dir, at+string(os.PathSeparator))) && len(at) > longest {
			kind, longest = fields[2], len(at)
		}
	}
	return kind
}
