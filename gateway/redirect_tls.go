package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	"github.com/hoplog/hoplog/gateway/h2"
	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/gateway/perconn"
)

// ServeTLS answers visitors over TLS on a listener, in HTTP/2 or HTTP/1.1, until Shutdown, or until the listener fails. It
// takes over the listener. The configuration says whose certificates there are.
func (r *Redirect) ServeTLS(ln net.Listener, config *tls.Config) error {
	server, err := r.newPerConnServer(config)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	return r.run(server, ln)
}

// newPerConnServer makes what serves with a goroutine per connection: TLS, and plain HTTP/1.1 with a nil configuration.
func (r *Redirect) newPerConnServer(config *tls.Config) (*perconn.Server, error) {
	d := &r.deps
	return perconn.New(perconn.Config{Handler: r, Logger: d.Logger, MaxConnections: d.MaxConnections, RequestTimeout: d.ReadTimeout,
		WriteTimeout: d.WriteTimeout, IdleTimeout: d.IdleTimeout, Proxies: d.Proxies, TLS: config, HTTP2: redirectHTTP2{r}})
}

// redirectHTTP2 answers in HTTP/2.
type redirectHTTP2 struct{ redirect *Redirect }

// Answer implements h2.Handler.
func (h redirectHTTP2) Answer(w *h2.Writer, q *http1.Request, peer netip.Addr) {
	r := h.redirect
	v := r.visits.Get().(*redirectVisit)
	v.request, v.peer, v.mayWait = q, peer, true
	r.answerSafely(v)
	r.thisSecond(v.nowUS).writeReply(w, &v.reply)
	v.request, v.lists, v.link, v.reply = nil, nil, nil, redirectReply{}
	r.visits.Put(v)
}

// Refuse implements h2.Handler. Of what never became a request no language is known.
func (h redirectHTTP2) Refuse(w *h2.Writer, why error) {
	reply := redirectReply{page: redirectRefusals[redirectStatusOfRefusal(why)][redirectEnglish]}
	h.redirect.thisSecond(h.redirect.deps.Clock()).writeReply(w, &reply)
}

// writeReply is appendReply for HTTP/2.
func (s *redirectSecond) writeReply(w *h2.Writer, a *redirectReply) {
	if a.page != nil {
		w.Begin(a.page.status)
		w.Field("date", s.dateText)
		for _, field := range a.page.fields {
			w.Field(field[0], field[1])
		}
		w.End(a.page.body)
		return
	}
	w.Begin(a.status)
	w.Field("date", s.dateText)
	w.Field("content-length", "0")
	if a.fresh > 0 {
		w.Field("cache-control", string(a.appendCacheControl(nil)))
	} else {
		w.Field("cache-control", redirectNever)
		w.Field("pragma", "no-cache")
		w.Field("expires", "0")
	}
	w.Field("location", string(a.location))
	w.End(nil)
}
