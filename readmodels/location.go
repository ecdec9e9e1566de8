package readmodels

import (
	"strings"
	"unsafe"

	"github.com/hoplog/hoplog/schemas/pb"
)

// AppendLocation appends to dst the URL that a visitor with this raw query (what follows '?', undecoded) is sent to:
// the target, whose bytes are kept, with the query merged in by the policy. False means that the policy turns the
// visitor away; dst is then returned as given.
//
// The target must be normalised (commands.NormalizeTarget), so that the result is fit for a Location header: printable
// ASCII without spaces. Those of the visitor's bytes that would not be are percent-encoded, and so is '#', which would
// begin a fragment; all others stay as typed, with duplicates, order and parameters without value. A query without any
// parameter (empty, or '&' alone) counts as none.
//
// It does not allocate when dst has room, unless both queries have so many parameters that comparing each with each
// would be slow.
func AppendLocation(dst []byte, target string, policy pb.QueryPolicy, visitorQuery []byte) ([]byte, bool) {
	// The string lives as long as this call, and nothing writes to its bytes meanwhile.
	visitor := unsafe.String(unsafe.SliceData(visitorQuery), len(visitorQuery))
	if isBlank(visitor) || policy == pb.QueryPolicy_QUERY_DROP {
		return append(dst, target...), true
	}
	if policy == pb.QueryPolicy_QUERY_REJECT {
		return dst, false
	}
	base, query, fragment := splitQuery(target)
	dst = append(append(dst, base...), '?')
	start := len(dst)
	switch policy {
	case pb.QueryPolicy_QUERY_APPEND:
		dst = append(dst, query...)
		dst = appendQuery(dst, start, visitor, nil)
	case pb.QueryPolicy_QUERY_OVERRIDE:
		names := namesOf(visitor, query)
		dst = appendQuery(dst, start, query, &names)
		dst = appendQuery(dst, start, visitor, nil)
	default:
		names := namesOf(query, visitor)
		dst = append(dst, query...)
		dst = appendQuery(dst, start, visitor, &names)
	}
	return append(dst, fragment...), true
}

// splitQuery cuts a URL into what precedes the query, the query without '?', and the fragment with '#'.
func splitQuery(target string) (base, query, fragment string) {
	base = target
	if i := strings.IndexByte(base, '#'); i >= 0 {
		base, fragment = base[:i], base[i:]
	}
	base, query, _ = cutByte(base, '?')
	return base, query, fragment
}

func isBlank(query string) bool {
	for i := range len(query) {
		if query[i] != '&' {
			return false
		}
	}
	return true
}

// appendQuery appends those parameters of query whose name is not among without, to a URL whose query began at start,
// with '&' where one is needed. Nothing is appended when no parameter is left.
func appendQuery(dst []byte, start int, query string, without *nameSet) []byte {
	before, any, first := len(dst), false, true
	for rest, more := query, true; more; {
		var parameter string
		parameter, rest, more = cutByte(rest, '&')
		if without != nil && parameter != "" && without.has(parameter) {
			continue
		}
		if !first || needsSeparator(dst[start:], query) {
			dst = append(dst, '&')
		}
		dst = appendSafe(dst, parameter)
		any, first = any || parameter != "", false
	}
	if !any {
		return dst[:before]
	}
	return dst
}

// cutByte is strings.Cut for one byte, which is cheaper.
func cutByte(s string, at byte) (before, after string, found bool) {
	if i := strings.IndexByte(s, at); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// needsSeparator tells whether '&' is missing between what is there and what follows.
func needsSeparator(there []byte, next string) bool {
	return len(there) > 0 && there[len(there)-1] != '&' && next[0] != '&'
}

// appendSafe appends s with the bytes percent-encoded that must not reach a header, or that would begin a fragment.
func appendSafe(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	clean := 0
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '#' {
			dst = append(append(dst, s[clean:i]...), '%', hex[c>>4], hex[c&15])
			clean = i + 1
		}
	}
	return append(dst, s[clean:]...)
}
