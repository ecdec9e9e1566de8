package gateway

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/schemas/pb"
)

// BenchmarkRedirect is one visit, from the bytes of the request to those of the answer, clicks recorded and sent.
func BenchmarkRedirect(b *testing.B) {
	node := newRedirectNode(b)
	node.add("bench", &pb.Redirect{Target: "https://example.com/landing/1?utm_source=check&id=1"})
	for name, target := range map[string]string{"plain": "/bench", "query": "/bench?utm_medium=mail&x=1", "unknown": "/nothing-here"} {
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

// BenchmarkClickRecord is what a click costs the visitor's path.
func BenchmarkClickRecord(b *testing.B) {
	recorder := newClickTestRecorder(b, &clickTestAppender{}, ClickConfig{Partitions: 4})
	click := Click{LinkID: 1, Version: 1, TimeUS: 1, Status: 302, Namespace: "s.example", Code: []byte("bench"), UserAgent: []byte(redirectTestAgent)}
	b.ReportAllocs()
	for b.Loop() {
		recorder.Record(&click)
	}
	b.ReportMetric(float64(recorder.Status().Dropped)/float64(b.N), "dropped/op")
}

// BenchmarkClickEncode is what a click costs behind that path.
func BenchmarkClickEncode(b *testing.B) {
	recorder := newClickTestRecorder(b, &clickTestAppender{}, ClickConfig{Partitions: 1})
	encoder := newClickEncoder(recorder, 0)
	click := Click{LinkID: 1, Version: 1, TimeUS: 1, Status: 302, Namespace: "s.example", Code: []byte("bench"), UserAgent: []byte(redirectTestAgent),
		Referrer: []byte("https://news.example/today"), Query: []byte("utm_source=x")}
	const clicks = 500
	var arena []byte
	var value []byte
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		arena = arena[:0]
		for range clicks {
			arena = appendRawClick(arena, &click)
		}
		value = encoder.encode(clickBlock{first: 1, clicks: clicks, arena: arena})
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*clicks), "ns/click")
	b.ReportMetric(float64(len(value))/clicks, "B/click")
}
