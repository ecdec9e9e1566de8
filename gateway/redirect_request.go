package gateway

import (
	"bytes"
	"iter"
	"net/netip"
	"strings"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway/http1"
)

// redirectTarget is what a request asks for, in the bytes that came.
type redirectTarget struct {
	host, path, query []byte
}

// splitRedirectTarget reads a request target in origin form (/abc?x) or absolute form (http://host/abc?x), whose host
// counts instead of the Host header (RFC 9112, section 3.2.2). False: no link can have this target.
func splitRedirectTarget(uri, host []byte) (redirectTarget, bool) {
	if i := bytes.IndexByte(uri, '#'); i >= 0 {
		uri = uri[:i] // no client sends a fragment; what follows must not become part of ours
	}
	if len(uri) == 0 {
		return redirectTarget{}, false
	}
	if uri[0] != '/' {
		scheme, rest, found := bytes.Cut(uri, []byte("://"))
		if !found || !bytes.EqualFold(scheme, []byte("http")) && !bytes.EqualFold(scheme, []byte("https")) {
			return redirectTarget{}, false
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		host, uri = rest[:end], rest[end:]
	}
	path, query := uri, []byte(nil)
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		path, query = uri[:i], uri[i+1:]
	}
	return redirectTarget{host: host, path: path, query: query}, true
}

// resolve returns the namespace that a Host header stands for.
func (r *Redirect) resolve(host []byte) (string, bool) {
	if events.IsNormalNamespace(host) {
		return r.deps.Domains.Resolve(host)
	}
	normal, err := events.NormalizeNamespace(string(host))
	if err != nil {
		return "", false
	}
	return r.deps.Domains.Resolve([]byte(normal))
}

// visitorAddress returns the address of whom the request is from, invalid if that is not known. Where the header of our
// proxies names nobody, it is who connects.
func (r *Redirect) visitorAddress(v *redirectVisit) netip.Addr {
	if address := r.forwardedAddress(v); address.IsValid() {
		return address
	}
	return v.peer
}

// forwardedAddress returns the address that the header of our proxies names, the zero address if it names none. It is read once.
func (r *Redirect) forwardedAddress(v *redirectVisit) netip.Addr {
	if !r.isForwarded(v) {
		return netip.Addr{}
	}
	if !v.visitorKnown {
		lines, entryOf := v.request.ForwardedFor, redirectParseAddress
		if r.deps.TrustForwarded {
			lines, entryOf = v.request.Forwarded, redirectForwardedFor
		}
		if len(r.deps.TrustedProxies) > 0 {
			v.visitor = redirectForwardedBy(lines, r.deps.TrustedProxies, entryOf)
		} else {
			v.visitor = redirectForwarded(lines, r.deps.TrustedHops, entryOf)
		}
		v.visitorKnown = true
	}
	return v.visitor
}

// isForwarded reports whether a request comes by a proxy whose header counts.
func (r *Redirect) isForwarded(v *redirectVisit) bool {
	if len(r.deps.TrustedProxies) > 0 {
		return redirectContains(r.deps.TrustedProxies, v.peer)
	}
	return r.deps.TrustedHops > 0
}

func redirectContains(networks []netip.Prefix, a netip.Addr) bool {
	for _, p := range networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// redirectEntries goes through a list that may stand in several header lines, from its end.
func redirectEntries(lines [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			for line, comma := lines[i], 0; comma >= 0; {
				comma = bytes.LastIndexByte(line, ',')
				if !yield(bytes.TrimSpace(line[comma+1:])) {
					return
				}
				line = line[:max(comma, 0)]
			}
		}
	}
}

// redirectForwarded returns the entry before the last hops ones, the first entry if there are not more, and the zero address
// if that entry is none.
func redirectForwarded(lines [][]byte, hops int, entryOf func([]byte) netip.Addr) netip.Addr {
	var entry []byte
	for entry = range redirectEntries(lines) {
		if hops--; hops < 0 {
			break
		}
	}
	return entryOf(entry)
}

// redirectForwardedBy returns the last entry that is none of our proxies, the first one if all are, and the zero address if
// that entry is none: what stands before it the visitor may have invented.
func redirectForwardedBy(lines [][]byte, proxies []netip.Prefix, entryOf func([]byte) netip.Addr) (address netip.Addr) {
	for entry := range redirectEntries(lines) {
		if address = entryOf(entry); !redirectContains(proxies, address) {
			break
		}
	}
	return address
}

// redirectParseAddress reads an address with or without a port or brackets.
func redirectParseAddress(entry []byte) netip.Addr {
	const longest = len("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535")
	if len(entry) == 0 || len(entry) > longest {
		return netip.Addr{}
	}
	text := string(entry)
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().WithZone("").Unmap()
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return address.WithZone("").Unmap()
}

// redirectForwardedFor reads the address of one element of a Forwarded header (RFC 7239, section 4), which is a list of
// parameters. Names that stand for an address ("unknown", "_hidden") are none. A quoted string with a comma in it never holds
// an address, so that the list may be cut at every comma.
func redirectForwardedFor(element []byte) netip.Addr {
	for more := true; more; {
		var parameter []byte
		parameter, element, more = bytes.Cut(element, []byte(";"))
		name, value, _ := bytes.Cut(bytes.TrimSpace(parameter), []byte("="))
		if bytes.EqualFold(name, []byte("for")) {
			if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			return redirectParseAddress(value)
		}
	}
	return netip.Addr{}
}

// redirectIsPrefetch reports whether the browser fetches on its own account (Fetch, "Sec-Purpose"; older: "Purpose").
func redirectIsPrefetch(q *http1.Request) bool {
	return len(q.SecPurpose) > 0 && bytes.Contains(q.SecPurpose, redirectPrefetch) ||
		len(q.Purpose) > 0 && bytes.Contains(q.Purpose, redirectPrefetch)
}

var redirectPrefetch = []byte("prefetch")
