package gateway

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/schemas/pb"
)

// BenchmarkRedirect is one visit, from the bytes of the request to those of the answer, clicks recorded and sent.
func BenchmarkRedirect(b *testing.B) {
	b.Run("unguarded", func(b *testing.B) { benchmarkRedirect(b, nil) })
	guard := newScanGuard(b, scan.Config{Limit: 1 << 30, NodeLimit: 1 << 30})
	guard.Unknown(netip.MustParseAddr("203.0.113.9"), 1, redirectTestNow)
	b.Run("others guess", func(b *testing.B) { benchmarkRedirect(b, guard) })
}

func benchmarkRedirect(b *testing.B, guard *scan.Guard) {
	node := newRedirectNode(b, func(d *RedirectDeps) { d.Scan = guard })
	node.add("bench", &pb.Redirect{Target: "https://example.com/landing/1?utm_source=check&id=1"})
	for _, c := range [][2]string{{"plain", "/bench"}, {"query", "/bench?utm_medium=mail&x=1"}, {"unknown", "/nothing-here"}} {
		name, target := c[0], c[1]
		b.Run(name, func(b *testing.B) {
			raw := []byte("GET " + target + " HTTP/1.1\r\nHost: " + node.host + "\r\nUser-Agent: " + redirectTestAgent + "\r\nReferer: https://news.example/today\r\n\r\n")
			var q http1.Request
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if n, err := q.Parse(raw); n != len(raw) || err != nil {
					b.Fatal(n, err)
				}
				out, _ = node.redirect.Respond(out[:0], &q, netip.MustParseAddr("192.0.2.7"), true)
			}
			if want := "HTTP/1.1 302 "; name != "unknown" && !bytes.HasPrefix(out, []byte(want)) {
				b.Fatalf("%s", out)
			}
		})
	}
}
