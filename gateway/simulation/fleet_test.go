//go:build synctests

package simulation

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fleet is processes that simulate side by side: one that crashes or hangs takes one seed with it, not the run.
type fleet struct {
	t     *testing.T
	began time.Time

	mu     sync.Mutex // guards what follows
	next   uint64
	end    uint64
	done   int
	failed []uint64
}

const (
	// nowPlaying begins the line that a worker prints before a seed.
	nowPlaying = "playing seed "
	// chunk is how many seeds a worker gets at a time.
	chunk = 25
	// seedTimeout is how long the slowest chunk may take on a machine with other work.
	seedTimeout = 10 * time.Minute
	progress    = 10 * time.Second
)

func newFleet(t *testing.T, first uint64, count int) *fleet {
	return &fleet{t: t, began: time.Now(), next: first, end: first + uint64(count)}
}

func (f *fleet) run() {
	ticker := time.NewTicker(progress)
	defer ticker.Stop()
	var all sync.WaitGroup
	for range *workers {
		all.Go(f.work)
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for {
		select {
		case <-ticker.C:
			fmt.Println(f.report())
		case <-over:
			fmt.Println(f.report())
			if len(f.failed) > 0 {
				f.t.Errorf("failed: %v", f.failed)
			}
			return
		}
	}
}

func (f *fleet) report() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := time.Since(f.began)
	return fmt.Sprintf("simulated %d seeds, %d failed, %d to go, %.1f/s, %v", f.done, len(f.failed), f.end-f.next,
		float64(f.done)/took.Seconds(), took.Round(time.Second))
}

func (f *fleet) work() {
	for {
		f.mu.Lock()
		first, count := f.next, min(chunk, f.end-f.next)
		f.next += count
		f.mu.Unlock()
		if count == 0 {
			return
		}
		for end := first + count; first < end; {
			first = f.play(first, end)
		}
	}
}

// play lets a child play seeds and returns the next one: a child that ends early leaves the rest.
func (f *fleet) play(first, end uint64) uint64 {
	child := exec.Command(os.Args[0], "-test.run=^TestSimulation$", "-test.timeout="+seedTimeout.String(), "-workers=0",
		"-seed="+strconv.FormatUint(first, 10), "-seeds="+strconv.FormatUint(end-first, 10), "-tries="+strconv.Itoa(*tries),
		"-trace="+strconv.Itoa(*traceLast), "-show="+strconv.FormatBool(*showAll))
	output, err := child.CombinedOutput()
	last := lastPlayed(output, first)
	failed := failedSeeds(output)
	if err != nil && len(failed) == 0 {
		failed = []uint64{last} // it crashed or hung
	} else if bytes.HasSuffix(bytes.TrimSpace(output), []byte("PASS")) || bytes.HasSuffix(bytes.TrimSpace(output), []byte("FAIL")) {
		last = end - 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done += int(last + 1 - first)
	f.failed = append(f.failed, failed...)
	if err != nil {
		fmt.Printf("%s\nreproduce: make simulate SEED=%d SEEDS=1 TRIES=20\n", withoutProgress(output), failed[0])
	} else if *showAll {
		fmt.Println(withoutProgress(output))
	}
	return last + 1
}

var (
	played  = regexp.MustCompile(`(?m)^` + nowPlaying + `(\d+)$`)
	failing = regexp.MustCompile(`(?m)^ *--- FAIL: TestSimulation/(\d+)`)
)

func lastPlayed(output []byte, otherwise uint64) uint64 {
	for _, match := range played.FindAllSubmatch(output, -1) {
		otherwise, _ = strconv.ParseUint(string(match[1]), 10, 64)
	}
	return otherwise
}

func failedSeeds(output []byte) (seeds []uint64) {
	for _, match := range failing.FindAllSubmatch(output, -1) {
		seed, _ := strconv.ParseUint(string(match[1]), 10, 64)
		seeds = append(seeds, seed)
	}
	return seeds
}

func withoutProgress(output []byte) string {
	var kept strings.Builder
	for line := range strings.Lines(string(output)) {
		if !strings.HasPrefix(line, nowPlaying) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
