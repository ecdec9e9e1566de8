package redirects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

// openWith is open with settings of memory.
func openWith(tb testing.TB, cfg redirects.Config) *redirects.Store {
	tb.Helper()
	s, err := redirects.Open(cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	return s
}

func keyOf(code string) []byte { return []byte(events.RouteKey(host, code)) }

// eventually waits until something holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("still not: %s", what)
		}
	}
}

func learned(tb testing.TB, s *redirects.Store) {
	tb.Helper()
	eventually(tb, "all keys are known", func() bool { c := s.CacheStats(); return c.FilterStripes == c.AllStripes })
}

// state is what Find says, in a word.
func state(s *redirects.Store, code string) string {
	r, state := s.Find(keyOf(code))
	if (r != nil) != (state == redirects.Hit) {
		return fmt.Sprintf("a record of state %d", state)
	}
	return [...]string{"needs the store", "hit", "unknown"}[state]
}

func TestFindTellsWhatIsKnown(t *testing.T) {
	log := newLog()
	log.Create("acme", host, "abc", to("https://a.example/"))
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	for _, step := range []struct {
		code, before, after string
	}{{"abc", "needs the store", "hit"}, {"nobody", "unknown", "unknown"}} {
		if got := state(s, step.code); got != step.before {
			t.Errorf("%s: %s, want %s", step.code, got, step.before)
		}
		r, err := s.Load(keyOf(step.code))
		must(t, err)
		if (r != nil) != (step.after == "hit") {
			t.Errorf("%s: loaded %v", step.code, r)
		}
		if got := state(s, step.code); got != step.after {
			t.Errorf("%s: %s, want %s", step.code, got, step.after)
		}
	}
	// An edit leaves a link that is in memory there, as it is now.
	log.Update(host, "abc", to("https://b.example/"))
	log.Create("acme", host, "nobody", to("https://c.example/"))
	must(t, s.RunToEnd(soon(t)))
	if r, state := s.Find(keyOf("abc")); state != redirects.Hit || r.Target() != "https://b.example/" || r.Version != 2 {
		t.Errorf("after an edit: %v, %+v", state, r)
	}
	if got := state(s, "nobody"); got != "needs the store" {
		t.Errorf("after its creation: %s", got)
	}
}

// A record packs and unpacks what the store holds.
func TestRecordIsWhatWasStored(t *testing.T) {
	log := newLog()
	contents := []*pb.LinkContent{
		to("https://a.example/"),
		{Target: "https://a.example/?" + strings.Repeat("x", 8000), RedirectStatus: 308, Query: pb.QueryPolicy_QUERY_REJECT},
		{Target: "https://b.example/", CacheTtl: 60},
		{Target: "https://b.example/", NotBeforeUs: 5, ExpiresUs: 9},
		{Target: "x", ExpiresUs: -1},
		{Target: "https://c.example/", ExpiredUrl: "https://over.example/"},
		{Target: "https://d.example/", ExpiresUs: 9, ExpiredUrl: "https://over.example/?" + strings.Repeat("y", 8000)},
	}
	for i, content := range contents {
		log.Create("acme", host, code(i), content)
	}
	log.Change(host, code(0), pb.StatusAction_BAN)
	log.Change(host, code(1), pb.StatusAction_DISABLE)
	log.Change(host, code(2), pb.StatusAction_DELETE)
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	for i, content := range contents {
		r, err := s.Load(keyOf(code(i)))
		must(t, err)
		if r.Target() != content.GetTarget() || r.RouteKey() != string(keyOf(code(i))) || uint32(r.Bucket) != events.BucketOf(host, code(i)) ||
			r.ExpiredURL() != content.GetExpiredUrl() || r.NotBeforeUS() != content.GetNotBeforeUs() || r.ExpiresUS() != content.GetExpiresUs() || r.CacheTTL() != content.GetCacheTtl() ||
			int(r.Status) != max(302, int(content.GetRedirectStatus())) || pb.QueryPolicy(r.Query) != content.GetQuery() || r.LinkID != uint64(i)+1 {
			t.Errorf("%d: %+v, %q", i, r, r.Target())
		}
		for _, now := range []int64{0, 4, 5, 8, 9} {
			if got, want := r.AnswerAt(now), readmodels.AnswerAt(lookup(t, s, code(i)), now); got != want {
				t.Errorf("%d at %d: %v, want %v", i, now, got, want)
			}
		}
	}
	for i, want := range []readmodels.Answer{readmodels.Forbidden, readmodels.Gone, readmodels.Gone, readmodels.Serve} {
		if r, _ := s.Find(keyOf(code(i))); r.AnswerAt(6) != want {
			t.Errorf("%d: answer %v", i, r.AnswerAt(6))
		}
	}
}

func TestMemoryIsBoundedAndRight(t *testing.T) {
	log := newLog()
	const links, bound = 5000, 256 << 10
	target := func(i int) string { return fmt.Sprint("https://a.example/", i, strings.Repeat("x", i*i%700)) }
	for i := range links {
		log.Create("acme", host, code(i), to(target(i)))
	}
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log, Memory: bound})
	must(t, s.RunToEnd(soon(t)))
	for round := range 3 {
		for i := range links {
			if got := lookup(t, s, code(i)).GetTarget(); got != target(i) {
				t.Fatalf("round %d: %s leads to %s", round, code(i), got)
			}
			lookup(t, s, code(0)) // the one that everybody wants
		}
	}
	stats := s.CacheStats()
	if stats.Bytes > bound || stats.Bytes < bound*3/4 {
		t.Errorf("%d bytes in memory, bound %d", stats.Bytes, bound)
	}
	if stats.Hits < 3*links-10 {
		t.Errorf("%d hits: the hot link was thrown out", stats.Hits)
	}
}

// Strangers ask for a million codes that nobody gave out, before the filter knows anything and afterwards.
func TestUnknownCodesAreBounded(t *testing.T) {
	log := newLog()
	const links = 20_000
	for i := range links {
		log.Create("acme", host, code(i), to("https://a.example/"))
	}
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	const asked = 1_000_000
	key := keyOf("")
	prefix := len(key)
	through := 0
	for i := range asked {
		key = fmt.Appendf(key[:prefix], "guess%d", i)
		r, state := s.Find(key)
		if state == redirects.NeedsStore {
			through++
			var err error
			r, err = s.Load(key)
			must(t, err)
			if _, again := s.Find(key); again != redirects.Unknown {
				t.Fatalf("%q was just not found and needs the store again", key)
			}
		}
		if r != nil {
			t.Fatalf("%q is found", key)
		}
	}
	stats := s.CacheStats()
	t.Logf("%d of %d went to the store; %d remembered, filter %.2f bytes a link", through, asked, stats.AbsentEntries, float64(stats.FilterBytes)/links)
	if through > asked/100 {
		t.Errorf("%d of %d went to the store", through, asked)
	}
	if stats.AbsentEntries > 20_000 || stats.Entries != 0 {
		t.Errorf("%d keys are remembered as unknown, %d as links", stats.AbsentEntries, stats.Entries)
	}
	if stats.FilterBytes > 2*links {
		t.Errorf("the filter takes %d bytes for %d links", stats.FilterBytes, links)
	}
}

// What was not found is found once it is created, however often it was asked for before, with and without the filter.
func TestCreationEndsUnknown(t *testing.T) {
	for _, known := range []bool{false, true} {
		log := newLog()
		s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
		if known {
			must(t, s.RunToEnd(soon(t)))
			learned(t, s)
		}
		for i := range 3000 {
			for range 2 {
				if lookup(t, s, code(i)) != nil {
					t.Fatal("found before it is there")
				}
			}
			log.Create("acme", host, code(i), to("https://a.example/"))
			if i%10 == 9 {
				must(t, s.RunToEnd(soon(t)))
				for j := i - 9; j <= i; j++ {
					if lookup(t, s, code(j)) == nil {
						t.Fatalf("known %v: %d is not found after its creation was announced", known, j)
					}
				}
			}
		}
		must(t, s.RunToEnd(soon(t)))
	}
}

// The filter grows with the set, and stays within its bounds.
func TestFilterGrowsWithTheLinks(t *testing.T) {
	log := newLog()
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	const links = 150_000
	for i := 0; i < links; {
		for range 5000 {
			log.Create("acme", host, code(i), to("https://a.example/"))
			i++
		}
		must(t, s.RunToEnd(soon(t)))
		for j := max(0, i-5000); j < i; j++ {
			if state(s, code(j)) == "unknown" {
				t.Fatalf("link %d of %d is called unknown", j, i)
			}
		}
	}
	eventually(t, "two bytes a link", func() bool { c := s.CacheStats(); return c.FilterBytes <= 2*links && c.FilterStripes == c.AllStripes })
	for i := range links {
		if state(s, code(i)) == "unknown" {
			t.Fatalf("link %d is called unknown", i)
		}
	}
	passed := 0
	for i := range links {
		if state(s, "x"+code(i)) != "unknown" {
			passed++
		}
	}
	t.Logf("%.2f %% of unknown codes pass, %.2f bytes a link", 100*float64(passed)/links, float64(s.CacheStats().FilterBytes)/links)
	if passed > links/100 {
		t.Errorf("%d of %d unknown codes are not called unknown", passed, links)
	}
}

// TestMemoryAgreesWithTheTruth has readers that know what was announced, while links are created and edited, memory is far
// too small, and the store is rebuilt beside. Nobody may see an older version than one that was announced before it asked,
// nor miss a link that was; nor one newer than what was written.
func TestMemoryAgreesWithTheTruth(t *testing.T) {
	const links, edits = 300, 3000
	log := newLog()
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log, Memory: 32 << 10})
	must(t, s.RunToEnd(soon(t)))
	var announced, written [links]atomic.Uint64
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for reader := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(reader)))
			for ctx.Err() == nil && !t.Failed() {
				i := random.IntN(1 + random.IntN(links)) // some are hot
				least := announced[i].Load()
				r, state := s.Find(keyOf(code(i)))
				if state == redirects.NeedsStore {
					var err error
					if r, err = s.Load(keyOf(code(i))); err != nil && !errors.Is(err, redirects.ErrBusy) {
						t.Error(err)
					} else if err != nil {
						continue
					}
				}
				version := uint64(0)
				if r != nil {
					version = r.Version
				}
				if most := written[i].Load(); version < least || version > most {
					t.Errorf("link %d: version %d, announced was %d, written %d", i, version, least, most)
				}
				if r != nil && r.Target() != fmt.Sprint("https://a.example/", i, "/", version) {
					t.Errorf("link %d version %d leads to %s", i, version, r.Target())
				}
			}
		})
	}
	rebuilds := 0
	all.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.Rebuild(ctx, nil); err == nil {
				rebuilds++
			}
		}
	})
	random := rand.New(rand.NewPCG(2, 0))
	for n := 0; n < edits && !t.Failed(); n++ {
		i := random.IntN(1 + random.IntN(links))
		version := written[i].Add(1)
		content := to(fmt.Sprint("https://a.example/", i, "/", version))
		var e *events.Envelope
		if version == 1 {
			e = log.Create("acme", host, code(i), content)
		} else {
			e = log.Update(host, code(i), content)
		}
		must(t, s.WaitFor(soon(t), e.Position(events.StreamLink)))
		announced[i].Store(version)
	}
	cancel()
	all.Wait()
	t.Logf("%d rebuilds, %+v", rebuilds, s.CacheStats())
	if rebuilds == 0 {
		t.Error("it was never rebuilt meanwhile")
	}
}

// slowFS holds up reads of tables while its gate is closed.
type slowFS struct {
	vfs.FS
	gate *gate
}

type gate struct {
	mu      sync.RWMutex
	waiting atomic.Int64
}

func (g *gate) pass() {
	g.waiting.Add(1)
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.waiting.Add(-1)
}

func (fs slowFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return slowFile{f, fs.gate}, nil
}

type slowFile struct {
	vfs.File
	gate *gate
}

func (f slowFile) ReadAt(p []byte, off int64) (int, error) {
	f.gate.pass()
	return f.File.ReadAt(p, off)
}

// coldStore is a store whose links all lie in tables, none in memory, and the gate in front of them.
func coldStore(t *testing.T, links int, cfg redirects.Config) (*redirects.Store, *gate) {
	t.Helper()
	log := newLog()
	for i := range links {
		log.Create("acme", host, code(i), to("https://a.example/"))
	}
	g := &gate{}
	fs := vfs.NewMem()
	cfg.Dir, cfg.Source, cfg.Pebble = "redirects", log, runner.PebbleOptions{FS: fs}
	s, err := redirects.Open(cfg)
	must(t, err)
	must(t, s.RunToEnd(soon(t)))
	must(t, s.Close())
	cfg.Pebble = runner.PebbleOptions{FS: slowFS{fs, g}, Cache: runner.NewCache(1)}
	s = openWith(t, cfg)
	learned(t, s)
	return s, g
}

// Many ask for one link at once: the store is asked once.
func TestMissesOfOneKeyAreMerged(t *testing.T) {
	s, g := coldStore(t, 100, redirects.Config{})
	g.mu.Lock()
	var all sync.WaitGroup
	results := make([]*redirects.Record, 50)
	for i := range results {
		all.Go(func() { results[i], _ = s.Load(keyOf(code(7))) })
	}
	eventually(t, "49 wait for one", func() bool { return s.CacheStats().Misses == 50 })
	g.mu.Unlock()
	all.Wait()
	for _, r := range results {
		if r == nil || r != results[0] {
			t.Fatalf("got %p and %p", results[0], r)
		}
	}
}

// While the disk hangs, no more reads than the budget wait for it, everybody else hears soon that it is busy, and what is in
// memory goes on.
func TestReadsAreBounded(t *testing.T) {
	s, g := coldStore(t, 1000, redirects.Config{Reads: 4, Wait: time.Millisecond})
	if _, err := s.Load(keyOf(code(0))); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	var all sync.WaitGroup
	var busy, found atomic.Int64
	for i := range 200 {
		all.Go(func() {
			switch r, err := s.Load(keyOf(code(i + 1))); {
			case errors.Is(err, redirects.ErrBusy):
				busy.Add(1)
			case err == nil && r != nil:
				found.Add(1)
			default:
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	eventually(t, "196 are told that it is busy", func() bool { return busy.Load() >= 196-int64(s.CacheStats().Hits) })
	if n := g.waiting.Load(); n > 4 {
		t.Errorf("%d reads at once", n)
	}
	if state(s, code(0)) != "hit" || state(s, "nobody") != "unknown" {
		t.Error("what is in memory does not go on")
	}
	g.mu.Unlock()
	all.Wait()
	if found.Load() != 4 || s.CacheStats().Busy != 196 {
		t.Errorf("%d found, %d busy", found.Load(), busy.Load())
	}
	for i := range 200 { // nothing sticks
		if r, err := s.Load(keyOf(code(i + 1))); err != nil || r == nil {
			t.Fatal(r, err)
		}
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	log := newLog()
	log.Create("acme", host, "abc", to("https://a.example/"))
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	lookup(t, s, "abc")
	keys := [][]byte{keyOf("abc"), keyOf("nobody-has-this-code"), slices.Concat(keyOf("abc"), []byte("+"))}
	if n := testing.AllocsPerRun(100, func() {
		for _, key := range keys {
			r, _ := s.Find(key)
			_ = r.AnswerAt(1)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
