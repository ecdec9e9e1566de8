package effects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PurgeConfig says how a CDN is told to purge.
type PurgeConfig struct {
	Request PurgeRequest
	Scheme  string        // of the links' URLs: https or http
	Timeout time.Duration // of one request; default 10 s
	// Settle is how long after it was read a change waits: until redirect nodes follow it. A CDN that was purged sooner might
	// fetch the old answer again, and keep it.
	Settle time.Duration
	// Gather is how long the first link of a request waits for others; default 50 ms.
	Gather time.Duration
	// Hosts returns the names under which a namespace is visited, itself among them.
	Hosts func(namespace string) []string
	// Logger hears at debug level what a CDN says beside its refusal: that may repeat secrets of the request. Default: nobody.
	Logger *slog.Logger
}

const (
	purgeTimeout     = 10 * time.Second
	purgeGather      = 50 * time.Millisecond
	purgesAtOnce     = 4
	longestRetryWait = 5 * time.Minute
	purgeAnswer      = 64 << 10 // bytes of an answer that are read, so that the connection can be used again
	purgeExcerpt     = 200      // bytes of it that are logged
)

// Purger tells a CDN what to forget. Links that come at the same time share a request.
type Purger struct {
	cfg    PurgeConfig
	form   *purgeTemplate
	client *http.Client
	slots  chan struct{} // requests under way
	life   context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	open     *purgeBatch
	notUntil time.Time // the CDN has asked for a pause until then
}

// purgeBatch is links that share a request.
type purgeBatch struct {
	links []PurgeLink
	timer *time.Timer
	done  chan struct{}
	errs  []error // by link, once done
}

// NewPurger checks the request's texts. Close ends it.
func NewPurger(cfg PurgeConfig) (*Purger, error) {
	if cfg.Request.Batch < 1 {
		return nil, errors.New("a purge request needs a batch of at least 1")
	}
	if cfg.Scheme != "http" && cfg.Scheme != "https" {
		return nil, fmt.Errorf("the scheme of purged URLs is %q: want https or http", cfg.Scheme)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	form, err := cfg.Request.parse()
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = purgeTimeout
	}
	if cfg.Gather == 0 {
		cfg.Gather = purgeGather
	}
	p := &Purger{cfg: cfg, form: form, slots: make(chan struct{}, purgesAtOnce)}
	p.life, p.stop = context.WithCancel(context.Background())
	p.client = &http.Client{
		Timeout:       cfg.Timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: purgesAtOnce, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// Handler purges the links of which a CDN may hold an answer: those that have, or ever had, a cache_ttl. All other answers, of
// every status, forbid it; and of a link that is just created there is none.
func (p *Purger) Handler(bound time.Duration) Handler {
	return Handler{Name: "purge", Wants: func(c *Change) bool { return c.Cached && !c.Created }, Do: p.Purge, Bound: bound}
}

// Close ends requests that are under way.
func (p *Purger) Close() {
	p.stop()
	p.work.Wait()
	p.client.CloseIdleConnections()
}

// Purge returns when the CDN has confirmed that it purges the link's answers.
func (p *Purger) Purge(ctx context.Context, c *Change) error {
	if err := wait(ctx, p.cfg.Settle); err != nil {
		return err
	}
	b, i := p.join(PurgeLink{Namespace: c.Namespace, Code: c.Code, Version: c.Version, URL: p.url(c.Namespace, c.Code)})
	select {
	case <-b.done:
		return b.errs[i]
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Purger) url(host, code string) string {
	return p.cfg.Scheme + "://" + host + "/" + url.PathEscape(code)
}

// join adds a link to the open batch, and sends that when it is full.
func (p *Purger) join(l PurgeLink) (b *purgeBatch, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b = p.open
	if b == nil {
		b = &purgeBatch{done: make(chan struct{})}
		p.open = b
		b.timer = time.AfterFunc(p.cfg.Gather, func() { p.flush(b) })
	}
	b.links = append(b.links, l)
	if len(b.links) >= p.form.Batch {
		b.timer.Stop()
		p.send(b)
	}
	return b, len(b.links) - 1
}

func (p *Purger) flush(b *purgeBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == b {
		p.send(b)
	}
}

// send closes the open batch and sends it in the background; the caller holds mu.
func (p *Purger) send(b *purgeBatch) {
	p.open = nil
	b.errs = make([]error, len(b.links))
	p.work.Go(func() {
		p.purge(b.links, b.errs)
		close(b.done)
	})
}

// errLinks says that an ErrPermanent may concern some of a request's links only.
var errLinks = errors.New("the request is refused as it is")

// purge sends one request for the links. If the CDN refuses them for good, each half is tried alone, so that one link that it
// does not like costs the others nothing.
func (p *Purger) purge(links []PurgeLink, errs []error) {
	err := p.request(links)
	if half := len(links) / 2; half > 0 && errors.Is(err, errLinks) {
		p.purge(links[:half], errs[:half])
		p.purge(links[half:], errs[half:])
		return
	}
	for i := range errs {
		errs[i] = err
	}
}

func (p *Purger) request(links []PurgeLink) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-p.life.Done():
		return p.life.Err()
	}
	if err := p.awaitTurn(); err != nil {
		return err
	}
	request, err := p.form.fill(links, p.urls(links))
	if err != nil {
		return fmt.Errorf("%w: %w: %w", ErrPermanent, errLinks, err)
	}
	answer, err := p.client.Do(request.WithContext(p.life))
	if err != nil {
		return p.form.hide(fmt.Errorf("asking the CDN to purge: %w", withoutURL(err)))
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, purgeAnswer)) // what does not come says nothing
	return p.judge(answer, body)
}

// judge says what an answer means. The error shows nothing of its text, which may repeat what it was asked: it goes to dead
// letters and to health.
func (p *Purger) judge(answer *http.Response, body []byte) error {
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return nil
	}
	said := strings.ToValidUTF8(string(body[:min(len(body), purgeExcerpt)]), "?")
	p.cfg.Logger.Debug("the CDN does not purge", "status", answer.StatusCode, "said", p.form.hidden(said))
	err := fmt.Errorf("the CDN answers %d", answer.StatusCode)
	switch s := answer.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden: // until somebody renews the token
		return fmt.Errorf("%w: is the token right?", err)
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		p.hold(answer.Header.Get("Retry-After"))
		return err
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s >= 500:
		return err
	case s < 400, s == http.StatusNotFound, s == http.StatusMethodNotAllowed: // wherever the links lead
		return fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	return fmt.Errorf("%w: %w: %w", ErrPermanent, errLinks, err)
}

// hold keeps all requests back as long as the CDN asks (RFC 9110, section 10.2.3), five minutes at most.
func (p *Purger) hold(retryAfter string) {
	var pause time.Duration
	if seconds, err := strconv.Atoi(strings.TrimSpace(retryAfter)); err == nil {
		pause = time.Duration(min(max(0, seconds), int(longestRetryWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(retryAfter); err == nil {
		pause = min(time.Until(at), longestRetryWait)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(pause); until.After(p.notUntil) {
		p.notUntil = until
	}
}

func (p *Purger) awaitTurn() error {
	for {
		p.mu.Lock()
		left := time.Until(p.notUntil)
		p.mu.Unlock()
		if left <= 0 {
			return p.life.Err()
		}
		if err := wait(p.life, left); err != nil {
			return err
		}
	}
}

// urls are those of the links under every name of their domain, each once: with and without the slash at the end that visitors
// may add.
func (p *Purger) urls(links []PurgeLink) []string {
	var list []string
	for _, l := range links {
		hosts := []string{l.Namespace}
		if p.cfg.Hosts != nil {
			hosts = p.cfg.Hosts(l.Namespace)
		}
		for _, host := range hosts {
			list = append(list, p.url(host, l.Code), p.url(host, l.Code)+"/")
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// wait returns after a time, or when ctx is done, with its error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
