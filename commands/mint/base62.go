package mint

import "github.com/hoplog/hoplog/commands"

// alphabet is Base62 in ASCII order, so that codes of one length sort like the numbers they stand for.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Lengths of generated codes, in characters.
const (
	// MinLength is the shortest generated code.
	MinLength = commands.MinCodeLength
	// MinRandomLength is the shortest random code: below, guessing one that exists is too easy.
	MinRandomLength = commands.MinRandomLength
	// MaxSequential is the longest code that stands for an id: 62^10 is the last power below 2^63.
	MaxSequential = 10
)

// powers are 62^n.
var powers = func() (p [MaxSequential + 1]uint64) {
	p[0] = 1
	for n := 1; n <= MaxSequential; n++ {
		p[n] = p[n-1] * uint64(len(alphabet))
	}
	return p
}()

// appendCode appends value, below 62^length, as a code of length characters.
func appendCode(dst []byte, value uint64, length int) []byte {
	var digits [MaxSequential]byte
	for i := length - 1; i >= 0; i-- {
		digits[i] = alphabet[value%uint64(len(alphabet))]
		value /= uint64(len(alphabet))
	}
	return append(dst, digits[:length]...)
}
