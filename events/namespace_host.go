package events

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	// maxHostLength and maxLabelLength are the limits of DNS (RFC 1035, section 2.3.4), without the root's dot.
	maxHostLength  = 253
	maxLabelLength = 63
	// maxRawHostBytes bounds the work on a host that is not mapped to A-labels yet.
	maxRawHostBytes = 4 * maxHostLength
)

// HostError says why a host or its port is refused, in words for the person who typed it.
type HostError struct{ Detail string }

func (e *HostError) Error() string { return "invalid host: " + e.Detail }

func refuseHost(format string, args ...any) error {
	return &HostError{fmt.Sprintf(format, args...)}
}

// hostASCII marks the ASCII characters that host names may have: letters, digits and '-' (RFC 1123), '.' between
// labels, and '_', which no registry gives out but many zones use.
var hostASCII = asciiSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")

// international maps names to A-labels and judges A-labels as browsers do: UTS #46, non-transitional, CheckBidi and
// CheckJoiners; ASCII rules and lengths are ours.
var international = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
)

// SplitAuthority splits host[:port] of a URL or Host header. The host keeps an IPv6 address's brackets; the port,
// checked, is as typed, and empty when absent or when nothing follows the colon. The host is not judged. The error is
// always a *HostError.
func SplitAuthority(authority string) (host, port string, err error) {
	end := strings.LastIndexByte(authority, ']') + 1
	switch {
	case end == 0 && strings.HasPrefix(authority, "["):
		return authority, "", nil // ASCIIHost says that it is not closed
	case end == 0 && strings.Count(authority, ":") > 1:
		return "", "", refuseHost("it has more than one colon; write an IPv6 address in brackets")
	}
	colon := strings.IndexByte(authority[end:], ':')
	if colon < 0 {
		return authority, "", nil
	}
	host, port = authority[:end+colon], authority[end+colon+1:]
	return host, port, checkPort(port)
}

func checkPort(port string) error {
	if port == "" {
		return nil
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return refuseHost("port %q is not a number", clip(port))
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return refuseHost("port %s is not between 1 and 65535", clip(port))
	}
	return nil
}

// ASCIIHost checks a host without port (a name, an IPv4 address, or an IPv6 address in brackets) and returns it in
// ASCII: byte for byte as given if it is ASCII already, else mapped to A-labels. Its result passes unchanged. The error
// is always a *HostError.
func ASCIIHost(host string) (string, error) {
	if len(host) > maxRawHostBytes {
		return "", refuseHost("it is longer than %d characters", maxHostLength)
	}
	if strings.HasPrefix(host, "[") {
		return host, checkIPv6(host)
	}
	if isASCII(host) {
		return host, checkName(host)
	}
	if !utf8.ValidString(host) {
		return "", refuseHost("it is not valid UTF-8")
	}
	mapped, err := international.ToASCII(host)
	if err != nil {
		return "", refuseHost("%q is not a valid international name", clip(host))
	}
	if strings.HasSuffix(mapped, ".") && !endsInDot(host) {
		return "", refuseHost("its last part stands for nothing")
	}
	return mapped, checkName(mapped)
}

// endsInDot reports whether a name ends in one of the characters that mapping makes a dot of. A last part that mapping leaves
// nothing of ("xn--", a soft hyphen) would leave a dot that nobody typed, and so another name.
func endsInDot(host string) bool {
	last, _ := utf8.DecodeLastRuneInString(host)
	return strings.ContainsRune(".。．｡", last)
}

func checkIPv6(host string) error {
	inner, closed := strings.CutSuffix(host[1:], "]")
	if !closed {
		return refuseHost("the bracket of an IPv6 address is not closed, or something other than a port follows it")
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil || !addr.Is6() {
		return refuseHost("%q is not an IPv6 address", clip(inner))
	}
	if addr.Zone() != "" {
		return refuseHost("an IPv6 zone means nothing to other machines")
	}
	return nil
}

// checkName judges a name or IPv4 address in ASCII.
func checkName(host string) error {
	name := strings.TrimSuffix(host, ".")
	if name == "" {
		return refuseHost("it is missing")
	}
	if len(name) > maxHostLength {
		return refuseHost("it is longer than %d characters", maxHostLength)
	}
	last, international := "", false
	for last = range strings.SplitSeq(name, ".") {
		if err := checkLabel(last); err != nil {
			return err
		}
		international = international || hasACEPrefix(last)
	}
	if isNumeric(last) {
		return checkIPv4(name)
	}
	if international {
		return checkALabels(name)
	}
	return nil
}

func checkLabel(label string) error {
	for i := range len(label) {
		if c := label[i]; !hostASCII[c] {
			return refuseHost("%s is not allowed in a host name", nameCharacter(rune(c)))
		}
	}
	switch {
	case label == "":
		return refuseHost("it has an empty part between dots")
	case len(label) > maxLabelLength:
		return refuseHost("a part between dots is longer than %d characters", maxLabelLength)
	case label[0] == '-' || label[len(label)-1] == '-':
		return refuseHost("the part %q begins or ends with a hyphen", label)
	}
	return nil
}

// checkIPv4 refuses the short, octal and hexadecimal forms, which browsers and resolvers read as different addresses.
func checkIPv4(name string) error {
	if addr, err := netip.ParseAddr(name); err != nil || !addr.Is4() {
		return refuseHost("%q ends in a number but is not an IPv4 address of four decimal parts", clip(name))
	}
	return nil
}

// checkALabels refuses A-labels that do not decode, or not to what they would be encoded from.
func checkALabels(name string) error {
	lower := strings.ToLower(name)
	if mapped, err := international.ToASCII(lower); err != nil || mapped != lower {
		return refuseHost("%q is not a valid international name", clip(name))
	}
	return nil
}

func hasACEPrefix(label string) bool {
	return len(label) >= 4 && strings.EqualFold(label[:4], "xn--")
}

// isNumeric tells a last label that makes browsers read the host as an IPv4 address (WHATWG URL, "ends in a number").
func isNumeric(label string) bool {
	digits := "0123456789"
	if len(label) >= 2 && strings.EqualFold(label[:2], "0x") {
		label, digits = label[2:], "0123456789abcdefABCDEF"
	}
	return strings.Trim(label, digits) == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// clip shortens what is quoted back in an error.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
