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
	purgesAtOnce     = 4 // for changes of links
	sweepsAtOnce     = 2 // beside them, for links that lists concern: there may be a million
	longestRetryWait = 5 * time.Minute
	purgeAnswer      = 64 << 10 // bytes of an answer that are read, so that the connection can be used again
	purgeExcerpt     = 200      // bytes of it that are logged
)

// Purger tells a CDN what to forget. Links that come at the same time share a request.
type Purger struct {
	cfg         PurgeConfig
	form        *purgeTemplate
	client      *http.Client
	own, listed purgeLane
	life        context.Context
	stop        context.CancelFunc
	work        sync.WaitGroup

	mu       sync.Mutex // guards what follows, and what lanes say
	notUntil time.Time  // the CDN has asked for a pause until then
}

// NewPurger checks the request's texts. Close ends it.
func NewPurger(cfg PurgeConfig) (*Purger, error) {
	switch cfg.Request.Each {
	case EachBatch:
	case EachURL, EachPrefix:
		cfg.Request.Batch = 1
	default:
		return nil, fmt.Errorf("a purge request is made for each %q: want url or prefix, or nothing", cfg.Request.Each)
	}
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
	p := &Purger{cfg: cfg, form: form}
	p.own.slots, p.listed.slots = make(chan struct{}, purgesAtOnce), make(chan struct{}, sweepsAtOnce)
	p.life, p.stop = context.WithCancel(context.Background())
	p.client = &http.Client{
		Timeout:       cfg.Timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: purgesAtOnce + sweepsAtOnce, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10},
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
	lane := &p.listed
	if c.By == "" {
		lane = &p.own
		if err := wait(ctx, p.cfg.Settle); err != nil {
			return err
		}
	}
	b, i := p.join(lane, PurgeLink{Namespace: c.Namespace, Code: c.Code, Version: c.Version}.under(p.cfg.Scheme, c.Namespace, ""))
	select {
	case <-b.done:
		return b.errs[i]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// under returns the link as it is asked for under a name of its domain, with this at the end.
func (l PurgeLink) under(scheme, host, end string) PurgeLink {
	l.Host, l.Path = host, "/"+url.PathEscape(l.Code)+end
	l.Prefix = l.Host + l.Path
	l.URL = scheme + "://" + l.Prefix
	return l
}

// requests sends what purges the links: one request, or one for each URL or prefix of the only link.
func (p *Purger) requests(lane *purgeLane, links []PurgeLink) error {
	select {
	case lane.slots <- struct{}{}:
		defer func() { <-lane.slots }()
	case <-p.life.Done():
		return p.life.Err()
	}
	for _, data := range p.data(links) {
		if err := p.request(data); err != nil {
			return err
		}
	}
	return nil
}

func (p *Purger) request(data PurgeData) error {
	if err := p.awaitTurn(); err != nil {
		return err
	}
	request, err := p.form.fill(data)
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

// data is what requests for the links are filled from: all names of a domain, each once, and each with and without the slash
// at the end that visitors may add. A prefix needs none.
func (p *Purger) data(links []PurgeLink) (list []PurgeData) {
	all := PurgeData{Links: links}
	for _, l := range links {
		hosts := []string{l.Namespace}
		if p.cfg.Hosts != nil {
			hosts = p.cfg.Hosts(l.Namespace)
		}
		for _, host := range hosts {
			plain, slash := l.under(p.cfg.Scheme, host, ""), l.under(p.cfg.Scheme, host, "/")
			all.URLs, all.Prefixes = append(all.URLs, plain.URL, slash.URL), append(all.Prefixes, plain.Prefix)
			switch p.form.Each {
			case EachURL:
				list = append(list, plain.alone(), slash.alone())
			case EachPrefix:
				list = append(list, plain.alone())
			}
		}
	}
	if p.form.Each != EachBatch {
		return list
	}
	slices.Sort(all.URLs)
	slices.Sort(all.Prefixes)
	all.URLs, all.Prefixes = slices.Compact(all.URLs), slices.Compact(all.Prefixes)
	return []PurgeData{all}
}

// alone is what a request for this URL or prefix of a link is filled from.
func (l PurgeLink) alone() PurgeData {
	return PurgeData{Links: []PurgeLink{l}, URLs: []string{l.URL}, Prefixes: []string{l.Prefix}}
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
