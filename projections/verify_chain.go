package projections

import "github.com/hoplog/hoplog/events"

// verdict is what the chain rule says of an envelope.
type verdict uint8

const (
	envelopeAccepted verdict = iota
	envelopeVoid
	envelopeLost // it follows what is nowhere before it
)

// fullChain is one bucket's hash chain, by the rule of every reader, with everything that was ever seen of it: where a reader's
// memory ends and it has to believe, an audit still knows. Its zero value is a bucket without envelopes.
type fullChain struct {
	events.Chain
	runs []chainRun             // accepted, oldest first; more than one only after a loss
	void map[events.Hash]uint64 // hash → seq of what was not accepted
}

// chainRun is the hashes of envelopes from, from + 1, ...
type chainRun struct {
	from   uint64
	hashes []events.Hash
}

// next judges an envelope. One that was lost contact with the chain becomes its new head if it lies further on: whatever
// comes between is missing, and what follows can still be verified.
func (c *fullChain) next(seq uint64, prev, own events.Hash) verdict {
	before := c.Seq()
	accepted, _ := c.Next(seq, prev, own)
	switch {
	case accepted:
		c.extend(before, seq, own)
		return envelopeAccepted
	case c.knows(seq-1, prev):
		c.remember(seq, own)
		return envelopeVoid
	case seq > before:
		c.Adopt(seq, own)
		c.extend(before, seq, own)
	default:
		c.remember(seq, own)
	}
	return envelopeLost
}

// extend adds the new head to the accepted ones; before is the sequence of the old one.
func (c *fullChain) extend(before, seq uint64, own events.Hash) {
	if last := len(c.runs) - 1; last >= 0 && seq == before+1 {
		c.runs[last].hashes = append(c.runs[last].hashes, own)
	} else {
		c.runs = append(c.runs, chainRun{seq, []events.Hash{own}})
	}
}

func (c *fullChain) remember(seq uint64, own events.Hash) {
	if c.void == nil {
		c.void = map[events.Hash]uint64{}
	}
	c.void[own] = seq
}

// knows reports whether an envelope with this seq and hash was seen; the zero hash stands before the first.
func (c *fullChain) knows(seq uint64, hash events.Hash) bool {
	if seq == 0 {
		return hash == events.Hash{}
	}
	for _, r := range c.runs {
		if seq >= r.from && seq-r.from < uint64(len(r.hashes)) && r.hashes[seq-r.from] == hash {
			return true
		}
	}
	found, ok := c.void[hash]
	return ok && found == seq
}

// answered is the set of command offsets that accepted envelopes answer.
type answered struct {
	low     int64              // all below are answered
	later   map[int64]struct{} // answered ones above low
	highest int64              // after the highest answered one
}

// take adds an offset and reports whether it was not answered before.
func (a *answered) take(offset int64) bool {
	if _, twice := a.later[offset]; twice || offset < a.low {
		return false
	}
	a.highest = max(a.highest, offset+1)
	a.later[offset] = struct{}{}
	a.close()
	return true
}

// skip takes everything below low for answered.
func (a *answered) skip(low int64) {
	for offset := range a.later {
		if offset < low {
			delete(a.later, offset)
		}
	}
	a.low = low
	a.close()
}

func (a *answered) close() {
	for {
		if _, ok := a.later[a.low]; !ok {
			return
		}
		delete(a.later, a.low)
		a.low++
	}
}
