package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

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
// answer (RFC 5861): as long again. Neither reaches past the link's expiry, or past when an entry of a list ends because of which
// it is served (0: none does).
func redirectCacheTimes(link *redirects.Record, listedUntilUS, nowUS int64) (fresh, stale int64) {
	fresh = int64(link.CacheTTL())
	stale = fresh
	for _, end := range [...]int64{link.ExpiresUS(), listedUntilUS} {
		if end == 0 {
			continue
		}
		left := (end - nowUS) / 1e6
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
	head   []byte      // the same for HTTP/1.1, from the status line on
	fields [][2]string // header as HTTP/2 has it: names in lower case
}

func newRedirectPage(status int, body []byte, header ...[2]string) *redirectPage {
	if status != http.StatusNoContent { // which has no length (RFC 9110, section 8.6)
		header = append(header, [2]string{"Content-Length", strconv.Itoa(len(body))})
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	fields := make([][2]string, 0, len(header))
	for _, h := range header {
		head = fmt.Appendf(head, "%s: %s\r\n", h[0], h[1])
		fields = append(fields, [2]string{strings.ToLower(h[0]), h[1]})
	}
	return &redirectPage{status: status, header: header, body: body, head: head, fields: fields}
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

// say shows a page in the visitor's language.
func (v *redirectVisit) say(page *redirectTranslations) bool {
	return v.show(page[redirectLanguageOf(v.request.AcceptLanguage)])
}

func (v *redirectVisit) refuse(status int) bool { return v.say(redirectRefusals[status]) }
