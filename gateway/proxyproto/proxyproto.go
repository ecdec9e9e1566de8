// Package proxyproto reads the header that a proxy puts in front of a connection to say whose it is: the PROXY protocol of
// HAProxy, versions 1 and 2 (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt).
//
// Invariant: only those networks that are named are believed; anybody can write such a header.
//
// It must not import anything of this module.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// ErrHeader says that bytes begin with no PROXY header, or with one that does not keep the protocol.
var ErrHeader = errors.New("proxyproto: not a PROXY header")

const (
	maxV1 = 107 // the longest line of version 1, its end included
	// MaxHeader bounds a header of version 2. The protocol allows 64 KiB; what proxies add (names, certificates' subjects)
	// fits easily.
	MaxHeader = 4 << 10
)

var (
	signature1 = []byte("PROXY ")
	signature2 = []byte("\r\n\r\n\x00\r\nQUIT\n")
)

// Parse reads the header at the start of b. It returns the bytes that it takes, 0 while more must come, and the address that
// the connection is from: invalid if the header names none (the proxy speaks for itself, or by a way without addresses).
func Parse(b []byte) (n int, source netip.Addr, err error) {
	switch {
	case isPrefix(b, signature2):
		return parse2(b)
	case isPrefix(b, signature1):
		return parse1(b)
	}
	return 0, source, ErrHeader
}

// isPrefix reports whether b begins with the signature, as far as it has come.
func isPrefix(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return bytes.Equal(b[:n], signature[:n])
}

// parse1 reads "PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n".
func parse1(b []byte) (n int, source netip.Addr, err error) {
	end := bytes.Index(b[:min(len(b), maxV1)], []byte("\r\n"))
	if end < 0 {
		if len(b) >= maxV1 {
			err = ErrHeader
		}
		return 0, source, err
	}
	fields := strings.Split(string(b[:end]), " ")
	if len(fields) >= 2 && fields[1] == "UNKNOWN" {
		return end + 2, source, nil
	}
	if len(fields) != 6 || !isPort(fields[4]) || !isPort(fields[5]) {
		return 0, source, ErrHeader
	}
	source, err = netip.ParseAddr(fields[2])
	to, errTo := netip.ParseAddr(fields[3])
	is4 := fields[1] == "TCP4"
	if err != nil || errTo != nil || !is4 && fields[1] != "TCP6" || source.Is4() != is4 || to.Is4() != is4 || source.Zone() != "" {
		return 0, netip.Addr{}, ErrHeader
	}
	return end + 2, source.Unmap(), nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == text
}

// Bytes of a header of version 2: signature, version and command, family and protocol, length.
const (
	commandAt = 12
	familyAt  = 13
	lengthAt  = 14
	bodyAt    = 16
)

func parse2(b []byte) (n int, source netip.Addr, err error) {
	if len(b) > commandAt && b[commandAt]>>4 != 2 || len(b) > commandAt && b[commandAt]&15 > 1 {
		return 0, source, ErrHeader
	}
	if len(b) < bodyAt {
		return 0, source, nil
	}
	n = bodyAt + int(binary.BigEndian.Uint16(b[lengthAt:]))
	if n > MaxHeader {
		return 0, source, ErrHeader
	}
	if len(b) < n {
		return 0, source, nil
	}
	if b[commandAt]&15 == 0 { // LOCAL: a health check of the proxy's own
		return n, source, nil
	}
	return address2(n, b[familyAt]>>4, b[bodyAt:n])
}

// address2 reads the source of a header of n bytes from its body: both addresses, then both ports.
func address2(n int, family byte, body []byte) (int, netip.Addr, error) {
	const unspecified, inet, inet6, unix = 0, 1, 2, 3
	switch {
	case family == inet && len(body) >= 2*4+2*2:
		return n, netip.AddrFrom4([4]byte(body[:4])), nil
	case family == inet6 && len(body) >= 2*16+2*2:
		return n, netip.AddrFrom16([16]byte(body[:16])).Unmap(), nil
	case family == unspecified || family == unix:
		return n, netip.Addr{}, nil
	}
	return 0, netip.Addr{}, ErrHeader
}
