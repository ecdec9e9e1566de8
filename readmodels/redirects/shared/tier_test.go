package shared_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
)

// Whoever writes, in whatever order, the newest version stays, and no reader sees a version go back.
func TestNewestStays(t *testing.T) {
	server := redistest.Start(t)
	tiers := []*shared.Tier{connect(t, server, shared.Config{}), connect(t, server, shared.Config{})}
	const links, newest, writers = 8, 50, 6
	code := func(i int) string { return fmt.Sprintf("c%d", i) }
	var writing, reading sync.WaitGroup
	var over atomic.Bool
	for w := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for _, i := range random.Perm(links * newest) {
				tier, code, version := tiers[w%2], code(i%links), uint64(i/links+1)
				if w < 4 {
					if err := tier.Put(context.Background(), keyOf(code), linkOf(code, version)); err != nil {
						t.Error(err)
					}
				} else {
					tier.Offer(recordOf(code, version), time.Now())
					time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
				}
			}
		})
	}
	for _, tier := range tiers {
		reading.Go(func() {
			var seen [links]uint64
			for !over.Load() {
				for i := range links {
					got := version(t, tier, code(i))
					if got < seen[i] {
						t.Errorf("%s went from version %d to %d", code(i), seen[i], got)
					}
					seen[i] = max(seen[i], got)
				}
			}
		})
	}
	writing.Wait()
	over.Store(true)
	reading.Wait()
	for i := range links {
		for _, tier := range tiers {
			eventually(t, "the newest is read", func() bool { return version(t, tier, code(i)) == newest })
		}
	}
	if s := tiers[0].Status(); s.Newer == 0 || s.Failed+s.Unusable+s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// What is read again is answered without Redis, until Redis tells of a change; that there is no link, too.
func TestTrackedReads(t *testing.T) {
	server := redistest.Start(t)
	reader, writer := connect(t, server, shared.Config{}), connect(t, server, shared.Config{})
	gets := func() string {
		for line := range strings.Lines(server.CLI("INFO", "commandstats")) {
			if calls, ok := strings.CutPrefix(line, "cmdstat_get:calls="); ok {
				n, _, _ := strings.Cut(calls, ",")
				return n
			}
		}
		return "0"
	}
	for want := range uint64(4) {
		if want > 0 {
			put(t, writer, "abc", want)
		}
		eventually(t, "the change is seen", func() bool { return version(t, reader, "abc") == want })
		before := gets()
		for range 500 {
			if got := version(t, reader, "abc"); got != want {
				t.Fatalf("version %d after %d", got, want)
			}
		}
		if after := gets(); after != before {
			t.Errorf("version %d: Redis was asked again: %s GETs, then %s", want, before, after)
		}
	}
	// As by a Redis that evicts, and by one that somebody empties.
	do(t, plain(t, server), "DEL", stored("abc"))
	eventually(t, "the eviction is seen", func() bool { return version(t, reader, "abc") == 0 })
	put(t, writer, "abc", 9)
	eventually(t, "it is there again", func() bool { return version(t, reader, "abc") == 9 })
	server.CLI("FLUSHALL")
	eventually(t, "the flush is seen", func() bool { return version(t, reader, "abc") == 0 })
}

// Fills come through, once, and not when they are late; records live for a while, not all equally long.
func TestFills(t *testing.T) {
	server := redistest.Start(t)
	tier := connect(t, server, shared.Config{TTL: time.Hour})
	for i := range 300 {
		tier.Offer(recordOf(fmt.Sprintf("c%d", i), 1), time.Now())
	}
	eventually(t, "all are written", func() bool { return tier.Status().Written == 300 })
	tier.Offer(recordOf("late", 1), time.Now().Add(-time.Minute))
	tier.Offer(recordOf("c0", 1), time.Now())
	eventually(t, "these are not", func() bool { s := tier.Status(); return s.Late == 1 && s.Same == 1 })
	if got := version(t, tier, "late"); got != 0 {
		t.Errorf("a late fill was kept: version %d", got)
	}
	lives := map[int64]bool{}
	client := plain(t, server)
	for i := range 300 {
		life, err := do(t, client, "PTTL", stored(fmt.Sprintf("c%d", i))).AsInt64()
		must(t, err)
		if life < 50*60_000 || life > 67*60_000 {
			t.Errorf("a life of %d ms", life)
		}
		lives[life/1000] = true
	}
	if len(lives) < 100 {
		t.Errorf("300 records end in %d different seconds", len(lives))
	}
	// Many at once are bounded; nobody waits.
	for range 5000 {
		tier.Offer(recordOf("c1", 1), time.Now())
	}
	if tier.Status().Dropped == 0 {
		t.Error("5,000 fills at once, and none was dropped")
	}
}

// What is in memory is offered once, and again when Redis comes back empty.
func TestRefresh(t *testing.T) {
	server := redistest.Start(t)
	tier := connect(t, server, shared.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- tier.Refresh(ctx, func(yield func(*redirects.Record, time.Time) bool) {
			for i := range 200 {
				if !yield(recordOf(fmt.Sprintf("c%d", i), 3), time.Now()) {
					return
				}
			}
		})
	}()
	eventually(t, "all are there", func() bool { return version(t, tier, "c199") == 3 && tier.Status().Written == 200 })
	// It is away so briefly that nobody notices but by the connection.
	server.Kill()
	server.Restart()
	eventually(t, "all are there again", func() bool { return tier.Status().Written >= 400 && version(t, tier, "c199") == 3 })
	cancel()
	must(t, <-done)
}

// A dead Redis fails a few questions; then it costs nothing, and it is used again when it is back, empty.
func TestDeadRedis(t *testing.T) {
	server := redistest.Start(t)
	tier := connect(t, server, shared.Config{})
	put(t, tier, "abc", 5)
	for _, c := range []struct {
		name      string
		break_    func()
		mend      func()
		afterward uint64
	}{
		{"killed", server.Kill, server.Restart, 0},
		{"frozen", server.Freeze, server.Thaw, 5},
	} {
		put(t, tier, "abc", 5)
		c.break_()
		before := tier.Status()
		eventually(t, c.name+": the breaker opens", func() bool {
			version(t, tier, fmt.Sprint(rand.Int64())) // nothing that the client has
			return tier.Status().State == "open"
		})
		failed := tier.Status().Failed - before.Failed
		began := time.Now()
		for range 10_000 {
			version(t, tier, "abc")
			tier.Offer(recordOf("abc", 4), time.Now())
		}
		t.Logf("%s: open after %d failures; then 10,000 questions in %v", c.name, failed, time.Since(began))
		after := tier.Status()
		if failed > 10 || after.Skipped-before.Skipped < 9_000 || after.Dropped-before.Dropped < 9_000 || after.Error == "" || after.Opened == before.Opened {
			t.Errorf("%s: %d failures, %+v", c.name, failed, after)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if err := tier.Put(ctx, keyOf("abc"), linkOf("abc", 6)); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: Put says %v", c.name, err)
		}
		cancel()
		c.mend()
		inUse(t, tier)
		// What was sent to a frozen Redis it may do when it goes on.
		eventually(t, c.name+": it is read again", func() bool { got := version(t, tier, "abc"); return got == c.afterward || c.afterward != 0 && got == 6 })
	}
}

// A Redis that is not there when the node starts is used when it comes.
func TestRedisComesLater(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	tier := run(t, shared.Config{URL: "redis://" + server.Addr})
	eventually(t, "the refusal is noted", func() bool { return tier.Status().Error != "" })
	if err := tier.Put(context.Background(), keyOf("abc"), linkOf("abc", 1)); !errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("Put says %v", err)
	}
	server.Restart()
	inUse(t, tier)
	put(t, tier, "abc", 1)
	if got := version(t, tier, "abc"); got != 1 {
		t.Errorf("version %d", got)
	}
}

// What others left under our keys is no answer, and gives way. Other keys stay as they are.
func TestForeignData(t *testing.T) {
	server := redistest.Start(t)
	client := plain(t, server)
	tier := connect(t, server, shared.Config{})
	put(t, tier, "other", 7)
	value, err := do(t, client, "GET", stored("other")).ToString()
	must(t, err)
	foreign := []string{"hoplog", "hoplog:", "hoplog:x", "else:link:" + string(keyOf("abc")), "link"}
	for _, key := range foreign {
		do(t, client, "SET", key, "mine "+key)
	}
	for i, garbage := range [][]string{
		{"SET", "", "hello"},
		{"SET", "", ""},
		{"SET", "", "2" + value[1:]},
		{"SET", "", value},                // of another key
		{"SET", "", value[:len(value)-3]}, // torn
		{"SET", "", "1" + strings.Repeat("x", 40)},
		{"SET", "", "1" + strings.Repeat("0", 20)},
		{"RPUSH", "", "a", "b"},
		{"HSET", "", "version", "9"},
		{"SET", "", strings.Repeat("9", 1<<20)},
	} {
		code := "g" + strconv.Itoa(i)
		garbage[1] = stored(code)
		do(t, client, garbage...)
		if got := tier.Get(keyOf(code)); got != nil {
			t.Errorf("%.60q is read as %v", garbage, got)
		}
		put(t, tier, code, 8)
		// Redis tells of the change after it answered.
		eventually(t, garbage[0]+" gives way", func() bool { return version(t, tier, code) == 8 })
	}
	if s := tier.Status(); s.Unusable < 10 || s.State != "closed" {
		t.Errorf("%+v", s)
	}
	for _, key := range foreign {
		if got, err := do(t, client, "GET", key).ToString(); err != nil || got != "mine "+key {
			t.Errorf("%s is now %q, %v", key, got, err)
		}
	}
	for key := range strings.Lines(server.CLI("--scan")) {
		if key = strings.TrimSpace(key); !strings.HasPrefix(key, "hoplog:link:") && !strings.Contains(strings.Join(foreign, "\n"), strings.SplitN(key, "\\", 2)[0]) {
			t.Errorf("a key %q", key)
		}
	}
}

// Where there is no room for the newer record, the older one goes.
func TestFullRedis(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	client := plain(t, server)
	tier := connect(t, server, shared.Config{})
	put(t, tier, "abc", 1)
	do(t, client, "SET", "foreign", strings.Repeat("x", 1<<20))
	eventually(t, "it is read", func() bool { return version(t, tier, "abc") == 1 })
	do(t, client, "CONFIG", "SET", "maxmemory", "1mb")
	put(t, tier, "abc", 2)
	eventually(t, "the old one is gone", func() bool { return version(t, tier, "abc") == 0 })
	tier.Offer(recordOf("abc", 1), time.Now())
	eventually(t, "there is no room for another", func() bool { return tier.Status().Full == 2 })
	if s := tier.Status(); s.State != "closed" || version(t, tier, "abc") != 0 { // nothing was written
		t.Errorf("%+v", s)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "0")
	put(t, tier, "abc", 3)
	eventually(t, "there is room", func() bool { return version(t, tier, "abc") == 3 })
	if size, err := do(t, client, "STRLEN", "foreign").AsInt64(); err != nil || size != 1<<20 {
		t.Errorf("foreign: %d, %v", size, err)
	}
}
