package scan

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how much guessing is borne. Zero values mean the defaults, but for Allow.
type Config struct {
	// Limit is how many unknown codes a minute an address may ask for, beside half as many as it follows links; default 60.
	Limit int
	// NodeLimit is how many guesses a second of all sources together are answered before each of them is allowed an eighth;
	// default 2000.
	NodeLimit int
	// Sources is how many addresses and networks are remembered, at 128 bytes each; default 32,768.
	Sources int
	// Allow are networks that may guess: monitoring, and proxies whose visitors are not known.
	Allow []netip.Prefix
}

const (
	defaultLimit     = 60
	defaultNodeLimit = 2000
	defaultSources   = 32_768
)

// Guard decides whose visits are refused. All of it may be called by many goroutines at once. Times are in microseconds
// since 1970.
type Guard struct {
	config Config
	seeds  seeds
	table  table
	warm   warm
	node   nodeCount

	guesses, refusedGuesses, refusedLinks atomic.Uint64
	lastRefused                           atomic.Int64 // nanoseconds

	mu    sync.Mutex
	worst netip.Prefix // closed last
}

// New makes a guard.
func New(config Config) (*Guard, error) {
	if min(config.Limit, config.NodeLimit, config.Sources) < 0 {
		return nil, errors.New("scan: a limit is negative")
	}
	for to, otherwise := range map[*int]int{&config.Limit: defaultLimit, &config.NodeLimit: defaultNodeLimit, &config.Sources: defaultSources} {
		if *to == 0 {
			*to = otherwise
		}
	}
	g := &Guard{config: config, seeds: newSeeds()}
	g.table.init(config.Sources)
	return g, nil
}

// Watches reports whether Found and Closed may refuse anything now. While it does not, they need not be asked.
func (g *Guard) Watches(nowUS int64) bool { return g.warm.any(nowUS * 1000) }

// Unknown counts a visit of a code that does not exist. Not 0: it is refused, and how long guessing will be.
func (g *Guard) Unknown(address netip.Addr, code uint64, nowUS int64) (retry time.Duration) {
	if !g.counts(address) {
		return 0
	}
	now := nowUS * 1000
	g.guesses.Add(1)
	base := g.base(nowUS)
	narrow, wide := g.seeds.keysOf(address)
	// What is refused already does not count against the neighbours, nor against everybody.
	if retry = g.guess(narrow, 1, base, code, now, address); retry == 0 {
		retry = g.guess(wide, wideSize, base, code, now, address)
	}
	if retry == 0 {
		g.node.add(nowUS / 1e6)
		return 0
	}
	g.refusedGuesses.Add(1)
	g.lastRefused.Store(now)
	return retry
}

func (g *Guard) guess(key uint64, size, base float32, code uint64, now int64, address netip.Addr) time.Duration {
	s, group := g.table.shard(key)
	s.mu.Lock()
	row := g.table.place(group, key, size, now, base)
	was := row.isClosed(base)
	retry := row.guess(base, uint32(code))
	isClosed := row.isClosed(base)
	s.mu.Unlock()
	g.warm.set(key, now)
	if isClosed && !was {
		g.mu.Lock()
		g.worst = networkOf(address)
		g.mu.Unlock()
	}
	return retry
}

// Closed reports before the store is asked for a code that whatever is there will not be told; not 0 is for how long.
func (g *Guard) Closed(address netip.Addr, nowUS int64) (retry time.Duration) {
	narrow, wide := g.seeds.keysOf(address)
	if !g.warm.has(narrow) && !g.warm.has(wide) || !g.counts(address) {
		return 0
	}
	if retry = g.ask(narrow, wide, nil, nowUS); retry > 0 {
		g.refusedGuesses.Add(1)
	}
	return retry
}

// Found counts a visit of a link. Not 0: it is not told, and for how long.
func (g *Guard) Found(address netip.Addr, link uint64, nowUS int64) (retry time.Duration) {
	narrow, wide := g.seeds.keysOf(address)
	if !g.warm.has(narrow) && !g.warm.has(wide) || !g.counts(address) {
		return 0
	}
	hash := uint32(link)
	if retry = g.ask(narrow, wide, &hash, nowUS); retry > 0 {
		g.refusedLinks.Add(1)
		return retry
	}
	g.told(narrow, hash, nowUS)
	g.told(wide, hash, nowUS)
	return 0
}

// ask asks the rows of an address and its network for how long a link is not told, nil being any.
func (g *Guard) ask(narrow, wide uint64, link *uint32, nowUS int64) (retry time.Duration) {
	now, base := nowUS*1000, g.base(nowUS)
	for _, key := range [...]uint64{narrow, wide} {
		s, group := g.table.shard(key)
		s.mu.Lock()
		if row := find(group, key, now, base); row != nil && !row.mayFollow(base, link) {
			retry = max(retry, row.over(row.limit(base)))
		}
		s.mu.Unlock()
	}
	if retry > 0 {
		g.lastRefused.Store(now)
	}
	return retry
}

// told counts a link in a row, if there is one.
func (g *Guard) told(key uint64, link uint32, nowUS int64) {
	base := g.base(nowUS)
	s, group := g.table.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := find(group, key, nowUS*1000, base); row != nil {
		row.follow(base, link)
	}
}

// counts reports whether an address is known and not allowed to guess.
func (g *Guard) counts(address netip.Addr) bool {
	return address.IsValid() && !slices.ContainsFunc(g.config.Allow, func(p netip.Prefix) bool { return p.Contains(address) })
}

// base is the limit of an address now.
func (g *Guard) base(nowUS int64) float32 {
	base := float32(g.config.Limit)
	if g.node.last(nowUS/1e6) > int64(g.config.NodeLimit) {
		base = max(1, base/pressed)
	}
	return base
}

// networkOf is what is shown of an address.
func networkOf(address netip.Addr) netip.Prefix {
	bits := wide6
	if address.Is4() {
		bits = wide4
	}
	network, _ := address.Prefix(bits) // of a valid address, which fits
	return network
}

// nodeCount counts by the second.
type nodeCount struct {
	second       atomic.Int64
	this, before atomic.Int64
}

func (n *nodeCount) add(second int64) {
	n.turn(second)
	n.this.Add(1)
}

// turn begins a new second. Who comes at the same moment may be counted in the wrong one.
func (n *nodeCount) turn(second int64) {
	was := n.second.Load()
	if second <= was || !n.second.CompareAndSwap(was, second) {
		return
	}
	count := n.this.Swap(0)
	if second > was+1 {
		count = 0
	}
	n.before.Store(count)
}

// last returns how many there were in a second, the last whole one or the one under way.
func (n *nodeCount) last(second int64) int64 {
	n.turn(second)
	return max(n.this.Load(), n.before.Load())
}

// Status is how the guard is.
type Status struct {
	Guesses        uint64 `json:"guesses"` // unknown codes asked for since the start
	RefusedGuesses uint64 `json:"refused_guesses"`
	RefusedLinks   uint64 `json:"refused_links"` // that exist, of closed sources
	Evicted        uint64 `json:"evicted"`       // sources that others took the place of

	Sources int  `json:"sources"` // addresses and networks that guessed lately
	Slowed  int  `json:"slowed"`
	Closed  int  `json:"closed"`
	Pressed bool `json:"pressed"` // NodeLimit is reached
	// UnderWay: somebody was refused in the last minute. Network is whose guesses were the last to close a source.
	UnderWay bool   `json:"under_way"`
	Network  string `json:"network,omitempty"`
}

// Status is Totals with what a look through the whole table shows.
func (g *Guard) Status(nowUS int64) Status {
	s := g.Totals(nowUS)
	s.Sources, s.Slowed, s.Closed = g.table.count(nowUS*1000, g.base(nowUS))
	return s
}

// Totals is what is counted, in no time: Sources, Slowed and Closed are not.
func (g *Guard) Totals(nowUS int64) Status {
	s := Status{Guesses: g.guesses.Load(), RefusedGuesses: g.refusedGuesses.Load(), RefusedLinks: g.refusedLinks.Load(), Evicted: g.table.evicted.Load(),
		Pressed: g.node.last(nowUS/1e6) > int64(g.config.NodeLimit)}
	last := g.lastRefused.Load()
	s.UnderWay = last != 0 && nowUS*1000-last < int64(window)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.UnderWay && g.worst.IsValid() {
		s.Network = g.worst.String()
	}
	return s
}
