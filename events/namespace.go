package events

import (
	"net/netip"
	"strings"
	"unsafe"
)

// NormalizeNamespace returns the namespace of a short domain given as a host with an optional port: lower case,
// A-label, no trailing dot, no default port (80 and 443 are dropped, any other is kept), IP addresses in canonical
// form. The error is always a *HostError. Normalising the result again returns it unchanged.
func NormalizeNamespace(host string) (string, error) {
	name, port, err := SplitAuthority(host)
	if err != nil {
		return "", err
	}
	if name, err = ASCIIHost(name); err != nil {
		return "", err
	}
	name = canonicalHost(name)
	if port = canonicalPort(port); port != "" {
		name += ":" + port
	}
	return name, nil
}

func canonicalHost(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr := netip.MustParseAddr(strings.TrimSuffix(inner, "]"))
		return "[" + addr.String() + "]"
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func canonicalPort(port string) string {
	port = strings.TrimLeft(port, "0")
	if port == "80" || port == "443" {
		return ""
	}
	return port
}

// IsNormalNamespace reports, without allocating, whether a Host header is in the form that NormalizeNamespace returns,
// so that it can be looked up as it is. It does not judge validity: when it is true, NormalizeNamespace either returns
// the same bytes or refuses them, and no such namespace exists.
func IsNormalNamespace(host []byte) bool {
	if len(host) == 0 || len(host) > maxHostLength+len(":65535") {
		return false
	}
	if host[0] == '[' {
		return isNormalIPv6(host)
	}
	for i, c := range host {
		if c == ':' {
			return i > 0 && host[i-1] != '.' && isNormalPort(host[i+1:])
		}
		if !hostASCII[c] || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return host[len(host)-1] != '.'
}

func isNormalIPv6(host []byte) bool {
	// The string lives as long as this call, and nothing writes to its bytes meanwhile.
	name, port, err := SplitAuthority(unsafe.String(unsafe.SliceData(host), len(host)))
	if err != nil || port == "" && host[len(host)-1] == ':' {
		return false
	}
	inner, closed := strings.CutSuffix(name[1:], "]")
	if !closed {
		return false
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil {
		return false
	}
	var buffer [64]byte
	if string(addr.AppendTo(buffer[:0])) != inner {
		return false
	}
	return port == "" || isNormalPort(host[len(name)+1:])
}

func isNormalPort(port []byte) bool {
	if len(port) == 0 || port[0] == '0' {
		return false
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return false
		}
	}
	return string(port) != "80" && string(port) != "443"
}
