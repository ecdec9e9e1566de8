package gateway

import (
	"net/netip"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// denied answers a visit whose code or visitor is denied, before the link is looked up; it reports whether it did.
func (r *Redirect) denied(ctx *fasthttp.RequestCtx, lists *commands.Lists, scratch *redirectScratch, namespace string, code []byte, nowUS int64) bool {
	if !lists.DeniesCodes() && !lists.DeniesClients() {
		return false
	}
	var client netip.Addr
	if lists.DeniesClients() {
		client = r.visitorAddress(ctx)
	}
	scratch.key = events.AppendRouteKey(scratch.key[:0], []byte(namespace), code)
	return r.turnAway(ctx, deny.Visit(lists, scratch.key, client, nowUS))
}

// deniedTarget answers a visit to a link whose target is denied.
func (r *Redirect) deniedTarget(ctx *fasthttp.RequestCtx, lists *commands.Lists, entry *redirects.Entry, nowUS int64) bool {
	return r.turnAway(ctx, deny.Target(lists, entry.Record.GetTarget(), nowUS))
}

// distrusted answers a visit to a link that is not trusted far enough now.
func (r *Redirect) distrusted(ctx *fasthttp.RequestCtx, lists *commands.Lists, routeKey []byte, entry *redirects.Entry, nowUS int64) bool {
	return r.turnAway(ctx, r.deps.Gate.Trust(lists, routeKey, entry.Record.GetOwner(), nowUS))
}

func (r *Redirect) turnAway(ctx *fasthttp.RequestCtx, answer deny.Answer) bool {
	if answer == deny.Pass {
		return false
	}
	r.deps.Gate.Count(answer)
	redirectRefuse(ctx, answer.Status())
	if after := answer.RetryAfter(); after > 0 {
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(after))
	}
	return true
}
