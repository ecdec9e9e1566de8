package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// RedirectStore answers what is at a route key: nil when nothing is. The entry is shared and never changed. The key is
// borrowed.
type RedirectStore interface {
	Lookup(routeKey []byte) (*redirects.Entry, error)
}

// RedirectDomains knows the short domains: the namespace that a normalised host (events.NormalizeNamespace) stands for, be
// it a domain or another name of one. It is asked for every request and must not lock. The host is borrowed.
type RedirectDomains interface {
	Resolve(host []byte) (namespace string, ok bool)
}

// RedirectDeps is what the redirect data plane is made of. Zero values of the settings mean the defaults.
type RedirectDeps struct {
	Store    RedirectStore
	Domains  RedirectDomains
	Recorder *ClickRecorder
	// Gate says who must not go where; nil: everybody may.
	Gate *deny.Gate
	// Complete says why what is not found may exist; nil: always complete.
	Complete Complete
	Clock    func() int64 // microseconds since 1970; default: the system's
	Logger   *slog.Logger

	// TrustedHops is how many addresses at the end of X-Forwarded-For are those of our own proxies; the visitor's is the
	// one before them. 0: the header is ignored and the visitor is who connects. The proxy that connects is not in the
	// header itself, and not counted.
	TrustedHops    int
	MaxConnections int           // default 65,536; more are turned away with 503
	ReadTimeout    time.Duration // for a whole request; default 10 s
	WriteTimeout   time.Duration // for an answer; default 10 s
	IdleTimeout    time.Duration // between requests; default 75 s, more than load balancers keep a connection
}

const (
	redirectMaxConnections = 65_536
	redirectReadTimeout    = 10 * time.Second
	redirectWriteTimeout   = 10 * time.Second
	redirectIdleTimeout    = 75 * time.Second
	// redirectMaxHeader bounds the request line and headers together.
	redirectMaxHeader = 16 << 10
	// redirectMaxBody is how much of a body is read and thrown away to keep the connection; nothing here has a body.
	redirectMaxBody = 64 << 10
)

// Redirect is the data plane of a redirect node: it answers visitors from the redirects read model and hands what it
// answered with a redirect to the click recorder. It waits for nothing but the read model.
type Redirect struct {
	deps    RedirectDeps
	server  *fasthttp.Server
	scratch sync.Pool // of *redirectScratch
	// complained is when the last store error was logged, in microseconds.
	complained atomic.Int64

	mu       sync.Mutex
	listener *redirectListener // set by Serve
	down     bool
}

// redirectScratch is one request's working memory.
type redirectScratch struct {
	code, key, location, cache []byte
}

// NewRedirect makes a data plane. Serve starts it.
func NewRedirect(deps RedirectDeps) (*Redirect, error) {
	if deps.Store == nil || deps.Domains == nil || deps.Recorder == nil || deps.Logger == nil {
		return nil, errors.New("redirect: store, domains, recorder and logger are required")
	}
	if deps.TrustedHops < 0 {
		return nil, fmt.Errorf("redirect: %d trusted hops", deps.TrustedHops)
	}
	if deps.Clock == nil {
		deps.Clock = func() int64 { return time.Now().UnixMicro() }
	}
	deps.MaxConnections = redirectDefault(deps.MaxConnections, redirectMaxConnections)
	r := &Redirect{deps: deps}
	r.scratch.New = func() any { return &redirectScratch{} }
	r.server = &fasthttp.Server{
		Handler:                      r.handle,
		ErrorHandler:                 r.refuseRequest,
		Logger:                       redirectLogger{deps.Logger},
		Concurrency:                  deps.MaxConnections,
		ReadBufferSize:               redirectMaxHeader,
		MaxRequestBodySize:           redirectMaxBody,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true,
		LazyRequestTime:              true,
		CloseOnShutdown:              true,
	}
	return r, nil
}

func redirectDefault[T int | time.Duration](v, to T) T {
	if v <= 0 {
		return to
	}
	return v
}

// Serve answers visitors on the listener until Shutdown, or until the listener fails. It takes over the listener and may be
// called once.
func (r *Redirect) Serve(ln net.Listener) error {
	if err := r.server.Serve(r.takeListener(ln)); err != nil {
		return fmt.Errorf("serving redirects: %w", err)
	}
	return nil
}

func (r *Redirect) takeListener(ln net.Listener) *redirectListener {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener = &redirectListener{Listener: ln, timeouts: redirectTimeouts{
		request: redirectDefault(r.deps.ReadTimeout, redirectReadTimeout),
		write:   redirectDefault(r.deps.WriteTimeout, redirectWriteTimeout),
		idle:    redirectDefault(r.deps.IdleTimeout, redirectIdleTimeout),
	}}
	if r.down {
		_ = r.listener.Close()
	}
	return r.listener
}

// Shutdown takes no more connections, closes idle ones and waits for the requests under way. It may come before Serve, which
// then ends at once. The recorder stays open.
func (r *Redirect) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.down = true
	if r.listener != nil {
		_ = r.listener.Close() // the server does not know of a listener that Serve has only just been given
	}
	r.mu.Unlock()
	if err := r.server.ShutdownWithContext(ctx); err != nil {
		return fmt.Errorf("draining redirects: %w", err)
	}
	return nil
}

// redirectLogger passes on what the server complains about: mostly visitors who hang up.
type redirectLogger struct{ to *slog.Logger }

func (l redirectLogger) Printf(format string, args ...any) {
	l.to.Debug("redirect server", "message", fmt.Sprintf(format, args...))
}

// complain logs what is wrong with the store, at most once a second.
func (r *Redirect) complain(err error) {
	now := r.deps.Clock()
	last := r.complained.Load()
	if now-last >= int64(time.Second/time.Microsecond) && r.complained.CompareAndSwap(last, now) {
		r.deps.Logger.Error("a link cannot be served", "error", err)
	}
}
