package gateway

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hoplog/hoplog/readmodels/redirects"
)

// redirectReply is the answer to a visit, before a listener puts it into its protocol: a page, else a redirect.
type redirectReply struct {
	page *redirectPage

	status   int
	location []byte // borrowed from the visit
	// fresh is for how many seconds the redirect may be kept, stale for how many more while we do not answer; not above 0: never.
	fresh, stale int64
}

// redirectNever keeps every cache from keeping an answer. The two older headers that go with it, Pragma and Expires, are for
// HTTP/1.0.
const redirectNever = "private, no-cache, no-store, must-revalidate"

// appendCacheControl appends how long a redirect with fresh above 0 may be kept (RFC 9111; RFC 5861).
func (a *redirectReply) appendCacheControl(to []byte) []byte {
	to = append(to, "public, max-age="...)
	to = strconv.AppendInt(to, a.fresh, 10)
	to = append(to, ", stale-if-error="...)
	return strconv.AppendInt(to, a.stale, 10)
}

// redirectCacheTimes returns for how many seconds an answer is fresh, and for how many more it may be used while we do not
// answer (RFC 5861): as long again. Neither reaches past the link's expiry.
func redirectCacheTimes(link *redirects.Record, nowUS int64) (fresh, stale int64) {
	fresh = int64(link.CacheTTL())
	stale = fresh
	if expires := link.ExpiresUS(); expires != 0 {
		left := (expires - nowUS) / 1e6
		fresh = min(fresh, left)
		stale = min(stale, left-fresh)
	}
	return fresh, stale
}

// redirectFitsHeader reports whether all bytes are printable ASCII and none is a space: what a normalised target and a
// merged query consist of. What is not so could end a header.
func redirectFitsHeader(location []byte) bool {
	for _, c := range location {
		if c <= ' ' || c >= 0x7F {
			return false
		}
	}
	return true
}

// redirectPage is an answer that is no redirect, with all headers but Date and Connection.
type redirectPage struct {
	status int
	header [][2]string
	body   []byte
	head   []byte // the same for HTTP/1.1, from the status line on
}

func newRedirectPage(status int, body []byte, header ...[2]string) *redirectPage {
	if status != http.StatusNoContent { // which has no length (RFC 9110, section 8.6)
		header = append(header, [2]string{"Content-Length", strconv.Itoa(len(body))})
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, h := range header {
		head = fmt.Appendf(head, "%s: %s\r\n", h[0], h[1])
	}
	return &redirectPage{status: status, header: header, body: body, head: head}
}

// redirectRetryAfter is what a visitor of a node whose store fails is told, in seconds.
const redirectRetryAfter = "1"

// redirectTexts are the refusals: what a person reads.
var redirectTexts = map[int][2]string{
	http.StatusBadRequest:                  {"Bad request", "This is not a request that a browser sends."},
	http.StatusForbidden:                   {"Link blocked", "This link was blocked."},
	http.StatusNotFound:                    {"Not found", "There is no link at this address."},
	http.StatusMethodNotAllowed:            {"Method not allowed", "Links can be visited, nothing else."},
	http.StatusRequestTimeout:              {"Too slow", "The request took too long to arrive."},
	http.StatusGone:                        {"Link gone", "This link is no longer in use."},
	http.StatusRequestEntityTooLarge:       {"Too large", "Nothing here takes a body."},
	http.StatusRequestHeaderFieldsTooLarge: {"Too large", "The request's headers are too large."},
	http.StatusTooManyRequests:             {"Too many requests", "Too many links that do not exist were asked for from here. Please try again later."},
	http.StatusUnavailableForLegalReasons:  {"Unavailable for legal reasons", "This link was blocked for legal reasons."},
	http.StatusInternalServerError:         {"Something went wrong", "The mistake is ours. Please try again."},
	http.StatusServiceUnavailable:          {"Not available now", "Please try again in a moment."},
}

// redirectPages holds the page of every refusal.
var redirectPages = func() map[int]*redirectPage {
	pages := make(map[int]*redirectPage, len(redirectTexts))
	for status, text := range redirectTexts {
		var more [][2]string
		switch status {
		case http.StatusMethodNotAllowed:
			more = [][2]string{{"Allow", "GET, HEAD"}}
		case http.StatusServiceUnavailable:
			more = [][2]string{{"Retry-After", redirectRetryAfter}}
		}
		pages[status] = redirectHTML(status, text[0], fmt.Sprintf("<p>%s</p>", text[1]), more...)
	}
	return pages
}()

// redirectPagePolicy allows a page its own style and nothing else.
const redirectPagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// redirectHTML makes a page that no cache keeps. The body is HTML, the title text.
func redirectHTML(status int, title, body string, more ...[2]string) *redirectPage {
	title = html.EscapeString(title)
	text := "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">" +
		"<meta name=\"robots\" content=\"noindex\"><title>" + title + "</title>" +
		"<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem;overflow-wrap:anywhere}</style>" +
		"</head><body><h1>" + title + "</h1>" + body + "</body></html>\n"
	header := append([][2]string{{"Cache-Control", redirectNever}, {"Pragma", "no-cache"}, {"Expires", "0"}, {"Content-Type", "text/html; charset=utf-8"},
		{"X-Content-Type-Options", "nosniff"}, {"Content-Security-Policy", redirectPagePolicy}}, more...)
	return newRedirectPage(status, []byte(text), header...)
}

// redirectPreview shows where a link leads. Who goes on does so by the link itself, so that its rules hold and the click
// counts.
func redirectPreview(code []byte, target string) *redirectPage {
	href := html.EscapeString("/" + url.PathEscape(string(code)))
	body := "<p>This short link leads to</p><p><strong>" + html.EscapeString(target) + "</strong></p><p><a rel=\"nofollow\" href=\"" + href + "\">Go there</a></p>"
	return redirectHTML(http.StatusOK, "Preview of "+string(code), body)
}

var redirectStatic = [][2]string{{"Cache-Control", "public, max-age=86400"}, {"X-Content-Type-Options", "nosniff"}}

// redirectRobots lets programs follow links: chat and feed previews ask first. redirectFavicon answers browsers that look for
// an icon: there is none.
var (
	redirectRobots = newRedirectPage(http.StatusOK, []byte("User-agent: *\nDisallow:\n"),
		append(redirectStatic[:2:2], [2]string{"Content-Type", "text/plain; charset=utf-8"})...)
	redirectFavicon = newRedirectPage(http.StatusNoContent, nil, redirectStatic[:2:2]...)
)

// show makes a page the reply, and returns false: the visit goes no further.
func (v *redirectVisit) show(page *redirectPage) bool {
	v.reply = redirectReply{page: page}
	return false
}

func (v *redirectVisit) refuse(status int) bool { return v.show(redirectPages[status]) }
