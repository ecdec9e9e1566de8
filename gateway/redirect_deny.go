package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

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
	v.show(redirectTurnedAway[answer])
	return true
}

// redirectTurnedAway holds the page of every answer of the lists. Of those with 503, each says when to come back.
var redirectTurnedAway = func() map[deny.Answer]*redirectPage {
	pages := map[deny.Answer]*redirectPage{deny.Forbidden: redirectPages[http.StatusForbidden], deny.Legal: redirectPages[http.StatusUnavailableForLegalReasons]}
	for _, a := range []deny.Answer{deny.Closed, deny.Stale} {
		text := redirectTexts[a.Status()]
		pages[a] = redirectHTML(a.Status(), text[0], fmt.Sprintf("<p>%s</p>", text[1]), [2]string{"Retry-After", strconv.Itoa(a.RetryAfter())})
	}
	return pages
}()
