package systemtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// A fault is blows that fall at once; each is healed after a time of its own. Blows are what an operating system does to a
// process: SIGKILL, and SIGSTOP with a later SIGCONT.

// blow is one thing done to one process.
type blow struct {
	what   string // for the report
	target any    // two blows of a fault never have the same
	hit    func()
	hold   time.Duration // until it is healed
	heal   func()
	// after is called once all is healed and ready; nil for nothing.
	after func()
}

func (s *chaosServer) freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *chaosServer) thaw()   { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// killing kills a process and starts it again at once or a moment later.
func killing(s *chaosServer, r *rand.Rand) blow {
	return blow{what: "kill " + s.name, target: s, hit: s.kill, hold: time.Duration(r.IntN(300)) * time.Millisecond, heal: s.relaunch}
}

// freezing stops a process for some time; short times are more frequent.
func freezing(s *chaosServer, r *rand.Rand, least, most time.Duration) blow {
	f := r.Float64()
	return blow{what: "freeze " + s.name, target: s, hit: s.freeze, hold: least + time.Duration(f*f*float64(most-least)), heal: s.thaw}
}

// killingFrozen kills a process that was frozen, so that it ends with answers half sent.
func killingFrozen(s *chaosServer, r *rand.Rand) blow {
	return blow{what: "freeze and kill " + s.name, target: s, hit: s.freeze, hold: time.Duration(50+r.IntN(500)) * time.Millisecond,
		heal: func() { s.kill(); s.relaunch() }}
}

// killingTwice kills a process, and again while it starts.
func killingTwice(s *chaosServer, r *rand.Rand) blow {
	return blow{what: "kill twice " + s.name, target: s, hit: func() { s.kill(); s.relaunch() }, hold: time.Duration(r.IntN(900)) * time.Millisecond,
		heal: func() { s.kill(); s.relaunch() }}
}

func killingBroker(b *realkafka.Broker, r *rand.Rand) blow {
	return blow{what: "kill leader's broker", target: b, hit: b.Kill, hold: time.Duration(r.IntN(500)) * time.Millisecond, heal: b.Launch}
}

func freezingBroker(b *realkafka.Broker, r *rand.Rand) blow {
	return blow{what: "freeze leader's broker", target: b, hit: b.Pause, hold: time.Duration(200+r.IntN(3500)) * time.Millisecond, heal: b.Resume}
}

// strike lets the blows fall and heals them, each at its time.
func strike(blows []blow) {
	began := time.Now()
	for _, b := range blows {
		b.hit()
	}
	slices.SortFunc(blows, func(a, b blow) int { return int(a.hold - b.hold) })
	for _, b := range blows {
		time.Sleep(b.hold - time.Since(began))
		b.heal()
	}
}

// chaosRun is a number of rounds of faults under load.
type chaosRun struct {
	t      testing.TB
	seed   uint64
	rounds int
	// pace is how many operations there are at least for each round.
	pace    int
	load    *chaosLoad
	servers []*chaosServer
	// faults makes the blows of a round.
	faults func(round int, r *rand.Rand) []blow

	began      time.Time
	blows      map[string]int
	recoveries []time.Duration
	// longest is the longest time that a partition acknowledged nothing.
	longest time.Duration
	logs    []string // files of processes that are not servers
}

// slowRecovery is worth a line of its own. It is no limit: the machine may be busy.
const slowRecovery = 12 * time.Second

// run strikes once in every round, and waits until all processes are ready and every partition takes writes again.
func (c *chaosRun) run() {
	c.t.Helper()
	c.began, c.blows = time.Now(), map[string]int{}
	random := rand.New(rand.NewPCG(c.seed, 1))
	c.load.start(c.seed)
	watched := c.load.watchStalls()
	c.t.Cleanup(c.keepLogs)
	for round := range c.rounds {
		time.Sleep(time.Duration(200+random.IntN(800)) * time.Millisecond)
		for end := time.Now().Add(10 * time.Second); c.load.operations() < int64(c.pace*(round+1)) && time.Now().Before(end); {
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
		blows := c.faults(round, random)
		strike(blows)
		healed := time.Now()
		for _, s := range c.servers {
			s.ready()
		}
		c.load.awaitProgress(2 * time.Minute)
		took := time.Since(healed)
		if c.recoveries = append(c.recoveries, took); took > slowRecovery {
			c.t.Logf("round %d recovered after %s only (%s)", round+1, took.Round(100*time.Millisecond), names(blows))
		}
		for _, b := range blows {
			c.blows[b.what]++
			if b.after != nil {
				b.after()
			}
		}
		if every := max(1, c.rounds/10); (round+1)%every == 0 {
			c.t.Logf("round %d of %d after %s: %d operations", round+1, c.rounds, time.Since(c.began).Round(time.Second), c.load.operations())
		}
		if c.load.counts.violations.Load() > 0 {
			c.t.Errorf("stopped after round %d (%s)", round+1, names(blows))
			break
		}
	}
	c.longest = watched()
	c.load.end()
}

// keepLogs puts what the processes wrote where it can be read after a failure.
func (c *chaosRun) keepLogs() {
	if !c.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "hoplog-chaos-")
	for _, s := range c.servers {
		name := fmt.Sprintf("%s %s.log", s.name, s.ports["admin"])
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(s.out.String()), 0o600))
	}
	for _, file := range c.logs {
		raw, failed := os.ReadFile(file)
		name := filepath.Base(filepath.Dir(file)) + " " + filepath.Base(file)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, name), raw, 0o600))
	}
	c.t.Logf("what the processes wrote is in %s (%v)", dir, err)
}

func names(blows []blow) string {
	var list []string
	for _, b := range blows {
		list = append(list, fmt.Sprintf("%s, %s", b.what, b.hold.Round(time.Millisecond)))
	}
	return strings.Join(list, "; ")
}

// summary prints the figures of a run.
func (c *chaosRun) summary(void int) {
	n := &c.load.counts
	slices.Sort(c.recoveries)
	var what []string
	for _, name := range slices.Sorted(maps.Keys(c.blows)) {
		what = append(what, fmt.Sprintf("%s %d", name, c.blows[name]))
	}
	c.t.Logf("%d rounds in %s: %s", len(c.recoveries), time.Since(c.began).Round(time.Second), strings.Join(what, ", "))
	c.t.Logf("recovered after a median of %s, at most %s; a partition acknowledged nothing for %s at most", c.recoveries[len(c.recoveries)/2].Round(10*time.Millisecond), c.recoveries[len(c.recoveries)-1].Round(10*time.Millisecond), c.longest.Round(10*time.Millisecond))
	c.t.Logf("%d operations on %d links: %d creates, %d edits (%d refused, %d replayed), %d reads, %d histories, %d writes without an answer; %d reads linearizable by contract; %d writes surely not sent; %d visits; %d void envelopes",
		c.load.operations(), len(c.load.links), n.creates.Load(), n.edits.Load(), n.refused.Load(), n.replays.Load(), n.reads.Load(), n.histories.Load(), n.lost.Load(),
		n.exact.Load(), n.notSent.Load(), n.visits.Load(), void)
}
