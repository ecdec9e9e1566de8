package gateway

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// handle answers one request.
func (r *Redirect) handle(ctx *fasthttp.RequestCtx) {
	defer r.recoverPanic(ctx)
	header := &ctx.Request.Header
	if !header.IsGet() && !header.IsHead() {
		redirectRefuse(ctx, fasthttp.StatusMethodNotAllowed)
		return
	}
	target, ok := splitRedirectTarget(header.RequestURI(), header.Host())
	if !ok {
		redirectRefuse(ctx, fasthttp.StatusNotFound)
		return
	}
	namespace, known := r.resolve(target.host)
	switch {
	case !known:
		r.missing(ctx)
	case string(target.path) == "/robots.txt":
		redirectRobots(ctx)
	case string(target.path) == "/favicon.ico":
		redirectFavicon(ctx)
	default:
		scratch := r.scratch.Get().(*redirectScratch)
		r.visit(ctx, scratch, namespace, target)
		r.scratch.Put(scratch)
	}
}

// visit answers a request for a code of a namespace.
func (r *Redirect) visit(ctx *fasthttp.RequestCtx, scratch *redirectScratch, namespace string, target redirectTarget) {
	code, ok := events.DecodePathCode(scratch.code[:0], target.path)
	scratch.code = code
	if !ok {
		redirectRefuse(ctx, fasthttp.StatusNotFound)
		return
	}
	now := r.deps.Clock()
	lists := r.deps.Gate.Lists()
	if r.denied(ctx, lists, scratch, namespace, code, now) {
		return
	}
	entry, err := r.lookup(scratch, namespace, code)
	preview := false
	if last := len(code) - 1; err == nil && entry == nil && last > 0 && code[last] == '+' {
		preview, code = true, code[:last]
		if r.denied(ctx, lists, scratch, namespace, code, now) {
			return
		}
		entry, err = r.lookup(scratch, namespace, code)
	}
	if err != nil {
		r.complain(err)
		redirectRefuse(ctx, fasthttp.StatusServiceUnavailable)
		return
	}
	switch answer := redirectAnswerAt(entry, now); {
	case entry == nil:
		r.missing(ctx)
	case r.deniedTarget(ctx, lists, entry, now):
	case answer != readmodels.Serve:
		redirectRefuse(ctx, redirectStatusOf(answer))
	case r.distrusted(ctx, lists, scratch.key, entry, now):
	case preview:
		redirectPreview(ctx, code, entry.Record.GetTarget())
	default:
		r.serve(ctx, scratch, redirectServed{namespace: namespace, code: code, query: target.query, entry: entry, nowUS: now})
	}
}

func (r *Redirect) lookup(scratch *redirectScratch, namespace string, code []byte) (*redirects.Entry, error) {
	scratch.key = events.AppendRouteKey(scratch.key[:0], []byte(namespace), code)
	return r.deps.Store.Lookup(scratch.key)
}

// missing answers for a host or code that this node does not know.
func (r *Redirect) missing(ctx *fasthttp.RequestCtx) {
	if why := r.deps.Complete.reason(); why != nil {
		r.complain(why)
		redirectRefuse(ctx, fasthttp.StatusServiceUnavailable)
		return
	}
	redirectRefuse(ctx, fasthttp.StatusNotFound)
}

func redirectAnswerAt(entry *redirects.Entry, nowUS int64) readmodels.Answer {
	if entry == nil {
		return readmodels.NotFound
	}
	return readmodels.AnswerAt(entry.Record, nowUS)
}

func redirectStatusOf(answer readmodels.Answer) int {
	switch answer {
	case readmodels.Gone:
		return fasthttp.StatusGone
	case readmodels.Forbidden:
		return fasthttp.StatusForbidden
	case readmodels.Legal:
		return fasthttp.StatusUnavailableForLegalReasons
	}
	return fasthttp.StatusNotFound
}

// redirectServed is an active link and who visits it how.
type redirectServed struct {
	namespace string
	code      []byte
	query     []byte
	entry     *redirects.Entry
	nowUS     int64
}

// serve sends the visitor on, and records the click unless it was a HEAD.
func (r *Redirect) serve(ctx *fasthttp.RequestCtx, scratch *redirectScratch, s redirectServed) {
	record := s.entry.Record
	location, ok := readmodels.AppendLocation(scratch.location[:0], record.GetTarget(), record.GetQuery(), s.query)
	scratch.location = location
	if !ok {
		redirectRefuse(ctx, fasthttp.StatusNotFound)
		return
	}
	if !redirectFitsHeader(location) {
		r.complain(fmt.Errorf("link %d version %d: %w", record.GetLinkId(), record.GetVersion(), errRedirectTarget))
		redirectRefuse(ctx, fasthttp.StatusInternalServerError)
		return
	}
	status := readmodels.RedirectStatus(record)
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.SetCanonical(redirectLocation, location)
	scratch.cache = redirectSetCache(&ctx.Response.Header, scratch.cache, record, s.nowUS)
	if ctx.Request.Header.IsHead() {
		ctx.Response.Header.SetContentLength(0) // as GET says it
		return
	}
	click := Click{
		LinkID: record.GetLinkId(), Version: record.GetVersion(), TimeUS: s.nowUS, Status: status,
		Namespace: s.namespace, Code: s.code, UserAgent: ctx.Request.Header.UserAgent(), Referrer: ctx.Request.Header.Referer(),
		Query: s.query, Address: r.visitorAddress(ctx), Prefetch: redirectIsPrefetch(&ctx.Request.Header),
	}
	r.deps.Recorder.Record(&click)
}

// errRedirectTarget: a stored target that no decider lets through, so the store is not what it must be.
var errRedirectTarget = errors.New("the stored target does not fit a header")

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

// refuseRequest answers what the server could not read as a request. The server closes the connection after it.
func (r *Redirect) refuseRequest(ctx *fasthttp.RequestCtx, err error) {
	redirectRefuse(ctx, redirectStatusOfError(ctx, err))
}

func redirectStatusOfError(ctx *fasthttp.RequestCtx, err error) int {
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	var chunk fasthttp.ErrBrokenChunk
	header := &ctx.Request.Header
	switch {
	case errors.As(err, &small):
		return fasthttp.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &network) && network.Timeout():
		return fasthttp.StatusRequestTimeout
	case len(header.Host()) == 0: // the headers were not understood, or have no host
		return fasthttp.StatusBadRequest
	case !header.IsGet() && !header.IsHead():
		return fasthttp.StatusMethodNotAllowed
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return fasthttp.StatusRequestEntityTooLarge
	case errors.As(err, &chunk):
		return fasthttp.StatusBadRequest
	}
	return fasthttp.StatusNotFound // a host or a path that nothing can have
}

// recoverPanic turns a bug into one bad answer instead of a dead node.
func (r *Redirect) recoverPanic(ctx *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		r.deps.Logger.Error("redirect panicked", "panic", p, "stack", string(debug.Stack()))
		ctx.Response.Reset()
		redirectRefuse(ctx, fasthttp.StatusInternalServerError)
	}
}
