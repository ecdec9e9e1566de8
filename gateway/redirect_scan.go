package gateway

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/cespare/xxhash/v2"
)

// This file is where a visit meets the guard against guessing (package scan).

// redirectScanLog is how often it is logged that codes are guessed.
const redirectScanLog = time.Minute

// unknown refuses a visit of a code that does not exist.
func (r *Redirect) unknown(v *redirectVisit) bool {
	if r.incomplete(v) {
		return false // what this node may not know yet is nobody's guess
	}
	if r.deps.Scan != nil && r.limit(v, r.deps.Scan.Unknown(r.source(v), xxhash.Sum64(v.key), v.nowUS)) {
		return false
	}
	return r.missing(v)
}

// untold refuses a visit that found a link, where that would tell a guesser of it.
func (r *Redirect) untold(v *redirectVisit) bool {
	if r.deps.Scan == nil || !r.deps.Scan.Watches(v.nowUS) {
		return false
	}
	return r.limit(v, r.deps.Scan.Found(r.source(v), v.link.LinkID, v.nowUS))
}

// unasked refuses a visit whose answer lies on the disk and would not be told.
func (r *Redirect) unasked(v *redirectVisit) bool {
	if r.deps.Scan == nil || !r.deps.Scan.Watches(v.nowUS) {
		return false
	}
	return r.limit(v, r.deps.Scan.Closed(r.source(v), v.nowUS))
}

// source returns whose guesses a visit's are, the zero address if that is not known. It is never a proxy: all visitors come
// by those.
func (r *Redirect) source(v *redirectVisit) netip.Addr {
	if r.isForwarded(v) {
		return r.forwardedAddress(v)
	}
	if redirectContains(r.deps.Proxies, v.peer) {
		return netip.Addr{} // its PROXY header named nobody
	}
	return v.peer
}

// limit makes the reply to a refused visit, and reports whether it is one.
func (r *Redirect) limit(v *redirectVisit, retry time.Duration) bool {
	if retry == 0 {
		return false
	}
	page := redirectTooMany[len(redirectTooMany)-1]
	for _, p := range redirectTooMany {
		if p.after >= retry {
			page = p
			break
		}
	}
	v.say(page.page)
	r.tellOfScan(v.nowUS)
	return true
}

// tellOfScan logs that codes are guessed, once it is more than somebody who is slowed.
func (r *Redirect) tellOfScan(nowUS int64) {
	last := r.scanTold.Load()
	if nowUS-last < redirectScanLog.Microseconds() {
		return
	}
	s := r.deps.Scan.Totals(nowUS)
	if (s.Network != "" || s.Pressed) && r.scanTold.CompareAndSwap(last, nowUS) {
		r.deps.Logger.Warn("codes are being guessed", "closed_last", s.Network, "by_many", s.Pressed, "guesses", s.Guesses,
			"refused_guesses", s.RefusedGuesses, "refused_links", s.RefusedLinks)
	}
}

type redirectRetryPage struct {
	after time.Duration
	page  *redirectTranslations
}

// redirectTooMany holds a page for each of some times after which to come back; the longest is more than a guard asks for.
var redirectTooMany = func() (pages []redirectRetryPage) {
	for _, seconds := range []int{1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 300} {
		page := newRedirectRefusal(http.StatusTooManyRequests, redirectSaysGuessed, redirectRetryAfter(seconds))
		pages = append(pages, redirectRetryPage{time.Duration(seconds) * time.Second, page})
	}
	return pages
}()
