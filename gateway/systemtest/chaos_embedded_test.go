package systemtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// chaosSetting reads a number that `make chaos` sets; otherwise the short form's.
func chaosSetting(t testing.TB, name string, short int) int {
	t.Helper()
	text := os.Getenv("HOPLOG_CHAOS_" + name)
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("HOPLOG_CHAOS_%s: %v", name, err)
	}
	return n
}

// chaosRounds is chaosSetting for a number of rounds; none skips the test.
func chaosRounds(t testing.TB, name string, short int) int {
	t.Helper()
	n := chaosSetting(t, name, short)
	if n == 0 {
		t.Skipf("SKIPPED: %s=0", name)
	}
	return n
}

// chaosSeed is the given seed, or a new one; it is printed either way. A seed repeats the faults and what users do, not the
// machine's timing.
func chaosSeed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(chaosSetting(t, "SEED", 0))
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("seed %d", seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: make chaos SEED=%d, with the same ROUNDS and KAFKA_ROUNDS", seed)
		}
	})
	return seed
}

// chaosPace is how many operations `make chaos` makes for each of its rounds at least, 100,000 with 400 rounds; the short form
// takes what comes.
func chaosPace() int {
	if os.Getenv("HOPLOG_CHAOS_ROUNDS") == "" {
		return 0
	}
	return 260
}

// shortRounds are the rounds of the short form: at least twenty of them kill.
const shortRounds = 24

// TestChaosEmbedded kills and freezes `hoplog dev` under load, at any moment and while it starts. Nothing acknowledged is lost,
// one key makes one link, and every history of a link is one that the contracts allow.
func TestChaosEmbedded(t *testing.T) {
	rounds := chaosRounds(t, "ROUNDS", shortRounds)
	if testing.Short() {
		rounds = 3
	}
	seed := chaosSeed(t)
	p := newChaosServer(dev(t), "dev")
	run := &chaosRun{t: t, seed: seed, rounds: rounds, pace: chaosPace(), servers: []*chaosServer{p}, faults: func(round int, r *rand.Rand) []blow {
		switch n := round % 12; {
		case n < 2:
			return []blow{freezing(p, r, 100*time.Millisecond, 3*time.Second)}
		case n < 4:
			return []blow{killingFrozen(p, r)}
		case n < 6:
			return []blow{killingTwice(p, r)}
		}
		return []blow{killing(p, r)}
	}}
	run.load = newChaosLoad(t, p.domain(), 4, run.servers, run.servers)
	run.run()
	fresh := newChaosServer(p.serve(t, "api"), "a fresh api")
	run.summary(run.judge(fresh))
}
