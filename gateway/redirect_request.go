package gateway

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/events"
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

// visitorAddress returns the address of whom the request is from, invalid if that is not known.
func (r *Redirect) visitorAddress(ctx *fasthttp.RequestCtx) netip.Addr {
	if r.deps.TrustedHops > 0 {
		lines := ctx.Request.Header.PeekAll(fasthttp.HeaderXForwardedFor)
		if address := redirectForwarded(lines, r.deps.TrustedHops); address.IsValid() {
			return address
		}
	}
	address, _ := netip.AddrFromSlice(ctx.RemoteIP())
	return address.Unmap()
}

// redirectForwarded returns the entry before the last hops ones of a list that may stand in several header lines, the first
// entry if there are not more, and the zero address if that entry is none.
func redirectForwarded(lines [][]byte, hops int) netip.Addr {
	entry := []byte(nil)
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; line != nil; {
			comma := bytes.LastIndexByte(line, ',')
			entry = bytes.TrimSpace(line[comma+1:])
			if comma < 0 {
				line = nil
			} else {
				line = line[:comma]
			}
			if hops--; hops < 0 {
				return redirectParseAddress(entry)
			}
		}
	}
	return redirectParseAddress(entry)
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

// redirectIsPrefetch reports whether the browser fetches on its own account (Fetch, "Sec-Purpose"; older: "Purpose").
func redirectIsPrefetch(header *fasthttp.RequestHeader) bool {
	return bytes.Contains(header.PeekCanonical(redirectSecPurpose), redirectPrefetch) ||
		bytes.Contains(header.PeekCanonical(redirectPurpose), redirectPrefetch)
}

var (
	redirectSecPurpose = []byte("Sec-Purpose")
	redirectPurpose    = []byte("Purpose")
	redirectPrefetch   = []byte("prefetch")
)
