package events

import (
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// chainMemory is how many accepted and how many void hashes of a bucket a reader remembers, to tell a stale writer's
// envelope from a hole in the log.
const chainMemory = 64

// Chain is one bucket's hash chain as a reader knows it. The zero value is the chain of a bucket without envelopes.
type Chain struct {
	seq  uint64 // of the head
	head Hash
	// recent holds the accepted hashes before the head, all seen since the start: a ring of at most chainMemory - 1 whose
	// oldest stands at first.
	recent []Hash
	first  int
	voids  []void
	// evicted: a void envelope was forgotten since the head moved.
	evicted bool
}

type void struct {
	seq  uint64
	hash Hash
}

// Seq returns the head's sequence, 0 before the first envelope.
func (c *Chain) Seq() uint64 { return c.seq }

// Head returns the hash that the next envelope must carry.
func (c *Chain) Head() Hash { return c.head }

// Next applies sentence 1 and, for what is not accepted, sentence 8 of the chain rule: it reports whether the envelope
// with this seq, previous hash and own hash extends the chain. An error says what the log must have lost.
func (c *Chain) Next(seq uint64, prev, own Hash) (accepted bool, err error) {
	if seq == c.seq+1 && prev == c.head {
		c.extend(own)
		return true, nil
	}
	if !c.explains(seq-1, prev) {
		return false, fmt.Errorf("envelope %d follows %x, which is nowhere in the log before it; the head is %d, %x", seq, prev[:6], c.seq, c.head[:6])
	}
	c.remember(void{seq, own})
	return false, nil
}

func (c *Chain) extend(own Hash) {
	if len(c.recent) < chainMemory-1 {
		c.recent = append(c.recent, c.head)
	} else {
		c.recent[c.first] = c.head
		c.first = (c.first + 1) % len(c.recent)
	}
	c.seq, c.head, c.evicted = c.seq+1, own, false
}

// Adopt makes an envelope the head though what precedes it is missing: an audit goes on behind a loss. A reader that serves
// stops there instead.
func (c *Chain) Adopt(seq uint64, own Hash) {
	*c = Chain{seq: seq, head: own, voids: c.voids}
}

// explains reports whether a void envelope's predecessor is known, or may have been forgotten. It is never the head: then
// the envelope would not be void.
func (c *Chain) explains(seq uint64, hash Hash) bool {
	oldest := c.seq - uint64(len(c.recent))
	switch {
	case seq < oldest || c.evicted:
		return true
	case seq < c.seq && c.recent[(uint64(c.first)+seq-oldest)%uint64(len(c.recent))] == hash:
		return true
	}
	for _, v := range c.voids {
		if v.seq == seq && v.hash == hash {
			return true
		}
	}
	return false
}

func (c *Chain) remember(v void) {
	if len(c.voids) == chainMemory {
		copy(c.voids, c.voids[1:])
		c.voids = c.voids[:chainMemory-1]
		c.evicted = true
	}
	c.voids = append(c.voids, v)
}

// save writes what a reader keeps of the chain with its positions.
func (c *Chain) save(to *pb.BucketHead) {
	to.Seq, to.Hash, to.Evicted = c.seq, append(to.Hash[:0], c.head[:]...), c.evicted
	to.Voids = to.Voids[:0]
	for _, v := range c.voids {
		to.Voids = append(to.Voids, &pb.VoidEnvelope{Seq: v.seq, Hash: v.hash[:]})
	}
}

// restoreChain is the inverse of save. Hashes before the head are not kept.
func restoreChain(from *pb.BucketHead) (*Chain, error) {
	c := &Chain{seq: from.GetSeq(), evicted: from.GetEvicted()}
	if copy(c.head[:], from.GetHash()) != len(c.head) {
		return nil, fmt.Errorf("stored head of %d bytes", len(from.GetHash()))
	}
	for _, v := range from.GetVoids() {
		var hash Hash
		copy(hash[:], v.GetHash())
		c.voids = append(c.voids, void{v.GetSeq(), hash})
	}
	return c, nil
}
