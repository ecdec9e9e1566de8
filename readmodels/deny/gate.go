package deny

import (
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Answer is what a visit meets before its link is served.
type Answer uint8

// Answers.
const (
	Pass      Answer = iota // nothing is against it
	Uncached                // served, but nobody may keep the answer: the link is of low trust
	Forbidden               // 403: denied
	Legal                   // 451: denied for a legal reason
	Closed                  // 503: the link's tier is closed
	Stale                   // 503: the link is of low trust, and the lists may be too old
	answers
)

// String names the answer in metrics.
func (a Answer) String() string {
	return [answers]string{"pass", "uncached", "forbidden", "legal", "closed", "stale"}[a]
}

// Serves reports whether the link is served.
func (a Answer) Serves() bool { return a <= Uncached }

// Status returns the HTTP status of an answer, 0 for those with which the link is served.
func (a Answer) Status() int {
	return [answers]int{0, 0, http.StatusForbidden, http.StatusUnavailableForLegalReasons, http.StatusServiceUnavailable, http.StatusServiceUnavailable}[a]
}

// RetryAfter returns for an answer of 503 in how many seconds to try again: a closed tier waits for two people, lists are fresh
// again a moment after the log can be read.
func (a Answer) RetryAfter() int { return [answers]int{Closed: 60, Stale: 5}[a] }

// Visit decides what can be decided before the link is looked up: by its code and by who visits. The route key is borrowed;
// client may be invalid, which no network holds.
func Visit(l *commands.Lists, routeKey []byte, client netip.Addr, nowUS int64) Answer {
	if l == nil {
		return Pass
	}
	if denial := l.Code(routeKey, nowUS); denial != nil {
		return of(denial)
	}
	if denial := l.Client(client, nowUS); denial != nil {
		return of(denial)
	}
	return Pass
}

// Target decides by the target's host, once the link is known.
func Target(l *commands.Lists, target string, nowUS int64) Answer {
	if denial := l.Target(target, nowUS); denial != nil {
		return of(denial)
	}
	return Pass
}

func of(denial *commands.ListItem) Answer {
	if denial.GetLegal() {
		return Legal
	}
	return Forbidden
}

// Trust decides whether a link that would be served may be: not when its tier is closed, and not when it is of low trust and
// the lists may be older than the bound. Age is asked for links of low trust only.
func Trust(l *commands.Lists, routeKey []byte, owner uint64, nowUS int64, age func() time.Duration, bound time.Duration) Answer {
	if !l.Tiered() {
		return Pass
	}
	switch tier := l.Tier(routeKey, owner, nowUS); {
	case l.Closed(tier):
		return Closed
	case tier != pb.TrustTier_TRUST_LOW:
		return Pass
	case age() > bound:
		return Stale
	}
	return Uncached
}

// Gate decides by the newest lists. Safe for concurrent use.
type Gate struct {
	current func() *commands.Control
	age     func() time.Duration
	bound   time.Duration
	counts  [answers]atomic.Uint64
}

// NewGate makes a Gate. Current returns the newest control state and age how old it may be at most, both without a lock; bound
// is the age above which links of low trust are not served.
func NewGate(current func() *commands.Control, age func() time.Duration, bound time.Duration) *Gate {
	return &Gate{current: current, age: age, bound: bound}
}

// Lists returns the lists for one visit. The nil Gate has none.
func (g *Gate) Lists() *commands.Lists {
	if g == nil {
		return nil
	}
	return g.current().Lists()
}

// Trust is Trust at the gate's age and bound.
func (g *Gate) Trust(l *commands.Lists, routeKey []byte, owner uint64, nowUS int64) Answer {
	if l == nil {
		return Pass
	}
	return Trust(l, routeKey, owner, nowUS, g.age, g.bound)
}

// Count notes an answer that a visitor got.
func (g *Gate) Count(a Answer) {
	if g != nil {
		g.counts[a].Add(1)
	}
}

// Counts returns how many visitors met which answer since the start, by name.
func (g *Gate) Counts() map[string]uint64 {
	out := map[string]uint64{}
	for a := Forbidden; a < answers; a++ {
		out[a.String()] = g.counts[a].Load()
	}
	return out
}
