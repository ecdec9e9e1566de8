package shared_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
	"github.com/hoplog/hoplog/schemas/pb"
)

func open(tb testing.TB, cfg redirects.Config) *redirects.Store {
	tb.Helper()
	cfg.Dir, cfg.Pebble = tb.TempDir(), runner.PebbleOptions{Logger: slog.New(slog.DiscardHandler)}
	s, err := redirects.Open(cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	return s
}

// world is a log that goes on, the nodes that fold it, and the Redis that they share.
type world struct {
	t        *testing.T
	log      *runnertest.Log
	server   *redistest.Server
	accepted [worldLinks]atomic.Uint64 // the version that the log has, at least
	over     atomic.Bool
	fresh    atomic.Uint64 // answers that the node's own store did not have
}

const (
	worldLinks = 12
	worldLives = 4 * time.Second
)

func worldCode(i int) string { return fmt.Sprintf("c%d", i) }

// node is a store with its tier.
type node struct {
	*world
	store   *redirects.Store
	tier    *shared.Tier
	applied [worldLinks]atomic.Uint64 // the version that the store has, at least
}

// node starts one. With a memory of nothing, every look-up asks the store.
func (w *world) node(memory int) *node {
	w.t.Helper()
	tier := connect(w.t, w.server, shared.Config{Timeout: 50 * time.Millisecond})
	return &node{world: w, tier: tier, store: open(w.t, redirects.Config{Source: w.log, Shared: tier, Memory: memory})}
}

// fold applies what the log has.
func (n *node) fold() {
	var has [worldLinks]uint64
	for i := range has {
		has[i] = n.accepted[i].Load()
	}
	if err := n.store.RunToEnd(context.Background()); err != nil {
		n.t.Error(err)
	}
	for i, version := range has {
		n.applied[i].Store(version)
	}
}

// read looks links up: none is older than what the node had applied before, or newer than the log, or a mixture.
func (n *node) read(random *rand.Rand) {
	i := random.IntN(worldLinks)
	floor := n.applied[i].Load()
	link, err := n.store.Lookup(keyOf(worldCode(i)))
	most := n.accepted[i].Load()
	switch {
	case err != nil:
		n.t.Errorf("%s: %v", worldCode(i), err)
	case link.GetVersion() < floor || link.GetVersion() > most+1: // the newest may not be noted yet
		n.t.Errorf("%s: version %d, applied was %d, the log has %d", worldCode(i), link.GetVersion(), floor, most)
	case link != nil && link.GetTarget() != targetOf(worldCode(i), link.GetVersion()):
		n.t.Errorf("%s: version %d leads to %s", worldCode(i), link.GetVersion(), link.GetTarget())
	}
	if link.GetVersion() > n.applied[i].Load() {
		n.fresh.Add(1)
	}
}

// edit makes the log go on and tells Redis of it as the effects role does: with delay, repeats and failures.
func (w *world) edit(tier *shared.Tier, random *rand.Rand) {
	i := random.IntN(worldLinks)
	version := w.accepted[i].Load() + 1
	if content := (&pb.LinkContent{Target: targetOf(worldCode(i), version)}); version == 1 {
		w.log.Create("acme", host, worldCode(i), content)
	} else {
		w.log.Update(host, worldCode(i), content)
	}
	w.accepted[i].Store(version)
	for again := range 3 {
		err := tier.Put(context.Background(), keyOf(worldCode(i)), linkOf(worldCode(i), version))
		if err == nil && (again > 0 || random.IntN(4) > 0) {
			return
		}
	}
}

// disturb does to Redis what happens to one.
func (w *world) disturb(random *rand.Rand) {
	wait := func() { time.Sleep(time.Duration(100+random.IntN(200)) * time.Millisecond) }
	switch random.IntN(4) {
	case 0:
		w.server.Kill()
		wait()
		w.server.Restart()
	case 1:
		w.server.Freeze()
		wait()
		w.server.Thaw()
	case 2:
		w.server.CLI("FLUSHALL")
	case 3:
		w.turnBack(random)
	}
	wait()
}

// turnBack puts old records and garbage where the newest are: a replica that lagged has become the master.
func (w *world) turnBack(random *rand.Rand) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.server.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		w.t.Error(err)
		return
	}
	defer client.Close()
	for i := range worldLinks {
		value, err := client.Do(context.Background(), client.B().Get().Key(stored(worldCode(i))).Build()).ToString()
		if err != nil {
			continue
		}
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		if random.IntN(3) == 0 {
			value = "garbage" + value
		}
		if err := client.Do(context.Background(), client.B().Set().Key(stored(worldCode(i))).Value(value).Build()).Error(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) goes(all *sync.WaitGroup, seed uint64, every time.Duration, do func(random *rand.Rand)) {
	all.Go(func() {
		random := rand.New(rand.NewPCG(seed, 0))
		for !w.over.Load() {
			do(random)
			if every > 0 {
				time.Sleep(rand.N(2 * every))
			}
		}
	})
}

// Three nodes fold a log, two of them seldom, and share a Redis that is told of every event, killed, frozen, emptied, turned back
// and filled with garbage. No look-up fails, and none is answered with less than what its node had applied.
func TestNodesNeverAnswerWithLess(t *testing.T) {
	w := &world{t: t, log: runnertest.NewLog(eventlog.EventsLink, 4), server: redistest.Start(t)}
	const nothing = 1
	current, behind, forgets, effects := w.node(1<<20), w.node(1<<20), w.node(nothing), connect(t, w.server, shared.Config{})
	var all sync.WaitGroup
	w.goes(&all, 1, time.Millisecond, func(random *rand.Rand) { w.edit(effects, random) })
	w.goes(&all, 2, 2*time.Millisecond, func(*rand.Rand) {
		asOf := time.Now()
		current.fold()
		current.store.SetCurrent(asOf)
	})
	for seed, n := range []*node{behind, forgets} {
		w.goes(&all, uint64(3+seed), 50*time.Millisecond, func(random *rand.Rand) {
			asOf := time.Now()
			n.fold()
			if random.IntN(3) == 0 {
				n.store.SetCurrent(asOf)
				time.Sleep(10 * time.Millisecond)
				n.store.SetCurrent(time.Time{})
			}
		})
	}
	w.goes(&all, 5, 0, w.disturb)
	for seed, n := range []*node{current, behind, forgets, forgets} {
		w.goes(&all, uint64(10+seed), 200*time.Microsecond, n.read)
	}
	time.Sleep(worldLives)
	w.over.Store(true)
	all.Wait()
	c, s := forgets.store.CacheStats(), forgets.tier.Status()
	t.Logf("%d answers that the node itself did not have, %d from Redis, %d refused as old; the tier: %+v", w.fresh.Load(), c.SharedNewer, c.SharedOlder, s)
	if c.SharedNewer == 0 || s.Hits+s.Skipped == 0 {
		t.Error("it was too quiet")
	}
	inUse(t, forgets.tier)
}

// Passwords and users; nothing secret is shown.
func TestWrongPassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hunter2", "--user", "node", "on", ">s3cret", "~hoplog:*", "+@all")
	for _, c := range []struct{ url, password, state, says string }{
		{"redis://:wrong@", "", "open", "WRONGPASS"},
		{"redis://", "", "open", "NOAUTH"},
		{"redis://node:hunter2@", "", "open", "WRONGPASS"},
		{"redis://:hunter2@", "", "closed", ""},
		{"redis://node:wrong@", "s3cret", "closed", ""},
	} {
		tier := run(t, shared.Config{URL: c.url + server.Addr, Password: c.password})
		eventually(t, "it is clear whether it works", func() bool { s := tier.Status(); return s.State == "closed" || s.Error != "" })
		s := tier.Status()
		if s.State != c.state || !strings.Contains(s.Error, c.says) || strings.Contains(fmt.Sprint(s), "hunter2") || strings.Contains(fmt.Sprint(s), "s3cret") {
			t.Errorf("%s: %+v", c.url, s)
		}
		if err := tier.Put(context.Background(), keyOf("abc"), linkOf("abc", 1)); (err == nil) != (c.state == "closed") {
			t.Errorf("%s: Put says %v", c.url, err)
		}
	}
	// A user that may not write is told so, and reads on.
	tier := run(t, shared.Config{URL: "redis://node:s3cret@" + server.Addr, Prefix: "other:"})
	inUse(t, tier)
	if err := tier.Put(context.Background(), keyOf("abc"), linkOf("abc", 1)); err == nil || !strings.Contains(tier.Status().Refusal, "NOPERM") {
		t.Errorf("a forbidden prefix: %v, %+v", err, tier.Status())
	}
}
