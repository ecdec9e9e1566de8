package runner_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
)

func openPebble(tb testing.TB, fs vfs.FS, dir string) *runner.Pebble {
	tb.Helper()
	store, err := runner.OpenPebble(dir, runner.PebbleOptions{FS: fs, MemTableBytes: 256 << 10, Logger: slog.New(slog.DiscardHandler)})
	must(tb, err)
	return store
}

// folded is what the positions of a store say must be in it: the sum of them, for every record of the log is one event.
func folded(r *runner.Runner) (records int) {
	for _, p := range r.Positions() {
		records += int(p)
	}
	return records
}

// TestCrashLosesNothingAndDoublesNothing crashes the machine under a running projection again and again. What was not synced
// survives in part. The store that is found then must stand for exactly the records that its positions name.
func TestCrashLosesNothingAndDoublesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const rounds, perRound = 25, 60
	log := logOf(0)
	fs := vfs.NewCrashableMem()
	for round := range rounds {
		addTo(log, round*perRound, (round+1)*perRound)
		store := openPebble(t, fs, "data")
		r := newRunner(t, log, store, &tally{})
		if got := sum(t, store); got != folded(r) {
			t.Fatalf("round %d: the store holds %d events, its positions stand for %d", round, got, folded(r))
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
		cancel()
		must(t, <-ended)
		must(t, store.Close())
		fs = after
	}
	store := openPebble(t, fs, "data")
	defer store.Close()
	r := newRunner(t, log, store, &tally{})
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, rounds*perRound)
}

// TestRestartGoesOnFromTheStore closes and opens at many places, on the real disk and the real broker.
func TestRestartGoesOnFromTheStore(t *testing.T) {
	broker := runnertest.Broker(t, partitions)
	log, dir := logOf(0), filepath.Join(t.TempDir(), "store")
	for round := range 6 {
		addTo(log, round*100, (round+1)*100)
		log.AppendVoid(bucket(round * 100))
		must(t, log.Ship(soon(t), broker))
		store := openPebble(t, vfs.Default, dir)
		r := newRunner(t, runner.FromLog(broker), store, &tally{})
		if got := r.Head(bucket(0)); round > 0 && got != log.Head(bucket(0)).Seq {
			t.Errorf("head of %d after a restart", got)
		}
		must(t, r.RunToEnd(soon(t)))
		wantTally(t, store, (round+1)*100)
		if got := r.Status().Applied; got != 200 {
			t.Errorf("%d envelopes folded after the restart, want 200", got)
		}
		r.Close()
		must(t, store.Close())
	}
}

// TestVoidsAreKnownAfterRestart: a void envelope that follows a void one is no alarm, even if a restart lies between.
func TestVoidsAreKnownAfterRestart(t *testing.T) {
	log, store := logOf(30), runner.NewMemory()
	first := log.Fork(bucket(3), nil)
	must(t, newRunner(t, log, store, &tally{}).RunToEnd(soon(t)))
	log.Fork(bucket(3), first)
	r := newRunner(t, log, store, &tally{})
	must(t, r.RunToEnd(soon(t)))
	if got := r.Status().Voids; got != 1 {
		t.Errorf("%d void, want 1", got)
	}
	addTo(log, 30, 40)
	must(t, r.RunToEnd(soon(t)))
	wantTally(t, store, 40)
}
