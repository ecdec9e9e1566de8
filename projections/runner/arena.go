package runner

// arena is memory for the keys and values of one batch, given back as a whole.
type arena struct {
	full [][]byte // blocks used up in this batch
	free [][]byte
	now  []byte
}

const (
	arenaBlock = 256 << 10
	arenaKept  = 4 // blocks kept between commits in any case; of more, as many as the last needed
)

func (a *arena) reset() {
	a.full = append(a.full, a.now)
	keep := max(arenaKept, len(a.full))
	for _, block := range a.full {
		if cap(block) == arenaBlock && len(a.free) < keep {
			a.free = append(a.free, block[:0])
		}
	}
	if len(a.free) > keep {
		clear(a.free[keep:])
		a.free = a.free[:keep]
	}
	clear(a.full)
	a.full, a.now = a.full[:0], nil
}

// take returns n bytes of any content; never nil.
func (a *arena) take(n int) []byte {
	if n > cap(a.now)-len(a.now) || a.now == nil {
		a.grow(n)
	}
	from := len(a.now)
	a.now = a.now[:from+n]
	return a.now[from : from+n : from+n]
}

func (a *arena) grow(n int) {
	if a.now != nil {
		a.full = append(a.full, a.now)
	}
	switch last := len(a.free) - 1; {
	case n > arenaBlock:
		a.now = make([]byte, 0, n)
	case last >= 0:
		a.now, a.free = a.free[last], a.free[:last]
	default:
		a.now = make([]byte, 0, arenaBlock)
	}
}

func (a *arena) copy(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}

// rest is an empty slice over the free end of the current block, for append.
func (a *arena) rest() []byte { return a.now[len(a.now):] }

// keep makes what was appended to rest part of the arena, if it still fit.
func (a *arena) keep(b []byte) []byte {
	if a.now != nil && len(b) > 0 && len(b) <= cap(a.now)-len(a.now) && &b[0] == &a.now[:cap(a.now)][len(a.now)] {
		return a.take(len(b))
	}
	if b == nil {
		return []byte{}
	}
	return b
}
