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
