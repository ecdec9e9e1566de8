package mint

// candidate is a code that waits for a request of its bucket. The ordinal is that of a sequential code.
type candidate struct{ ordinal, value uint64 }

// poolKey is what candidates depend on.
type poolKey struct {
	namespace string
	length    int
	random    bool
}

// pool keeps the candidates of one key, by bucket, at most depth of each bucket. The last in is the first out.
type pool struct {
	depth int
	slots []candidate
	count []uint16
	held  int
	uses  int
}

func newPool(buckets, depth int) *pool {
	return &pool{depth: depth, slots: make([]candidate, buckets*depth), count: make([]uint16, buckets)}
}

// push keeps a candidate unless its bucket has enough.
func (p *pool) push(bucket uint32, c candidate) bool {
	n := int(p.count[bucket])
	if n == p.depth {
		return false
	}
	p.slots[int(bucket)*p.depth+n] = c
	p.count[bucket]++
	p.held++
	return true
}

func (p *pool) pop(bucket uint32) (candidate, bool) {
	if p.count[bucket] == 0 {
		return candidate{}, false
	}
	p.count[bucket]--
	p.held--
	return p.slots[int(bucket)*p.depth+int(p.count[bucket])], true
}

const (
	// busyAfter is the draw at which a namespace is worth a pool.
	busyAfter = 2
	// mostSeen bounds the namespaces whose draws are counted before they have a pool.
	mostSeen = 1024
	// agingPeriod is after how many draws the counts are halved, so that what was busy can be displaced.
	agingPeriod = 1 << 16
)

// pools gives pools to the busiest keys.
type pools struct {
	most, buckets, depth int
	of                   map[poolKey]*pool
	seen                 map[poolKey]int
	age                  int
	held, burnt          int // candidates in all pools; candidates of displaced pools
}

func newPools(most, buckets, depth int) *pools {
	return &pools{most: most, buckets: buckets, depth: depth, of: map[poolKey]*pool{}, seen: map[poolKey]int{}}
}

// use returns the key's pool, nil while the key is not busy enough to have one.
func (ps *pools) use(key poolKey) *pool {
	ps.grow()
	if p := ps.of[key]; p != nil {
		p.uses++
		return p
	}
	if len(ps.seen) >= mostSeen {
		clear(ps.seen)
	}
	ps.seen[key]++
	uses := ps.seen[key]
	if uses < busyAfter || len(ps.of) >= ps.most && !ps.displace(uses) {
		return nil
	}
	delete(ps.seen, key)
	p := newPool(ps.buckets, ps.depth)
	p.uses = uses
	ps.of[key] = p
	return p
}

// displace burns the pool that is used least, if it is used less than uses.
func (ps *pools) displace(uses int) bool {
	var least poolKey
	found := false
	for key, p := range ps.of {
		if p.uses < uses && (!found || p.uses < ps.of[least].uses) {
			least, found = key, true
		}
	}
	if found {
		ps.held -= ps.of[least].held
		ps.burnt += ps.of[least].held
		delete(ps.of, least)
	}
	return found
}

func (ps *pools) grow() {
	if ps.age++; ps.age < agingPeriod {
		return
	}
	ps.age = 0
	clear(ps.seen)
	for _, p := range ps.of {
		p.uses /= 2
	}
}
