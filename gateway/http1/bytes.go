package http1

import (
	"encoding/binary"
	"math/bits"
)

// plain returns how many bytes at the start of b are no control bytes (RFC 5234: CTL). It looks at eight at a time.
func plain(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	n := 0
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		below := (x - 0x20*ones) &^ x & highs // bytes < 0x20; exact up to the first one
		y := x ^ 0x7F*ones
		deletes := (y - ones) &^ y & highs // bytes = 0x7F; exact up to the first one
		if found := below | deletes; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
		n += 8
	}
	for n < len(b) && b[n] >= 0x20 && b[n] != 0x7F {
		n++
	}
	return n
}

// tokens are the bytes of a token (RFC 9110, section 5.6.2).
var tokens = func() (set [256]bool) {
	for c := range set {
		set[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		set[c] = true
	}
	return set
}()

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokens[c] {
			return false
		}
	}
	return true
}

// is compares with a text of lower-case letters, digits and '-', whatever the case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range len(b) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trim takes optional white space (spaces and tabs) off both ends. The result is never nil.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// decimal reads digits, and nothing but digits, up to 63 bits.
func decimal(b []byte) (n int64, ok bool) {
	const most = 1<<63 - 1
	for _, c := range b {
		d := int64(c - '0')
		if c < '0' || c > '9' || n > (most-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, len(b) > 0
}
