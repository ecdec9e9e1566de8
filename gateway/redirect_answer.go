package gateway

import (
	"fmt"
	"html"
	"net/url"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Names and values of headers, in the form in which they go out.
var (
	redirectLocation     = []byte("Location")
	redirectCacheControl = []byte("Cache-Control")
	redirectPragma       = []byte("Pragma")
	redirectExpires      = []byte("Expires")
	redirectNever        = []byte("private, no-cache, no-store, must-revalidate")
	redirectNoCache      = []byte("no-cache")
	redirectZero         = []byte("0")
)

// redirectForbidCache keeps every cache from keeping the answer (the two older headers are for HTTP/1.0).
func redirectForbidCache(h *fasthttp.ResponseHeader) {
	h.SetCanonical(redirectCacheControl, redirectNever)
	h.SetCanonical(redirectPragma, redirectNoCache)
	h.SetCanonical(redirectExpires, redirectZero)
}

// redirectSetCache says how long a redirect may be kept, by the link's cache_ttl; buffer is reused and returned.
func redirectSetCache(h *fasthttp.ResponseHeader, buffer []byte, record *pb.Redirect, nowUS int64) []byte {
	fresh, stale := redirectCacheTimes(record, nowUS)
	if fresh <= 0 {
		redirectForbidCache(h)
		return buffer
	}
	buffer = append(buffer[:0], "public, max-age="...)
	buffer = strconv.AppendInt(buffer, fresh, 10)
	buffer = append(buffer, ", stale-if-error="...)
	buffer = strconv.AppendInt(buffer, stale, 10)
	h.SetCanonical(redirectCacheControl, buffer)
	return buffer
}

// redirectCacheTimes returns for how many seconds an answer is fresh, and for how many more it may be used while we do not
// answer (RFC 5861): as long again. Neither reaches past the link's expiry.
func redirectCacheTimes(record *pb.Redirect, nowUS int64) (fresh, stale int64) {
	fresh = int64(record.GetCacheTtl())
	stale = fresh
	if expires := record.GetExpiresUs(); expires != 0 {
		left := (expires - nowUS) / 1e6
		fresh = min(fresh, left)
		stale = min(stale, left-fresh)
	}
	return fresh, stale
}

// redirectRetryAfter is what a visitor of a node whose store fails is told, in seconds.
const redirectRetryAfter = "1"

// redirectTexts are the refusals: what a person reads.
var redirectTexts = map[int][2]string{
	fasthttp.StatusBadRequest:                  {"Bad request", "This is not a request that a browser sends."},
	fasthttp.StatusForbidden:                   {"Link blocked", "This link was blocked."},
	fasthttp.StatusNotFound:                    {"Not found", "There is no link at this address."},
	fasthttp.StatusMethodNotAllowed:            {"Method not allowed", "Links can be visited, nothing else."},
	fasthttp.StatusRequestTimeout:              {"Too slow", "The request took too long to arrive."},
	fasthttp.StatusGone:                        {"Link gone", "This link is no longer in use."},
	fasthttp.StatusRequestEntityTooLarge:       {"Too large", "Nothing here takes a body."},
	fasthttp.StatusRequestHeaderFieldsTooLarge: {"Too large", "The request's headers are too large."},
	fasthttp.StatusUnavailableForLegalReasons:  {"Unavailable for legal reasons", "This link was blocked for legal reasons."},
	fasthttp.StatusInternalServerError:         {"Something went wrong", "The mistake is ours. Please try again."},
	fasthttp.StatusServiceUnavailable:          {"Not available now", "Please try again in a moment."},
}

// redirectPages holds the page of every refusal.
var redirectPages = func() map[int][]byte {
	pages := make(map[int][]byte, len(redirectTexts))
	for status, text := range redirectTexts {
		pages[status] = redirectPage(text[0], fmt.Sprintf("<p>%s</p>", text[1]))
	}
	return pages
}()

// redirectPage makes a page. The body is HTML, the title text.
func redirectPage(title, body string) []byte {
	title = html.EscapeString(title)
	return []byte("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">" +
		"<meta name=\"robots\" content=\"noindex\"><title>" + title + "</title>" +
		"<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem;overflow-wrap:anywhere}</style>" +
		"</head><body><h1>" + title + "</h1>" + body + "</body></html>\n")
}

// redirectPagePolicy allows a page its own style and nothing else.
const redirectPagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// redirectRefuse answers with a status and its page.
func redirectRefuse(ctx *fasthttp.RequestCtx, status int) {
	redirectSetPage(ctx, status, redirectPages[status])
	switch status {
	case fasthttp.StatusMethodNotAllowed:
		ctx.Response.Header.Set(fasthttp.HeaderAllow, "GET, HEAD")
	case fasthttp.StatusServiceUnavailable:
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, redirectRetryAfter)
	}
}

func redirectSetPage(ctx *fasthttp.RequestCtx, status int, page []byte) {
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(status)
	redirectForbidCache(h)
	h.SetContentType("text/html; charset=utf-8")
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderContentSecurityPolicy, redirectPagePolicy)
	ctx.Response.SetBodyRaw(page)
}

// redirectPreview shows where a link leads. Who goes on does so by the link itself, so that its rules hold and the click
// counts.
func redirectPreview(ctx *fasthttp.RequestCtx, code []byte, target string) {
	href := html.EscapeString("/" + url.PathEscape(string(code)))
	body := "<p>This short link leads to</p><p><strong>" + html.EscapeString(target) + "</strong></p><p><a rel=\"nofollow\" href=\"" + href + "\">Go there</a></p>"
	redirectSetPage(ctx, fasthttp.StatusOK, redirectPage("Preview of "+string(code), body))
}

// redirectRobots lets programs follow links: chat and feed previews ask first.
func redirectRobots(ctx *fasthttp.RequestCtx) {
	redirectSetStatic(ctx, fasthttp.StatusOK)
	ctx.Response.Header.SetContentType("text/plain; charset=utf-8")
	ctx.Response.SetBodyRaw([]byte("User-agent: *\nDisallow:\n"))
}

// redirectFavicon answers browsers that look for an icon: there is none.
func redirectFavicon(ctx *fasthttp.RequestCtx) { redirectSetStatic(ctx, fasthttp.StatusNoContent) }

func redirectSetStatic(ctx *fasthttp.RequestCtx, status int) {
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "public, max-age=86400")
	ctx.Response.Header.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
}
