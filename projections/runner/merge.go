package runner

import (
	"bytes"
	"iter"
	"runtime"
	"sort"
)

// run is a stretch of a sealed Write: changes in key order.
type run struct {
	write *Write
	order []sortKey // never empty
}

func (r run) key(i int) []byte { return r.write.key(int(r.order[i].op)) }

// split divides sealed writes at a key, in about equal halves: everything in the first comes before everything in the second.
func split(writes []*Write) (halves [bulkTables][]run) {
	total := 0
	for _, w := range writes {
		total += len(w.order)
	}
	pivot := pivotOf(writes, total/2)
	for _, w := range writes {
		whole := run{w, w.order}
		n := sort.Search(len(w.order), func(i int) bool { return bytes.Compare(whole.key(i), pivot) >= 0 })
		for i, part := range [bulkTables][]sortKey{w.order[:n], w.order[n:]} {
			if len(part) > 0 {
				halves[i] = append(halves[i], run{w, part})
			}
		}
	}
	return halves
}

// pivotOf returns the key at a place of the writes one after the other, which is their middle if their keys do not overlap.
func pivotOf(writes []*Write, at int) []byte {
	for _, w := range writes {
		if at < len(w.order) {
			return run{w, w.order}.key(at)
		}
		at -= len(w.order)
	}
	return nil
}

// merge walks runs in key order. While one of them has all the next keys, each costs one comparison.
func merge(runs []run) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		var read byte
		defer func() { runtime.KeepAlive(read) }() // else nothing of it would be read
		for len(runs) > 0 {
			first, second := lowest(runs)
			r := &runs[first]
			n := len(r.order)
			if second >= 0 {
				n = r.before(runs[second].key(0))
			}
			for i, at := range r.order[:n] {
				if i%fetchedAhead == 0 {
					read += r.fetch(i, min(i+fetchedAhead, n))
				}
				if !yield(r.write.pair(int(at.op))) {
					return
				}
			}
			if r.order = r.order[n:]; len(r.order) == 0 {
				runs = append(runs[:first], runs[first+1:]...)
			}
		}
	}
}

// before returns how many changes precede a key; the first is one of them.
func (r run) before(key []byte) int {
	if bytes.Compare(r.key(len(r.order)-1), key) < 0 {
		return len(r.order) // as a rule: the keys of one partition lie together
	}
	n := 1
	for bytes.Compare(r.key(n), key) < 0 {
		n++
	}
	return n
}

// fetchedAhead is how many pairs are brought into the processor's cache together: one after the other each would cost a trip
// to memory, for key order is no order in the arena.
const fetchedAhead = 16

// fetch reads a byte of each cache line of the pairs, so that the trips overlap.
func (r run) fetch(from, to int) (sum byte) {
	for _, at := range r.order[from:to] {
		o := r.write.ops[at.op]
		in := r.write.arena.blocks[o.block][o.offset:]
		for i := 0; i < min(len(in), fetchedBytes); i += cacheLine {
			sum += in[i]
		}
	}
	return sum
}

const (
	cacheLine    = 64
	fetchedBytes = 3 * cacheLine // few pairs are longer
)

// lowest returns which runs begin with the lowest and the next key; -1 if there is no second.
func lowest(runs []run) (first, second int) {
	second = -1
	for i := 1; i < len(runs); i++ {
		switch key := runs[i].key(0); {
		case bytes.Compare(key, runs[first].key(0)) < 0:
			first, second = i, first
		case second < 0 || bytes.Compare(key, runs[second].key(0)) < 0:
			second = i
		}
	}
	return first, second
}
