package readmodels

import (
	"strings"

	"github.com/hoplog/hoplog/events"
)

// manyComparisons is where comparing each name with each gives way to a map, so that no pair of queries is slow.
const manyComparisons = 1024

// nameSet answers whether a query has a parameter of some name. Names are compared as the target's server reads them
// (percent-decoded, '+' as a space), so that %61=1 is no way around a=1.
type nameSet struct {
	query   string
	decoded map[string]struct{} // nil: few enough to scan query
}

// namesOf returns the names of query, to be asked for each parameter of other.
func namesOf(query, other string) nameSet {
	names := nameSet{query: query}
	if (strings.Count(query, "&")+1)*(strings.Count(other, "&")+1) <= manyComparisons {
		return names
	}
	names.decoded = make(map[string]struct{})
	for parameter := range strings.SplitSeq(query, "&") {
		if parameter != "" {
			names.decoded[string(appendDecoded(nil, nameOf(parameter)))] = struct{}{}
		}
	}
	return names
}

// has reports whether the set has the name of this parameter.
func (s *nameSet) has(parameter string) bool {
	name := nameOf(parameter)
	if s.decoded != nil {
		var buffer [64]byte
		_, found := s.decoded[string(appendDecoded(buffer[:0], name))]
		return found
	}
	for rest, more := s.query, true; more; {
		var other string
		other, rest, more = cutByte(rest, '&')
		if other != "" && sameName(nameOf(other), name) {
			return true
		}
	}
	return false
}

func nameOf(parameter string) string {
	name, _, _ := cutByte(parameter, '=')
	return name
}

func sameName(a, b string) bool {
	for a != "" && b != "" {
		x, n := decodeByte(a)
		y, m := decodeByte(b)
		if x != y {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return a == b
}

func appendDecoded(dst []byte, name string) []byte {
	for name != "" {
		c, n := decodeByte(name)
		dst, name = append(dst, c), name[n:]
	}
	return dst
}

// decodeByte returns the first byte that s stands for, as forms are decoded, and how many bytes of s it took. A percent
// sign that begins no escape stands for itself.
func decodeByte(s string) (c byte, n int) {
	switch {
	case s[0] == '+':
		return ' ', 1
	case s[0] != '%' || len(s) < 3:
		return s[0], 1
	}
	hi, lo := events.Unhex(s[1]), events.Unhex(s[2])
	if hi > 15 || lo > 15 {
		return '%', 1
	}
	return hi<<4 | lo, 3
}
