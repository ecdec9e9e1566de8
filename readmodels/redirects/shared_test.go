package redirects_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

// told is a tier that says what it is told to.
type told struct {
	mu      sync.Mutex
	links   map[string]*pb.Redirect
	asked   int
	offered map[string]uint64
	asking  func() // is called within a question
}

func (s *told) Get(routeKey []byte) *pb.Redirect {
	if s.asking != nil {
		s.asking()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.links[string(routeKey)] // nobody changes it
}

func (s *told) Offer(r *redirects.Record, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered[r.RouteKey()] = r.Version
}

func (s *told) say(code string, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[string(keyOf(code))] = &pb.Redirect{Version: version, Target: fmt.Sprintf("https://shared.example/%d", version)}
}

func (s *told) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func newTold() *told { return &told{links: map[string]*pb.Redirect{}, offered: map[string]uint64{}} }

// A store that is behind answers with the newer of what it and the tier know; one that is not asks nobody.
func TestSharedIsForStoresThatAreBehind(t *testing.T) {
	log, tier := newLog(), newTold()
	log.Create("acme", host, "both", to("https://own.example/1"))
	log.Update(host, "both", to("https://own.example/2"))
	log.Create("acme", host, "own", to("https://own.example/1"))
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log, Shared: tier})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	target := func(code string) string {
		t.Helper()
		return lookup(t, s, code).GetTarget()
	}
	for _, c := range []struct {
		name, code string
		says       uint64 // the tier
		want       string
		asks       bool // again, every time
	}{
		{"nobody knows it", "nobody", 0, "", true},
		{"only the tier knows it", "theirs", 4, "https://shared.example/4", true},
		{"the tier is newer", "both", 3, "https://shared.example/3", true},
		{"and goes on", "both", 9, "https://shared.example/9", true},
		{"the tier knows as much", "both", 2, "https://own.example/2", false},
		{"the tier has nothing", "own", 0, "https://own.example/1", false},
	} {
		if c.says > 0 {
			tier.say(c.code, c.says)
		}
		for i := range 3 {
			before := tier.count()
			if got := target(c.code); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			if asked := tier.count() > before; asked != (c.asks || i == 0) {
				t.Errorf("%s, question %d: asked the tier: %v", c.name, i, asked)
			}
		}
	}
	if c := s.CacheStats(); c.SharedNewer != 9 || c.AbsentEntries != 0 || len(tier.offered) != 0 {
		t.Errorf("%+v, offered %v", c, tier.offered)
	}

	s.SetCurrent(time.Now())
	before := tier.count()
	for _, code := range []string{"nobody", "theirs"} {
		if got := target(code); got != "" {
			t.Errorf("%s of a store that is current: %q", code, got)
		}
	}
	log.Create("acme", host, "fresh", to("https://own.example/fresh"))
	must(t, s.RunToEnd(soon(t)))
	target("fresh")
	if asked := tier.count() - before; asked != 0 || tier.offered[string(keyOf("fresh"))] != 1 || len(tier.offered) != 1 {
		t.Errorf("asked %d times, offered %v", asked, tier.offered)
	}
	found := map[string]bool{}
	for r, asOf := range s.EachInMemory {
		found[r.RouteKey()] = !asOf.IsZero()
	}
	if len(found) != 3 {
		t.Errorf("in memory: %v", found)
	}
	s.SetCurrent(time.Time{})
	for r := range s.EachInMemory {
		t.Errorf("behind, and offers %q", r.RouteKey())
	}
	if got := target("theirs"); got != "https://shared.example/4" {
		t.Errorf("behind again: %q", got)
	}
}

// What is committed while the tier is asked is not answered with less.
func TestSharedIsOvertakenByACommit(t *testing.T) {
	log, tier := newLog(), newTold()
	log.Create("acme", host, "abc", to("https://own.example/1"))
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log, Shared: tier})
	must(t, s.RunToEnd(soon(t)))
	tier.say("abc", 2)
	tier.asking = func() {
		tier.asking = nil
		log.Update(host, "abc", to("https://own.example/2"))
		log.Update(host, "abc", to("https://own.example/3"))
		must(t, s.RunToEnd(soon(t)))
	}
	if got := lookup(t, s, "abc"); got.GetVersion() != 3 {
		t.Errorf("version %d after 3 was committed", got.GetVersion())
	}
	if c := s.CacheStats(); c.SharedOlder != 1 {
		t.Errorf("%+v", c)
	}
}

// A store without a tier does not care how far it is behind.
func TestNothingShared(t *testing.T) {
	log := newLog()
	log.Create("acme", host, "abc", to("https://own.example/1"))
	s := openWith(t, redirects.Config{Dir: t.TempDir(), Source: log})
	must(t, s.RunToEnd(soon(t)))
	learned(t, s)
	for _, asOf := range []time.Time{{}, time.Now(), {}} {
		s.SetCurrent(asOf)
		if got := state(s, "nobody"); got != "unknown" {
			t.Errorf("current as of %v: %s", asOf, got)
		}
		lookup(t, s, "abc")
	}
}
