package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

// This file is the way of one request, whatever listener it came in by, in the order in which things happen.

// redirectVisit is one request on its way: what came, what was found, and the answer. It is used again.
type redirectVisit struct {
	request *http1.Request
	peer    netip.Addr // who connects
	mayWait bool       // for the disk

	visitor      netip.Addr // that the header of our proxies names
	visitorKnown bool       // it was read

	lists     *commands.Lists // nil: none
	namespace string
	target    redirectTarget
	code      []byte
	preview   bool
	link      *redirects.Record
	uncached  bool // what is answered may not be kept, whatever the link says
	nowUS     int64
	reply     redirectReply

	decoded, key, location []byte // memory of the above
}

// answer brings a visit to its reply. False: it would have had to wait, and must be tried again by somebody who may.
func (r *Redirect) answer(v *redirectVisit) (done bool) {
	v.nowUS = r.deps.Clock()
	v.visitorKnown = false
	v.lists = r.deps.Gate.Lists()
	// Each step lets the visit pass, or says no and leaves the reply. What a link's own policies decide belongs into decide.
	if !r.admit(v) || r.denied(v) {
		return true
	}
	switch r.find(v) {
	case redirectMustWait:
		return false
	case redirectFound:
		if !r.untold(v) && r.decide(v) {
			r.record(v)
		}
	}
	return true
}

// admit lets pass what may be asked: GET or HEAD of a code on a host of ours.
func (r *Redirect) admit(v *redirectVisit) (ok bool) {
	if v.request.Method == http1.Other {
		return v.refuse(http.StatusMethodNotAllowed)
	}
	if v.target, ok = splitRedirectTarget(v.request.Target, v.request.Host); !ok {
		return v.refuse(http.StatusNotFound)
	}
	if v.namespace, ok = r.resolve(v.target.host); !ok {
		if !r.incomplete(v) {
			v.refuse(http.StatusNotFound)
		}
		return false
	}
	switch string(v.target.path) {
	case "/robots.txt":
		return v.show(redirectRobots)
	case "/favicon.ico":
		return v.show(redirectFavicon)
	}
	if v.decoded, ok = events.DecodePathCode(v.decoded[:0], v.target.path); !ok {
		return v.refuse(http.StatusNotFound)
	}
	v.code = v.decoded
	return true
}

// redirectFind is how a look-up ended.
type redirectFind uint8

const (
	redirectFound redirectFind = iota
	redirectMissed
	redirectMustWait
)

// find looks the code up: in memory, and on the disk where the visit may wait for it. A code with '+' at its end that no link
// has asks for the preview of the code without it.
func (r *Redirect) find(v *redirectVisit) redirectFind {
	state, err := r.lookup(v)
	v.preview = false
	if last := len(v.code) - 1; state == redirects.Unknown && last > 0 && v.code[last] == '+' {
		v.preview, v.code = true, v.code[:last]
		if r.denied(v) {
			return redirectMissed
		}
		state, err = r.lookup(v)
	}
	switch {
	case errors.Is(err, errRedirectRefused):
		return redirectMissed
	case err != nil:
		r.complain(err)
		v.refuse(http.StatusServiceUnavailable)
		return redirectMissed
	case state == redirects.NeedsStore:
		return redirectMustWait
	case state == redirects.Unknown:
		r.unknown(v)
		return redirectMissed
	}
	return redirectFound
}

// errRedirectRefused: the reply is there already.
var errRedirectRefused = errors.New("refused")

// lookup asks memory, and the store where the visit may wait for it.
func (r *Redirect) lookup(v *redirectVisit) (state redirects.State, err error) {
	v.makeKey()
	if v.link, state = r.deps.Store.Find(v.key); state != redirects.NeedsStore {
		return state, nil
	}
	if r.unasked(v) {
		return state, errRedirectRefused
	}
	if !v.mayWait {
		return state, nil
	}
	v.link, err = r.deps.Store.Load(v.key)
	switch {
	case err != nil:
		return redirects.NeedsStore, err
	case v.link == nil:
		return redirects.Unknown, nil
	}
	return redirects.Hit, nil
}

// makeKey makes the route key of the namespace and code: events.AppendRouteKey.
func (v *redirectVisit) makeKey() {
	v.key = append(append(append(v.key[:0], v.namespace...), 0), v.code...)
}

// incomplete refuses a visit of what may exist though this node does not know it, and reports whether it is one.
func (r *Redirect) incomplete(v *redirectVisit) bool {
	why := r.deps.Complete.reason()
	if why == nil {
		return false
	}
	r.complain(why)
	v.refuse(http.StatusServiceUnavailable)
	return true
}

// missing answers where no link is in use at a code: by its page, or by sending the visitor to where the domain says. That is
// no click.
func (r *Redirect) missing(v *redirectVisit) bool {
	to := r.deps.Domains.NotFoundURL(v.namespace)
	if to == "" || v.preview || !deny.Target(v.lists, to, v.nowUS).Serves() {
		return v.refuse(http.StatusNotFound)
	}
	return r.send(v, to)
}

// decide makes the reply to a visit of a link. True: it is a redirect.
func (r *Redirect) decide(v *redirectVisit) (ok bool) {
	link := v.link
	if r.deniedTarget(v) {
		return false
	}
	switch link.AnswerAt(v.nowUS) {
	case readmodels.Serve:
	case readmodels.Gone:
		return r.gone(v)
	case readmodels.Forbidden:
		return v.refuse(http.StatusForbidden)
	case readmodels.Legal:
		return v.refuse(http.StatusUnavailableForLegalReasons)
	default:
		return r.missing(v)
	}
	if r.distrusted(v) {
		return false
	}
	if v.preview {
		return v.show(redirectPreview(redirectLanguageOf(v.request.AcceptLanguage), v.code, link.Target(), link.ExpiresUS()))
	}
	if v.location, ok = readmodels.AppendLocation(v.location[:0], link.Target(), pb.QueryPolicy(link.Query), v.target.query); !ok {
		return v.refuse(http.StatusNotFound)
	}
	if r.unfit(v) {
		return false
	}
	v.reply = redirectReply{status: int(link.Status), location: v.location}
	if !v.uncached && link.CacheTTL() > 0 {
		v.reply.fresh, v.reply.stale = redirectCacheTimes(link, v.lists.Until(v.key, link.Owner, link.Target(), v.nowUS), v.nowUS)
	}
	return true
}

// gone answers where a link is no longer in use: by its page, or by sending the visitor to where the link says. That is no click.
func (r *Redirect) gone(v *redirectVisit) bool {
	to := v.link.ExpiredURL()
	if to == "" || v.preview {
		return v.say(redirectGoneBy(v.link))
	}
	if r.turnAway(v, deny.Target(v.lists, to, v.nowUS)) || r.distrusted(v) {
		return false
	}
	return r.send(v, to)
}

// send sends a visitor elsewhere than where a link leads, for this time only.
func (r *Redirect) send(v *redirectVisit, to string) bool {
	v.location = append(v.location[:0], to...)
	if !r.unfit(v) {
		v.reply = redirectReply{status: http.StatusFound, location: v.location}
	}
	return false
}

// errRedirectTarget: a stored URL that no decider lets through, so the store is not what it must be.
var errRedirectTarget = errors.New("the stored URL does not fit a header")

// unfit refuses a visit whose location does not fit a header.
func (r *Redirect) unfit(v *redirectVisit) bool {
	if redirectFitsHeader(v.location) {
		return false
	}
	r.complain(fmt.Errorf("%q: %w", v.key, errRedirectTarget))
	v.refuse(http.StatusInternalServerError)
	return true
}

// redirectGoneBy is the page of a link that answers 410.
func redirectGoneBy(link *redirects.Record) *redirectTranslations {
	switch {
	case link.Flags&redirects.Deleted != 0:
		return redirectRefusals[http.StatusGone]
	case link.Flags&redirects.Disabled != 0:
		return redirectDisabled
	}
	return redirectExpired
}

// record counts the visit. Who asks with HEAD only looks.
func (r *Redirect) record(v *redirectVisit) {
	q := v.request
	if q.Method == http1.Head {
		return
	}
	r.deps.Recorder.Record(&Click{
		LinkID: v.link.LinkID, Version: v.link.Version, TimeUS: v.nowUS, Status: v.reply.status,
		Namespace: v.namespace, Code: v.code, UserAgent: q.UserAgent, Referrer: q.Referer,
		Query: v.target.query, Address: r.visitorAddress(v), Prefetch: redirectIsPrefetch(q),
	})
}
