package mint

import "sync/atomic"

// counts are kept for Stats by the one goroutine that draws.
type counts struct {
	drawn, burnt, overflow, displaced, pooled, pools atomic.Uint64
}

func (c *counts) publish(ps *pools) {
	c.pooled.Store(uint64(ps.held))
	c.pools.Store(uint64(len(ps.of)))
	c.displaced.Store(uint64(ps.burnt))
}

// Stats is what a life has done so far and what it has left.
type Stats struct {
	// Drawn is the ids handed out.
	Drawn uint64
	// Burnt is the candidates that routed to other partitions or came while there was no pool for them, Overflow those whose
	// bucket had enough, Displaced those of pools that made room for a busier namespace.
	Burnt, Overflow, Displaced uint64
	// Pooled is the candidates held, in Pools pools.
	Pooled, Pools uint64
	Spaces        []SpaceStats
}

// SpaceStats is the state of one space's leases.
type SpaceStats struct {
	// Space is 0 for ids without a sequential code, else the code length.
	Space uint32
	// Leased is all ids leased in this life, Left those not drawn yet as of the last draw, Segment the size of the segment
	// in use: when less than a fifth of it is left, the next one is late. Failures is the attempts at a lease that failed.
	Leased, Left, Segment, Failures uint64
}

// Low reports that less than a fifth of a segment is left and the next one has not come: when the rest is used up, creating
// links stops.
func (s SpaceStats) Low() bool { return s.Left*5 < s.Segment || s.Segment == 0 && s.Failures > 0 }

// Stats returns the counts. It may be called from any goroutine; spaces that were never leased from are left out.
func (m *Minter) Stats() Stats {
	s := Stats{
		Drawn:     m.counts.drawn.Load(),
		Burnt:     m.counts.burnt.Load(),
		Overflow:  m.counts.overflow.Load(),
		Displaced: m.counts.displaced.Load(),
		Pooled:    m.counts.pooled.Load(),
		Pools:     m.counts.pools.Load(),
	}
	for _, space := range m.spaces {
		if space == nil || space.leased.Load() == 0 && space.failures.Load() == 0 {
			continue
		}
		s.Spaces = append(s.Spaces, SpaceStats{space.space, space.leased.Load(), space.left.Load(), space.segment.Load(), space.failures.Load()})
	}
	return s
}
