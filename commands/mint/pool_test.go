package mint

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Every ordinal taken is handed out, pooled, or counted as burnt.
func TestPoolsAreBoundedAndAccountedFor(t *testing.T) {
	m := open(t, Config{Depth: 2, Pools: 3})
	source := rand.New(rand.NewPCG(4, 4))
	for i := range 4000 {
		namespace := "busy.example"
		if i%10 == 0 {
			namespace = fmt.Sprintf("n%d.example", source.IntN(40))
		}
		if err := retry(func() error { _, _, err := m.Draw(namespace, 7, m.ownBucket(source)); return err }); err != nil {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Pools > 3 || s.Pooled > 3*1024*2 {
			t.Fatalf("%+v", s)
		}
	}
	s := m.Stats()
	held := 0
	for _, p := range m.pools.of {
		for bucket := range p.count {
			held += int(p.count[bucket])
		}
	}
	taken := m.spaces[7].current.From // the registry's space begins at 0 and this life is its only user
	if accounted := s.Drawn + s.Burnt + s.Overflow + s.Displaced + s.Pooled; taken != accounted || s.Pooled != uint64(held) {
		t.Errorf("%d ordinals taken, %d accounted for, %d held: %+v", taken, accounted, held, s)
	}
	if m.pools.of[poolKey{namespace: "busy.example", length: 7}] == nil {
		t.Error("the busy namespace lost its pool")
	}
}

func TestABusierNamespaceTakesAPool(t *testing.T) {
	ps := newPools(1, 4, 1)
	quiet, busy := poolKey{namespace: "quiet"}, poolKey{namespace: "busy"}
	for range 5 {
		ps.use(quiet)
	}
	for range 5 {
		if ps.use(busy) != nil {
			t.Fatal("displaced a pool that is used as much")
		}
	}
	if ps.use(busy) == nil || ps.of[quiet] != nil || len(ps.of) != 1 {
		t.Error("the busier namespace got no pool")
	}
	for range 2 * agingPeriod {
		ps.use(busy)
	}
	if uses := ps.of[busy].uses; uses > agingPeriod+agingPeriod/2 {
		t.Errorf("counts do not age: %d", uses)
	}
}

func TestStrangersDoNotGrowTheCounts(t *testing.T) {
	ps := newPools(2, 4, 1)
	for i := range 10 * mostSeen {
		ps.use(poolKey{namespace: fmt.Sprint(i)})
	}
	if len(ps.seen) > mostSeen {
		t.Errorf("%d namespaces are counted", len(ps.seen))
	}
}
