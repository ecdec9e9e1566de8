package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// RedirectStore answers what is at a route key. The record is shared and never changed. The key is borrowed.
type RedirectStore interface {
	// Find answers from memory, without waiting.
	Find(routeKey []byte) (*redirects.Record, redirects.State)
	// Load answers what Find could not, and may wait for the disk. It returns nil where there is no link.
	Load(routeKey []byte) (*redirects.Record, error)
}

// RedirectDomains knows the short domains: the namespace that a normalised host (events.NormalizeNamespace) stands for, be
// it a domain or another name of one. It is asked for every request and must not lock. The host is borrowed.
type RedirectDomains interface {
	Resolve(host []byte) (namespace string, ok bool)
	// NotFoundURL returns where a domain sends visitors of codes that do not exist, "" if nowhere. It is asked for those only.
	NotFoundURL(namespace string) string
}

// RedirectDeps is what the redirect data plane is made of. Zero values of the settings mean the defaults.
type RedirectDeps struct {
	Store    RedirectStore
	Domains  RedirectDomains
	Recorder *ClickRecorder
	// Gate says who must not go where; nil: everybody may.
	Gate *deny.Gate
	// Scan refuses visits of who guesses codes; nil: everybody may.
	Scan *scan.Guard
	// Complete says why what is not found may exist; nil: always complete.
	Complete Complete
	Clock    func() int64 // microseconds since 1970; default: the system's
	Logger   *slog.Logger

	// TrustedHops is how many addresses at the end of the forwarding header are those of our own proxies; the visitor's is the
	// one before them. 0: the header is ignored and the visitor is who connects. The proxy that connects is not in the
	// header itself, and not counted.
	TrustedHops int
	// TrustedProxies are the networks of our own proxies, and are believed instead of TrustedHops: the header counts where one
	// of them connects, and the visitor's is the last address in it that is none of theirs.
	TrustedProxies []netip.Prefix
	// TrustForwarded: our proxies write Forwarded (RFC 7239). Else they write X-Forwarded-For. The other of the two is the
	// visitor's own invention.
	TrustForwarded bool
	// Proxies are the networks whose connections begin with a PROXY header, versions 1 or 2, which names the visitor.
	Proxies []netip.Prefix

	Loops          int           // event loops; default: see eventloop.Config
	Workers        int           // that look links up on the disk; default 16
	MaxConnections int           // of each listener; default 65,536; more are turned away with 503
	ReadTimeout    time.Duration // for a whole request; default 10 s
	WriteTimeout   time.Duration // for an answer; default 10 s
	IdleTimeout    time.Duration // between requests; default 75 s, more than load balancers keep a connection
}

const (
	redirectWorkers        = 16
	redirectMaxConnections = 65_536
	redirectReadTimeout    = 10 * time.Second
	redirectWriteTimeout   = 10 * time.Second
	redirectIdleTimeout    = 75 * time.Second
)

func (d RedirectDeps) withDefaults() RedirectDeps {
	if d.Clock == nil {
		d.Clock = func() int64 { return time.Now().UnixMicro() }
	}
	d.Workers = redirectDefault(d.Workers, redirectWorkers)
	d.MaxConnections = redirectDefault(d.MaxConnections, redirectMaxConnections)
	d.ReadTimeout = redirectDefault(d.ReadTimeout, redirectReadTimeout)
	d.WriteTimeout = redirectDefault(d.WriteTimeout, redirectWriteTimeout)
	d.IdleTimeout = redirectDefault(d.IdleTimeout, redirectIdleTimeout)
	return d
}

func redirectDefault[T int | time.Duration](v, to T) T {
	if v <= 0 {
		return to
	}
	return v
}

// Redirect is the data plane of a redirect node: it answers visitors from the redirects read model and hands what it
// answered with a redirect to the click recorder. It waits for nothing but the read model. The way of one request is in
// redirect_path.go.
type Redirect struct {
	deps   RedirectDeps
	visits sync.Pool // of *redirectVisit
	second atomic.Pointer[redirectSecond]
	// complained is when the last store error was logged, in microseconds.
	complained atomic.Int64
	// scanTold is when it was last logged that codes are guessed, in microseconds.
	scanTold atomic.Int64

	mu      sync.Mutex
	servers []redirectServer // under way
	down    bool
}

// redirectServer serves one listener.
type redirectServer interface {
	Serve(ln net.Listener) error
	Shutdown(ctx context.Context) error
}

// NewRedirect makes a data plane. Serve and ServeTLS start it.
func NewRedirect(deps RedirectDeps) (*Redirect, error) {
	if deps.Store == nil || deps.Domains == nil || deps.Recorder == nil || deps.Logger == nil {
		return nil, errors.New("redirect: store, domains, recorder and logger are required")
	}
	if deps.TrustedHops < 0 {
		return nil, fmt.Errorf("redirect: %d trusted hops", deps.TrustedHops)
	}
	r := &Redirect{deps: deps.withDefaults()}
	r.visits.New = func() any { return &redirectVisit{} }
	return r, nil
}

// Serve answers visitors on a TCP listener until Shutdown, or until the listener fails. It takes over the listener.
func (r *Redirect) Serve(ln net.Listener) error {
	server, err := r.newServer()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	return r.run(server, ln)
}

func (r *Redirect) run(server redirectServer, ln net.Listener) error {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return ln.Close()
	}
	r.servers = append(r.servers, server)
	r.mu.Unlock()
	if err := server.Serve(ln); err != nil {
		return fmt.Errorf("serving redirects: %w", err)
	}
	return nil
}

// Shutdown takes no more connections, closes idle ones and waits for the requests under way; those that last longer than ctx
// are cut off. It may come before Serve, which then ends at once. The recorder stays open.
func (r *Redirect) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.down = true
	servers := r.servers
	r.mu.Unlock()
	results := make(chan error)
	for _, server := range servers {
		go func() { results <- server.Shutdown(ctx) }()
	}
	var all error
	for range servers {
		all = errors.Join(all, <-results)
	}
	if all != nil {
		return fmt.Errorf("draining redirects: %w", all)
	}
	return nil
}

// complain logs what is wrong with the store, at most once a second.
func (r *Redirect) complain(err error) {
	now := r.deps.Clock()
	last := r.complained.Load()
	if now-last >= int64(time.Second/time.Microsecond) && r.complained.CompareAndSwap(last, now) {
		r.deps.Logger.Error("a link cannot be served", "error", err)
	}
}
