package events

import (
	"fmt"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/unicode/norm"
)

// MaxCodeLength is the longest code, in characters (code points after NFC).
const MaxCodeLength = 64

const (
	// maxCodeBytes bounds the work on a code that is not normalised yet: a code point has 4 bytes at most and decomposed
	// text is at most 3 times as long as its NFC (UAX #15, table 8).
	maxCodeBytes = MaxCodeLength * utf8.UTFMax * 3
	// maxSegmentBytes is a code of maxCodeBytes with every byte percent-encoded.
	maxSegmentBytes = maxCodeBytes * 3
)

// CodeError says which rule a custom code breaks, in words for the person who chose it.
type CodeError struct{ Detail string }

func (e *CodeError) Error() string { return "invalid code: " + e.Detail }

// NormalizeCode returns a custom code as it is stored: NFC, case kept, every other byte as submitted. The error, always
// a *CodeError, names the broken rule. Normalising the result again returns it unchanged.
func NormalizeCode(raw string) (string, error) {
	if !utf8.ValidString(raw) {
		return "", &CodeError{"it is not valid UTF-8"}
	}
	if len(raw) > maxCodeBytes {
		return "", &CodeError{faultLong.detail(0)}
	}
	code := norm.NFC.String(raw)
	if fault, at := inspectCode(code, MaxCodeLength); fault != faultNone {
		return "", &CodeError{fault.detail(at)}
	}
	return code, nil
}

// DecodePathCode appends to dst the code that a request path, undecoded and starting with '/', asks for. False means
// that no code can have this path: broken percent-encoding, invalid UTF-8, or characters that no code has. One trailing
// '/' is ignored.
//
// A code with '+' at its end may be one character longer than MaxCodeLength, because that is the preview of a code of
// full length. Plain ASCII paths do not allocate when dst has room.
func DecodePathCode(dst, path []byte) ([]byte, bool) {
	segment, ok := codeSegment(path)
	if !ok {
		return dst, false
	}
	for _, c := range segment {
		if !codeASCII[c] {
			return decodeSegment(dst, segment)
		}
	}
	if len(segment) > maxPathCodeLength(segment) || isDots(segment) {
		return dst, false
	}
	return append(dst, segment...), true
}

// codeSegment strips the slashes around the one segment that a code's path has.
func codeSegment(path []byte) ([]byte, bool) {
	if len(path) < 2 || path[0] != '/' || len(path) > maxSegmentBytes+2 {
		return nil, false
	}
	segment := path[1:]
	if segment[len(segment)-1] == '/' {
		segment = segment[:len(segment)-1]
	}
	return segment, len(segment) > 0
}

// decodeSegment is the way of a segment that has an escape, a byte beyond ASCII or one that no code has.
func decodeSegment(dst, segment []byte) ([]byte, bool) {
	start := len(dst)
	decoded, ok := appendUnescaped(dst, segment)
	if !ok || len(decoded)-start > maxCodeBytes || !utf8.Valid(decoded[start:]) {
		return dst, false
	}
	code := decoded[start:]
	if !norm.NFC.IsNormal(code) {
		code = norm.NFC.Bytes(code)
		decoded = append(decoded[:start], code...)
	}
	// The string lives as long as this call, and nothing writes to its bytes meanwhile.
	fault, _ := inspectCode(unsafe.String(unsafe.SliceData(code), len(code)), maxPathCodeLength(code))
	if fault != faultNone {
		return dst, false
	}
	return decoded, true
}

// appendUnescaped undoes percent-encoding (RFC 3986, section 2.1) strictly.
func appendUnescaped(dst, segment []byte) ([]byte, bool) {
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' {
			if i+2 >= len(segment) {
				return dst, false
			}
			hi, lo := Unhex(segment[i+1]), Unhex(segment[i+2])
			if hi > 15 || lo > 15 {
				return dst, false
			}
			c = hi<<4 | lo
			i += 2
		}
		dst = append(dst, c)
	}
	return dst, true
}

// Unhex returns the value of a hexadecimal digit, 0xFF if c is none.
func Unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xFF
}

func maxPathCodeLength(code []byte) int {
	if len(code) > 0 && code[len(code)-1] == '+' {
		return MaxCodeLength + 1
	}
	return MaxCodeLength
}

func isDots(code []byte) bool {
	return string(code) == "." || string(code) == ".."
}

// codeFault is a broken code rule.
type codeFault uint8

const (
	faultNone codeFault = iota
	faultEmpty
	faultLong
	faultDots
	faultCharacter
	faultInvisible
	faultMark
	faultScripts
)

// detail explains the fault; at is the character it was found at, if it is about one.
func (f codeFault) detail(at rune) string {
	switch f {
	case faultEmpty:
		return "it is empty; use 1 to 64 characters"
	case faultLong:
		return "it is longer than 64 characters"
	case faultDots:
		return `"." and ".." mean directories in a URL`
	case faultInvisible:
		return fmt.Sprintf("it contains the invisible character %U", at)
	case faultMark:
		return fmt.Sprintf("the combining mark %U has no letter before it", at)
	case faultScripts:
		return "it mixes Latin letters with Cyrillic or Greek ones, which look alike"
	default:
		return fmt.Sprintf("it contains %s; use letters, digits, emoji and - _ . ~ + @ &", nameCharacter(at))
	}
}

func nameCharacter(r rune) string {
	switch {
	case r == ' ':
		return "a space"
	case r < ' ' || r == 0x7F:
		return fmt.Sprintf("the control character %U", r)
	}
	return fmt.Sprintf("%q (%U)", r, r)
}
