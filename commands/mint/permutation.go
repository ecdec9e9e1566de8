package mint

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/dchest/siphash"
)

// Key keys the code permutation. Versions are kept for ever: a number under another secret would give other codes.
type Key struct {
	// Version is at least 1.
	Version uint32
	Secret  [16]byte
}

// feistelRounds is enough for a network of random round functions not to be told from a random permutation with fewer
// than about 2^half queries (Patarin, "Security of Random Feistel Schemes with 5 or More Rounds", CRYPTO 2004).
const feistelRounds = 6

// Permutation is a keyed bijection on [0, 62^length): consecutive ordinals give codes that do not show their order. It
// is a balanced Feistel network over the next even number of bits, whose round function is SipHash-2-4 (Aumasson and
// Bernstein, 2012), with cycle walking for what lies beyond 62^length (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", CT-RSA 2002: a third more steps at most). Its values are a persistent protocol. Safe for concurrent use.
type Permutation struct {
	k0, k1 uint64
	tweak  uint64 // key version and length: equal secrets do not give related permutations
	size   uint64
	half   uint
	mask   uint64
}

// NewPermutation returns the permutation of codes of length characters, MinLength to MaxSequential.
func NewPermutation(key Key, length int) (*Permutation, error) {
	if length < MinLength || length > MaxSequential {
		return nil, fmt.Errorf("%w: no permutation of codes of %d characters", ErrLength, length)
	}
	if key.Version == 0 {
		return nil, ErrNoKey
	}
	p := newPermutation(key, powers[length])
	p.tweak |= uint64(length) << 40
	return p, nil
}

func newPermutation(key Key, size uint64) *Permutation {
	half := uint(bits.Len64(size-1)+1) / 2
	return &Permutation{
		k0:    binary.LittleEndian.Uint64(key.Secret[:8]),
		k1:    binary.LittleEndian.Uint64(key.Secret[8:]),
		tweak: uint64(key.Version) << 48,
		size:  size,
		half:  half,
		mask:  1<<half - 1,
	}
}

// Size is 62^length; ordinals and values lie below it.
func (p *Permutation) Size() uint64 { return p.size }

// Value returns what an ordinal below Size is permuted to.
func (p *Permutation) Value(ordinal uint64) uint64 {
	for x := p.forward(ordinal); ; x = p.forward(x) {
		if x < p.size {
			return x
		}
	}
}

// Ordinal is the inverse of Value.
func (p *Permutation) Ordinal(value uint64) uint64 {
	for x := p.backward(value); ; x = p.backward(x) {
		if x < p.size {
			return x
		}
	}
}

func (p *Permutation) forward(x uint64) uint64 {
	left, right := x>>p.half, x&p.mask
	for round := range uint64(feistelRounds) {
		left, right = right, left^p.round(round, right)
	}
	return left<<p.half | right
}

func (p *Permutation) backward(x uint64) uint64 {
	left, right := x>>p.half, x&p.mask
	for round := uint64(feistelRounds); round > 0; round-- {
		left, right = right^p.round(round-1, left), left
	}
	return left<<p.half | right
}

// round hashes half (at most 30 bits), round and tweak as one word of eight bytes.
func (p *Permutation) round(round, half uint64) uint64 {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], p.tweak^round<<32^half)
	return siphash.Hash(p.k0, p.k1, word[:]) & p.mask
}
