package gateway

import (
	"net/http"
	"net/netip"

	"github.com/hoplog/hoplog/readmodels/deny"
)

// denied refuses a visit whose code or visitor is denied, before the link is looked up.
func (r *Redirect) denied(v *redirectVisit) bool {
	if !v.lists.DeniesCodes() && !v.lists.DeniesClients() {
		return false
	}
	var client netip.Addr
	if v.lists.DeniesClients() {
		client = r.visitorAddress(v)
	}
	v.makeKey()
	return r.turnAway(v, deny.Visit(v.lists, v.key, client, v.nowUS))
}

// deniedTarget refuses a visit to a link whose target is denied.
func (r *Redirect) deniedTarget(v *redirectVisit) bool {
	return r.turnAway(v, deny.Target(v.lists, v.link.Target(), v.nowUS))
}

// distrusted refuses a visit to a link that is not trusted far enough now.
func (r *Redirect) distrusted(v *redirectVisit) bool {
	return r.turnAway(v, r.deps.Gate.Trust(v.lists, v.key, v.link.Owner, v.nowUS))
}

func (r *Redirect) turnAway(v *redirectVisit, answer deny.Answer) bool {
	if v.uncached = answer == deny.Uncached; answer.Serves() {
		return false
	}
	r.deps.Gate.Count(answer)
	v.say(redirectTurnedAway[answer])
	return true
}

// redirectTurnedAway holds the page of every answer of the lists. Of those with 503, each says when to come back.
var redirectTurnedAway = map[deny.Answer]*redirectTranslations{
	deny.Forbidden: redirectRefusals[http.StatusForbidden],
	deny.Legal:     redirectRefusals[http.StatusUnavailableForLegalReasons],
	deny.Closed:    newRedirectRefusal(http.StatusServiceUnavailable, redirectSaysClosed, redirectRetryAfter(deny.Closed.RetryAfter())),
	deny.Stale:     newRedirectRefusal(http.StatusServiceUnavailable, redirectSaysStale, redirectRetryAfter(deny.Stale.RetryAfter())),
}
