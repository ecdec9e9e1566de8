//go:build synctests

package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed")
	seedCount = flag.Int("seeds", 200, "how many seeds")
	tries     = flag.Int("tries", 1, "how often each seed is tried: a schedule is not the same every time")
	workers   = flag.Int("workers", runtime.NumCPU(), "processes that simulate side by side; 0: this one does")
	traceLast = flag.Int("trace", 150, "how many lines of history a failing seed shows")
	showAll   = flag.Bool("show", false, "show the history of seeds that pass, too")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)   // fewer orders in which goroutines can run, so that a seed says more
	debug.SetGCPercent(400) // a world is a few megabytes and lives for a moment
	os.Exit(m.Run())
}

func TestSimulation(t *testing.T) {
	if *workers > 0 {
		newFleet(t, *firstSeed, *seedCount).run()
		return
	}
	for i := range *seedCount {
		simulate(t, *firstSeed+uint64(i), *tries)
	}
}

// pinned are seeds that found something in the product.
var pinned = []struct {
	seed uint64
	bug  string
}{
	{3, "a repeat whose clocks were too far apart pushed its bucket's time by the clock that may be wrong"},
	{22, "the same, and times ran back: the verification of the log reported it"},
	{103, "an API whose control fold lagged answered 404 to a read that named the position of a link on a new domain"},
	{2646, "the broker kept a writer that died while it joined, and nobody wrote the partition that it was given"},
	{3174, "an API whose folds lagged answered 404 to a write to a link on a new domain, which is the writer's to say"},
}

// TestPinned plays the seeds that found something, each a few times.
func TestPinned(t *testing.T) {
	for _, p := range pinned {
		t.Run(p.bug, func(t *testing.T) {
			simulate(t, p.seed, 3)
		})
	}
}

// simulate plays one seed, in a bubble of its own.
func simulate(t *testing.T, seed uint64, times int) {
	for range times {
		passed := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			fmt.Printf("%s%d\n", nowPlaying, seed)
			cryptotest.SetGlobalRandom(t, seed)
			root := scratch(t)
			synctest.Test(t, func(t *testing.T) { play(t, seed, root) })
		})
		if !passed {
			return
		}
	}
}

// scratch is a directory for a broker's data, in memory where there is such a place: nothing of it is to last.
func scratch(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "hoplog-simulation-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return filepath.Join(dir, "broker")
	}
	return filepath.Join(t.TempDir(), "broker")
}

// play is one seed.
func play(t *testing.T, seed uint64, root string) {
	w := newWorld(t, seed, root)
	w.start()
	if w.settle() {
		for round := range 1 + w.rng.IntN(2) {
			w.round(seed, round)
			if w.failure() != nil || !w.rest() {
				break
			}
		}
	}
	var fresh []*process
	if w.failure() == nil {
		w.verify()
		w.checkTried()
		fresh = w.fresh()
	}
	w.stop(fresh)
	if w.failure() == nil {
		w.checkStores(fresh)
	}
	err := w.failure()
	if *showAll && err == nil {
		t.Log(strings.Join(w.trace.last(*traceLast), "\n"))
	}
	if err != nil {
		t.Errorf("%s\n\n%v\n\nreproduce: make simulate SEED=%d SEEDS=1", strings.Join(w.trace.last(*traceLast), "\n"), err, seed)
	}
}

// round lets clients ask while everything goes wrong.
func (w *world) round(seed uint64, number int) {
	until := time.Now().Add(time.Duration(3000+w.rng.IntN(5000)) * time.Millisecond)
	stream := func(n int) *rand.Rand { return generator(seed, uint64(100+100*number+n)) }
	done := make(chan struct{})
	parts := []func(){
		func() { (&chaos{w: w, rng: stream(0), until: until}).run() },
		func() { w.operate(stream(1), until) },
		func() { (&client{w: w, name: "visitor", rng: stream(2), until: until}).visit() },
	}
	for i := range 3 {
		c := &client{w: w, name: fmt.Sprintf("r%dc%d", number, i), rng: stream(3 + i), until: until}
		parts = append(parts, c.run)
	}
	for _, part := range parts {
		go func() { part(); done <- struct{}{} }()
	}
	for range parts {
		<-done
	}
}
