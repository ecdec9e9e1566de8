package runner

// arena is memory for the pairs of one commit, given back as a whole. What is in it is named by block and offset, so that a
// table of a million pairs is nothing to the collector.
type arena struct {
	blocks [][]byte // of this commit; the last takes what comes
	free   [][]byte
}

const (
	arenaBlock = 256 << 10
	arenaKept  = 4 // blocks kept between commits in any case; of more, as many as the last needed
)

func (a *arena) reset() {
	keep := max(arenaKept, len(a.blocks))
	for _, block := range a.blocks {
		if cap(block) == arenaBlock && len(a.free) < keep {
			a.free = append(a.free, block[:0])
		}
	}
	if len(a.free) > keep {
		clear(a.free[keep:])
		a.free = a.free[:keep]
	}
	clear(a.blocks)
	a.blocks = a.blocks[:0]
}

// take returns n bytes of any content, and where they are.
func (a *arena) take(n int) (bytes []byte, block, offset uint32) {
	if len(a.blocks) == 0 || n > cap(a.last())-len(a.last()) {
		a.grow(n)
	}
	last := len(a.blocks) - 1
	now := a.blocks[last]
	from := len(now)
	a.blocks[last] = now[:from+n]
	return now[from : from+n : from+n], uint32(last), uint32(from)
}

func (a *arena) last() []byte { return a.blocks[len(a.blocks)-1] }

func (a *arena) grow(n int) {
	switch last := len(a.free) - 1; {
	case n > arenaBlock:
		a.blocks = append(a.blocks, make([]byte, 0, n))
	case last >= 0:
		a.blocks, a.free = append(a.blocks, a.free[last]), a.free[:last]
	default:
		a.blocks = append(a.blocks, make([]byte, 0, arenaBlock))
	}
}

// rest is an empty slice over the free end of the last block, for append.
func (a *arena) rest() []byte {
	if len(a.blocks) == 0 {
		return nil
	}
	return a.last()[len(a.last()):]
}

// keep makes what was appended to rest part of the arena, if it still fit.
func (a *arena) keep(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	if rest := a.rest(); len(b) > 0 && len(b) <= cap(rest) && &b[0] == &rest[:1][0] {
		kept, _, _ := a.take(len(b))
		return kept
	}
	return b
}
