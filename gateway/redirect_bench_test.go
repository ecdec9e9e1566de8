package gateway

import (
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/schemas/pb"
)

// BenchmarkRedirect is one visit, from the parsed request to the rendered answer, clicks recorded and sent.
func BenchmarkRedirect(b *testing.B) {
	node := newRedirectNode(b)
	node.add("bench", &pb.Redirect{Target: "https://example.com/landing/1?utm_source=check&id=1"})
	for name, uri := range map[string]string{"plain": "/bench", "query": "/bench?utm_medium=mail&x=1"} {
		b.Run(name, func(b *testing.B) {
			ctx := &fasthttp.RequestCtx{}
			ctx.Init(&fasthttp.Request{}, nil, nil)
			ctx.Request.Header.SetRequestURI(uri)
			ctx.Request.Header.SetHost(node.host)
			ctx.Request.Header.SetUserAgent(redirectTestAgent)
			ctx.Request.Header.SetReferer("https://news.example/today")
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				ctx.Response.Reset()
				node.redirect.handle(ctx)
				out = ctx.Response.Header.AppendBytes(out[:0])
			}
			if ctx.Response.StatusCode() != fasthttp.StatusFound {
				b.Fatalf("status %d", ctx.Response.StatusCode())
			}
		})
	}
	b.Run("unknown", func(b *testing.B) {
		ctx := &fasthttp.RequestCtx{}
		ctx.Init(&fasthttp.Request{}, nil, nil)
		ctx.Request.Header.SetRequestURI("/nothing-here")
		ctx.Request.Header.SetHost(node.host)
		b.ReportAllocs()
		for b.Loop() {
			ctx.Response.Reset()
			node.redirect.handle(ctx)
		}
	})
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
