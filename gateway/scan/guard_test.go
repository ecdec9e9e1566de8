package scan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
)

// world is a guard and a clock.
type world struct {
	*Guard
	now  int64 // microseconds
	code uint64
}

func newWorld(t *testing.T, config Config) *world {
	t.Helper()
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &world{Guard: g, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMicro()}
}

func (w *world) pass(d time.Duration) { w.now += d.Microseconds() }

// guess asks for a code that was not asked for before.
func (w *world) guess(from netip.Addr) time.Duration {
	w.code++
	return w.Unknown(from, w.code, w.now)
}

// follow visits a link.
func (w *world) follow(from netip.Addr, link uint64) time.Duration {
	if !w.Watches(w.now) {
		return 0
	}
	return w.Found(from, link, w.now)
}

var (
	someone  = netip.MustParseAddr("198.51.100.7")
	stranger = netip.MustParseAddr("203.0.113.9")
)

func TestTyposAreAnswered(t *testing.T) {
	w := newWorld(t, Config{})
	for i := range 2000 { // one in 1.2 s, for 40 minutes
		if retry := w.guess(someone); retry != 0 {
			t.Fatalf("typo %d: refused for %v", i, retry)
		}
		w.pass(1200 * time.Millisecond)
	}
}

// A mail with a broken link: everybody behind an address asks for the same unknown code.
func TestABrokenLinkCountsOnce(t *testing.T) {
	w := newWorld(t, Config{})
	for i := range 5000 {
		if retry := w.Unknown(someone, uint64(i%3), w.now); retry != 0 {
			t.Fatalf("visitor %d: refused for %v", i, retry)
		}
		w.pass(10 * time.Millisecond)
	}
}

func TestAGuesserIsSlowed(t *testing.T) {
	w := newWorld(t, Config{})
	answered, longest := 0, time.Duration(0)
	for range 5000 { // in 50 s
		if retry := w.guess(someone); retry == 0 {
			answered++
		} else if retry < longest {
			t.Fatalf("Retry-After fell from %v to %v while it went on", longest, retry)
		} else {
			longest = retry
		}
		w.pass(time.Millisecond * 10)
	}
	if answered < 60 || answered > 70 {
		t.Errorf("%d guesses answered of 60 allowed", answered)
	}
	if longest < 2*time.Minute || longest > 4*time.Minute {
		t.Errorf("refused for %v at last", longest)
	}
	if s := w.Status(w.now); s.Closed != 1 || !s.UnderWay || s.Network != "198.51.100.0/24" || s.RefusedGuesses != uint64(5000-answered) {
		t.Errorf("%+v", s)
	}
	if retry := w.guess(stranger); retry != 0 {
		t.Errorf("somebody else is refused for %v", retry)
	}
	w.pass(longest + time.Second)
	if retry := w.guess(someone); retry != 0 {
		t.Errorf("who waited as long as asked is refused for %v", retry)
	}
	// Who heeds the answers gets through, one in two seconds.
	answered = 0
	for end := w.now + int64(10*time.Minute/time.Microsecond); w.now < end; w.pass(100 * time.Millisecond) {
		if retry := w.guess(someone); retry > 0 {
			w.pass(retry)
		} else {
			answered++
		}
	}
	if answered < 250 || answered > 700 {
		t.Errorf("%d answered in ten minutes", answered)
	}
}

// What a guesser learns is bounded, however fast it tries.
func TestAGuesserLearnsLittle(t *testing.T) {
	w := newWorld(t, Config{})
	random := rand.New(rand.NewPCG(1, 2))
	learned, told429 := 0, 0
	for range 600_000 { // 1000 a second for ten minutes, one in twenty exists
		if random.IntN(20) == 0 {
			if w.follow(someone, random.Uint64()) == 0 {
				learned++
			} else {
				told429++
			}
		} else {
			w.guess(someone)
		}
		w.pass(time.Millisecond)
	}
	if learned > 160 || told429 == 0 {
		t.Errorf("%d links learned, %d refused", learned, told429)
	}
	if s := w.Status(w.now); s.RefusedLinks != uint64(told429) {
		t.Errorf("%+v", s)
	}
}

// Links that a guesser knows give no credit when there are few of them, and bounded credit when there are many.
func TestKnownLinksGiveNoCredit(t *testing.T) {
	for known, most := range map[int]int{1: 75, 16: 75, 100_000: 6000} {
		w := newWorld(t, Config{})
		answered := 0
		for i := range 300_000 { // 100 guesses a second for ten minutes, with four links between two
			if i%5 != 0 {
				w.follow(someone, uint64(i%known)+1<<40)
			} else if w.guess(someone) == 0 {
				answered++
			}
			w.pass(2 * time.Millisecond)
		}
		if answered > most {
			t.Errorf("%d known links: %d guesses answered, want %d at most", known, answered, most)
		}
	}
}

// An address with many visitors, of whom a few mistype.
func TestASharedAddressIsLeftAlone(t *testing.T) {
	w := newWorld(t, Config{})
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 60_000 { // 100 visits a second for ten minutes
		retry := time.Duration(0)
		if random.IntN(50) == 0 {
			retry = w.guess(someone)
		} else {
			retry = w.follow(someone, random.Uint64N(10_000))
		}
		if retry != 0 {
			t.Fatalf("visit %d: refused for %v", i, retry)
		}
		w.pass(10 * time.Millisecond)
	}
}

// Somebody guesses behind an address that others share: they go on.
func TestWhoSharesAnAddressWithAGuesserGoesOn(t *testing.T) {
	w := newWorld(t, Config{})
	random := rand.New(rand.NewPCG(5, 6))
	visits, refused := 0, 0
	for i := range 20 * 60 * 1000 { // milliseconds
		if i%200 == 0 { // five visits a second, half of them to ten links that everybody follows
			link := random.Uint64N(10)
			if random.IntN(2) == 0 {
				link = random.Uint64()
			}
			visits++
			if w.follow(someone, link) != 0 {
				refused++
			}
			if random.IntN(50) == 0 {
				w.guess(someone)
			}
		}
		if i > 10*60*1000 && i%10 == 0 { // 100 guesses a second in the last ten minutes, one in a thousand exists
			if random.IntN(1000) != 0 {
				w.guess(someone)
			} else {
				w.follow(someone, random.Uint64())
			}
		}
		w.pass(time.Millisecond)
	}
	if s := w.Status(w.now); s.Closed != 1 {
		t.Errorf("the guesser is not met: %+v", s)
	}
	if refused*20 > visits {
		t.Errorf("%d of %d visits refused", refused, visits)
	}
}

// Who has a whole network moves on to the next address: the network is a source too.
func TestNetworksAreSources(t *testing.T) {
	for name, addresses := range map[string]func(i int) netip.Addr{
		"a /24": func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) },
		"a /48": func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i >> 8), byte(i), 9})
		},
		"one /64, changes": func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, 1, byte(i >> 8), byte(i)})
		},
	} {
		w := newWorld(t, Config{})
		answered := 0
		for i := range 60_000 { // in a minute
			if w.guess(addresses(i)) == 0 {
				answered++
			}
			w.pass(time.Millisecond)
		}
		if most := map[string]int{"one /64, changes": 70}[name]; answered > max(most, 1100) || most > 0 && answered > most {
			t.Errorf("%s: %d guesses answered", name, answered)
		}
		if retry := w.guess(stranger); retry != 0 {
			t.Errorf("%s: another network is refused for %v", name, retry)
		}
	}
}

// A scan from very many networks meets an eighth of the limit for each, and visitors who mistype once do not notice.
func TestADistributedScanPresses(t *testing.T) {
	w := newWorld(t, Config{NodeLimit: 1000})
	random := rand.New(rand.NewPCG(7, 8))
	answered, pressed := map[netip.Addr]int{}, false
	for i := range 400_000 { // 10,000 addresses, 4 guesses a second from each for ten seconds
		from := netip.AddrFrom4([4]byte{100, byte(random.IntN(100)), byte(random.IntN(100)), 1})
		if w.guess(from) == 0 {
			answered[from]++
		}
		if i > 200_000 && i%10_000 == 0 {
			if retry := w.guess(netip.AddrFrom4([4]byte{200, byte(i / 10_000), 1, 1})); retry != 0 {
				t.Fatalf("a typo is refused for %v", retry)
			}
		}
		w.pass(25 * time.Microsecond)
		pressed = pressed || w.Totals(w.now).Pressed
	}
	if !pressed {
		t.Error("not pressed")
	}
	total := 0
	for _, n := range answered {
		total += n
	}
	if most := 100_000; total > most { // of 400,000; without the limit, nearly all
		t.Errorf("%d guesses of %d addresses answered", total, len(answered))
	}
	w.pass(2 * time.Second)
	if s := w.Status(w.now); s.Pressed {
		t.Errorf("%+v", s)
	}
}

// Two million sources in a table of 4096: its size stays, who guesses most stays in it, and strangers are answered.
func TestTheTableIsBounded(t *testing.T) {
	w := newWorld(t, Config{Sources: 4096, NodeLimit: 1e9})
	for range 500 {
		w.guess(someone)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	random := rand.New(rand.NewPCG(9, 10))
	refused := 0
	for range 1_000_000 { // each an address and a network
		if w.guess(netip.AddrFrom4([4]byte{byte(1 + random.IntN(190)), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})) != 0 {
			refused++
		}
		w.pass(20 * time.Microsecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<10 {
		t.Errorf("%d bytes more", grown)
	}
	s := w.Status(w.now)
	if s.Sources > 4096 || s.Evicted < 1_000_000 {
		t.Errorf("%+v", s)
	}
	if refused != 0 {
		t.Errorf("%d strangers refused", refused)
	}
	if w.guess(someone) == 0 {
		t.Error("the guesser is forgotten")
	}
}

// A guesser closes neither its neighbours nor everybody.
func TestAGuesserClosesOnlyItself(t *testing.T) {
	w := newWorld(t, Config{})
	neighbour := netip.MustParseAddr("198.51.100.8")
	for range 600_000 { // 10,000 a second for a minute
		w.guess(someone)
		w.pass(100 * time.Microsecond)
	}
	for range 30 {
		if retry := max(w.guess(neighbour), w.guess(stranger), w.follow(neighbour, w.code)); retry != 0 {
			t.Fatalf("another is refused for %v", retry)
		}
	}
	if s := w.Status(w.now); s.Closed != 1 || s.Pressed {
		t.Errorf("%+v", s)
	}
}

func TestAllowed(t *testing.T) {
	w := newWorld(t, Config{Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	for range 10_000 {
		if w.guess(someone) != 0 || w.guess(netip.Addr{}) != 0 {
			t.Fatal("refused")
		}
	}
	if s := w.Status(w.now); s.Sources != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRefusesSettings(t *testing.T) {
	if _, err := New(Config{Limit: -1}); err == nil {
		t.Error("a negative limit")
	}
}

func TestAtOnce(t *testing.T) {
	w := newWorld(t, Config{Sources: 512})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(11, uint64(g)))
			for i := range 20_000 {
				from := netip.AddrFrom4([4]byte{198, 51, byte(random.IntN(4)), byte(random.IntN(16))})
				now := w.now + int64(i)*1000
				switch random.IntN(4) {
				case 0:
					w.Found(from, random.Uint64(), now)
				case 1:
					w.Closed(from, now)
				default:
					w.Unknown(from, random.Uint64(), now)
				}
			}
		})
	}
	all.Wait()
	if s := w.Status(w.now + 20e6); s.Guesses == 0 || s.RefusedGuesses == 0 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkFound(b *testing.B) {
	for _, guessing := range []string{"nobody", "others", "itself"} {
		b.Run(fmt.Sprintf("guesses %s", guessing), func(b *testing.B) {
			g, _ := New(Config{})
			now := time.Now().UnixMicro()
			for range 40 {
				switch guessing {
				case "others":
					g.Unknown(stranger, rand.Uint64(), now)
				case "itself":
					g.Unknown(someone, rand.Uint64(), now)
				}
			}
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if g.Watches(now) {
					g.Found(someone, i, now)
				}
			}
		})
	}
}

func BenchmarkUnknown(b *testing.B) {
	g, _ := New(Config{})
	now := time.Now().UnixMicro()
	b.ReportAllocs()
	for i := uint32(0); b.Loop(); i++ {
		g.Unknown(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), uint64(i), now)
	}
}
