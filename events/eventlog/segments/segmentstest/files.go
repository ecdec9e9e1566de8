// Package segmentstest damages the files of the embedded broker, for tests: bytes as a disk would, and records as nobody
// could but somebody who writes batches with right checksums. The broker must not be running.
//
// It must not be imported by anything but tests.
package segmentstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Partition is the directory of one partition below the embedded broker's directory.
func Partition(dir, topic string, partition int) string {
	return filepath.Join(dir, "log", "partitions", fmt.Sprintf("%s-%d", topic, partition))
}

// Segments returns the paths of a partition's segments in offset order.
func Segments(tb testing.TB, partition string) (paths []string) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(partition, "*.dat"))
	if err != nil {
		tb.Fatal(err)
	}
	base := func(path string) int {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".dat"))
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	slices.SortFunc(paths, func(a, b string) int { return base(a) - base(b) })
	return paths
}

// Flip turns one bit of a file's byte; a negative position counts from the end.
func Flip(tb testing.TB, path string, at int64) {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if at < 0 {
		at += int64(len(content))
	}
	content[at] ^= 0x10
	if err := os.WriteFile(path, content, 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Cut removes bytes from a file's end.
func Cut(tb testing.TB, path string, bytes int64) {
	tb.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-bytes)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Forget removes what says how far the log reached, besides the log and its readers' positions: the record of what was
// acknowledged, and every snapshot.
func Forget(tb testing.TB, dir string) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "log", "partitions", "*", "snapshot.json"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range append(paths, filepath.Join(dir, "acknowledged.json")) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			tb.Fatal(err)
		}
	}
}
