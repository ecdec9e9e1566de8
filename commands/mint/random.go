package mint

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// randomness draws numbers and characters from a random source, read in blocks.
type randomness struct{ source *bufio.Reader }

func newRandomness(source io.Reader) *randomness {
	return &randomness{bufio.NewReaderSize(source, 4096)}
}

// below returns a number below n, each equally likely.
func (r *randomness) below(n uint64) (uint64, error) {
	shift := bits.LeadingZeros64(n - 1)
	for {
		word, err := r.source.Peek(8)
		if err != nil {
			return 0, fmt.Errorf("reading random source: %w", err)
		}
		x := binary.LittleEndian.Uint64(word) >> shift
		if _, err := r.source.Discard(8); err != nil {
			return 0, fmt.Errorf("reading random source: %w", err)
		}
		if x < n {
			return x, nil
		}
	}
}

// appendCode appends a random code, each equally likely.
func (r *randomness) appendCode(dst []byte, length int) ([]byte, error) {
	for length > 0 {
		n := min(length, MaxSequential)
		value, err := r.below(powers[n])
		if err != nil {
			return dst, err
		}
		dst = appendCode(dst, value, n)
		length -= n
	}
	return dst, nil
}
