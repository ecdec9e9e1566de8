package commands

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hoplog/hoplog/events"
)

// MaxTargetBytes is the longest target, measured after normalising.
const MaxTargetBytes = 8192

// NormalizeTarget checks a target URL and returns it as it is stored and served: trimmed, a non-ASCII host as A-labels,
// other non-ASCII bytes percent-encoded, every other byte as submitted, the case of scheme and host and a trailing dot
// included. The result is printable ASCII without spaces, fit for a Location header, and normalises to itself. The error
// is always a *Refusal with CodeInvalidTarget.
func NormalizeTarget(raw string) (string, error) {
	if !utf8.ValidString(raw) {
		return "", refuseTarget("it is not valid UTF-8")
	}
	trimmed := strings.TrimFunc(raw, isTargetSpace)
	if trimmed == "" {
		return "", refuseTarget("it is empty; give an absolute URL such as https://example.com/page")
	}
	scheme, authority, rest, err := splitTarget(trimmed)
	if err != nil {
		return "", err
	}
	host, err := targetAuthority(authority)
	if err != nil {
		return "", err
	}
	target, err := appendTargetRest([]byte(scheme+"://"+host), rest)
	if err != nil {
		return "", err
	}
	if len(target) > MaxTargetBytes {
		return "", refuseTarget("it is longer than %d bytes once non-ASCII characters are encoded", MaxTargetBytes)
	}
	return string(target), nil
}

// NormalizeURL is NormalizeTarget for another field by the same rules; the error names it.
func NormalizeURL(field, raw string) (string, error) {
	normal, err := NormalizeTarget(raw)
	var r *Refusal
	if errors.As(err, &r) {
		return "", Refuse(r.Code, field, strings.Replace(r.Detail, "the target", field, 1))
	}
	return normal, err
}

// TargetHost returns the host[:port] of a normalised target in the form of a namespace (lower case, no trailing dot, no
// default port), for comparing it with short domains; "" if there is none.
func TargetHost(target string) string {
	_, authority, _, err := splitTarget(target)
	if err != nil {
		return ""
	}
	host, err := events.NormalizeNamespace(authority)
	if err != nil {
		return ""
	}
	return host
}

// isTargetSpace tells what is trimmed around a target: white space, and the byte order mark that editors leave behind.
func isTargetSpace(r rune) bool {
	return r == '\uFEFF' || unicode.IsSpace(r)
}

// splitTarget cuts scheme://authority from the rest, which is empty or begins with '/', '?' or '#'.
func splitTarget(target string) (scheme, authority, rest string, err error) {
	scheme, after, found := strings.Cut(target, ":")
	if !found || strings.ContainsAny(scheme, "/?#\\.") {
		return "", "", "", refuseTarget("it has no scheme; begin with https:// or http://")
	}
	if !strings.EqualFold(scheme, "https") && !strings.EqualFold(scheme, "http") {
		return "", "", "", refuseTarget("its scheme is not https or http")
	}
	after, found = strings.CutPrefix(after, "//")
	if !found {
		return "", "", "", refuseTarget("two slashes must follow %s:", scheme)
	}
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		end = len(after)
	}
	return scheme, after[:end], after[end:], nil
}

// targetAuthority checks host[:port] and returns it with the host in ASCII and the port as typed.
func targetAuthority(authority string) (string, error) {
	switch {
	case strings.Contains(authority, "@"):
		return "", refuseTarget("it has user information (@) before the host; remove it")
	case strings.Contains(authority, `\`):
		return "", refuseTarget(`it has a backslash before the path's end; use / or %%5C`)
	}
	name, _, err := events.SplitAuthority(authority)
	if err != nil {
		return "", refuseTargetHost(err)
	}
	host, err := events.ASCIIHost(name)
	if err != nil {
		return "", refuseTargetHost(err)
	}
	return host + authority[len(name):], nil
}

func refuseTargetHost(err error) error {
	var bad *events.HostError
	if errors.As(err, &bad) {
		return refuseTarget("its host is not valid: %s", bad.Detail)
	}
	return refuseTarget("its host is not valid")
}

// appendTargetRest appends path, query and fragment, encoding what is not ASCII.
func appendTargetRest(dst []byte, rest string) ([]byte, error) {
	inPath := true
	for _, r := range rest {
		switch {
		case r == '?' || r == '#':
			inPath = false
		case r == ' ':
			return nil, refuseTarget("it contains a space; write %%20")
		case r < ' ' || 0x7F <= r && r <= 0x9F:
			return nil, refuseTarget("it contains the control character %U", r)
		case r == '\\' && inPath:
			return nil, refuseTarget(`it has a backslash before the path's end; use / or %%5C`)
		case r >= utf8.RuneSelf:
			dst = appendEscapedRune(dst, r)
			continue
		}
		dst = append(dst, byte(r))
	}
	return dst, nil
}

// appendEscapedRune percent-encodes a character as UTF-8 (RFC 3986, section 2.5).
func appendEscapedRune(dst []byte, r rune) []byte {
	const hex = "0123456789ABCDEF"
	var encoded [utf8.UTFMax]byte
	for _, c := range encoded[:utf8.EncodeRune(encoded[:], r)] {
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

func refuseTarget(format string, args ...any) error {
	return Refuse(CodeInvalidTarget, "target", "the target is refused: "+fmt.Sprintf(format, args...))
}
