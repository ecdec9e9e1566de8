package http1_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// pieces are what requests are made up of; the first of each kind is what browsers send, and most likely.
var pieces = struct{ methods, targets, versions, ends, hosts, fields, bodies []string }{
	methods:  []string{"GET", "HEAD", "POST", "OPTIONS", "get", "G T", "", "CONNECT"},
	targets:  []string{"/a", "/a?b=%2f#c", "http://b/a", "*", "a:1", "", "/\x00", "/ b", "//b", "/%zz", "http://"},
	versions: []string{"HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/1.1 ", "http/1.1", ""},
	ends:     []string{"\r\n", "\n", "\r", "\r\r\n", "\r\n ", "\r\n\t"},
	hosts:    []string{"Host: a", "host:a ", "Host: a\r\nHost: a", "", "Host:", "Host : a", "Host: \xff", "X-Host: a"},
	fields: []string{"Accept: */*", "Content-Length: 5", "Content-Length: 5", "Content-Length: 05", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: ", "Content-Length: 99",
		"Transfer-Encoding: chunked", "Transfer-Encoding: chunked", "transfer-encoding: CHUNKED ", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Transfer-Encoding : chunked",
		"Transfer-Encoding: \x0bchunked", "Connection: close", "Connection: keep-alive", "Connection: x, Close", "X: a\tb", "X: \x00", "X: \xff", ": x", "X", "X(: y", "Trailer: X", "Upgrade: h2c", "\x00: y"},
	bodies: []string{"", "hello", "5\r\nhello\r\n0\r\n\r\n", "5;x=y\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n", "5\r\nhello\r\n0\r\nX: y\r\n\r\n", "0\r\n\r\n", "-1\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n",
		"5\r\nhello0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "00000000005\r\nhello\r\n0\r\n\r\n", "0\r\n x\r\n\r\n"},
}

// pick returns the first of the list most of the time.
func pick(r *rand.Rand, list []string) string {
	if r.IntN(8) > 0 {
		return list[0]
	}
	return list[r.IntN(len(list))]
}

func madeUp(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		end := func() string { return pick(r, pieces.ends) }
		b.WriteString(pick(r, pieces.methods) + " " + pick(r, pieces.targets) + " " + pick(r, pieces.versions) + end())
		b.WriteString(pick(r, pieces.hosts) + end())
		for range r.IntN(4) {
			b.WriteString(pieces.fields[r.IntN(len(pieces.fields))] + end())
		}
		b.WriteString(end() + pieces.bodies[r.IntN(len(pieces.bodies))])
	}
	return b.String()
}

// TestAgreesOnMadeUpRequests holds both readers against each other on pipelines that are nearly right.
func TestAgreesOnMadeUpRequests(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		compare(t, []byte(madeUp(r)))
	}
}
