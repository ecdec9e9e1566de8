package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"golang.org/x/net/netutil"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/gateway/proxyproto"
)

// redirectMaxStreams is how many requests one HTTP/2 connection may have under way.
const redirectMaxStreams = 100

// ServeTLS answers visitors over TLS on a listener, in HTTP/2 or HTTP/1.1, until Shutdown, or until the listener fails. It
// takes over the listener. The configuration says whose certificates there are.
func (r *Redirect) ServeTLS(ln net.Listener, config *tls.Config) error {
	return r.run(r.newStandardServer(config), ln)
}

// redirectStandardServer is the standard library's, for what needs TLS.
type redirectStandardServer struct {
	http.Server
	redirect *Redirect
}

func (r *Redirect) newStandardServer(config *tls.Config) *redirectStandardServer {
	d := &r.deps
	s := &redirectStandardServer{redirect: r}
	s.Server = http.Server{Handler: http.HandlerFunc(r.serveStandard), TLSConfig: config, MaxHeaderBytes: http1.MaxHead,
		ReadTimeout: d.ReadTimeout, WriteTimeout: d.ReadTimeout + d.WriteTimeout, IdleTimeout: d.IdleTimeout,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: redirectMaxStreams},
		ErrorLog: slog.NewLogLogger(d.Logger.Handler(), slog.LevelDebug)} // mostly visitors who hang up
	return s
}

func (s *redirectStandardServer) Serve(ln net.Listener) error {
	d := &s.redirect.deps
	ln = netutil.LimitListener(ln, d.MaxConnections)
	if len(d.Proxies) > 0 {
		ln = proxyproto.NewListener(ln, d.Proxies, d.ReadTimeout)
	}
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(ln, "", "")
	} else {
		err = s.Server.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *redirectStandardServer) Shutdown(ctx context.Context) error {
	if err := s.Server.Shutdown(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// serveStandard answers a request of net/http.
func (r *Redirect) serveStandard(w http.ResponseWriter, request *http.Request) {
	v := r.visits.Get().(*redirectVisit)
	q := redirectRequestOf(request)
	peer, _ := netip.ParseAddrPort(request.RemoteAddr)
	v.request, v.peer, v.mayWait = q, peer.Addr().Unmap().WithZone(""), true
	if status := redirectSkipBody(request); status != 0 && (q.Method != http1.Other || status == http.StatusBadRequest) {
		w.Header().Set("Connection", "close")
		v.refuse(status)
	} else {
		r.answerSafely(v)
	}
	redirectWrite(w, &v.reply)
	v.request, v.lists, v.link, v.reply = nil, nil, nil, redirectReply{}
	r.visits.Put(v)
}

// redirectRequestOf brings a request of net/http into our form.
func redirectRequestOf(request *http.Request) *http1.Request {
	h := request.Header
	q := &http1.Request{Target: []byte(request.RequestURI), Host: []byte(request.Host), UserAgent: []byte(request.UserAgent()), Referer: []byte(request.Referer()),
		Accept: []byte(h.Get("Accept")), AcceptLanguage: []byte(h.Get("Accept-Language")), SecPurpose: []byte(h.Get("Sec-Purpose")), Purpose: []byte(h.Get("Purpose"))}
	switch request.Method {
	case http.MethodGet:
		q.Method = http1.Get
	case http.MethodHead:
		q.Method = http1.Head
	}
	for _, line := range h["X-Forwarded-For"] {
		q.ForwardedFor = append(q.ForwardedFor, []byte(line))
	}
	for _, line := range h["Forwarded"] {
		q.Forwarded = append(q.Forwarded, []byte(line))
	}
	return q
}

// redirectSkipBody throws a small body away, so that the connection can be used again. Not 0: with which status the request
// is refused. A client that waits for a 100 is told the outcome instead.
func redirectSkipBody(request *http.Request) int {
	switch {
	case request.ContentLength > http1.MaxBody:
		return http.StatusRequestEntityTooLarge
	case request.ContentLength == 0, request.Header.Get("Expect") != "":
		return 0
	}
	n, err := io.Copy(io.Discard, io.LimitReader(request.Body, http1.MaxBody+1))
	switch {
	case err != nil:
		return http.StatusBadRequest
	case n > http1.MaxBody:
		return http.StatusRequestEntityTooLarge
	}
	return 0
}

// redirectWrite writes a reply; Date and what HTTP says about the connection are added by net/http.
func redirectWrite(w http.ResponseWriter, a *redirectReply) {
	h := w.Header()
	if a.page != nil {
		for _, line := range a.page.header {
			h.Set(line[0], line[1])
		}
		w.WriteHeader(a.page.status)
		_, _ = w.Write(a.page.body) // without effect where there may be none: HEAD, 204
		return
	}
	h.Set("Location", string(a.location))
	h.Set("Content-Length", "0")
	if a.fresh > 0 {
		h.Set("Cache-Control", string(a.appendCacheControl(nil)))
	} else {
		h.Set("Cache-Control", redirectNever)
		h.Set("Pragma", "no-cache")
		h.Set("Expires", "0")
	}
	w.WriteHeader(a.status)
}
