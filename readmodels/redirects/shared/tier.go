package shared

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/hoplog/hoplog/readmodels/redirects"
)

// Tier is the shared tier. It works while Run runs.
type Tier struct {
	cfg     Config
	options rueidis.ClientOption
	client  atomic.Pointer[rueidis.Client] // nil before the first connection
	breaker *breaker
	asks    chan struct{} // a place for each question under way
	offers  chan offer    // of visits: lost where there is no room
	hot     chan offer    // of Refresh: these wait
	// connection is the number that Redis gives it; of probe.
	connection int64

	counts  counts
	refusal atomic.Pointer[string] // what Redis said last to a write that it did not do
}

var _ redirects.Shared = (*Tier)(nil)

// counts are figures since the start; see Status.
type counts struct {
	hits, misses, unusable, skipped, crowded, failed atomic.Uint64
	written, same, newer, late, full, dropped, lost  atomic.Uint64
}

// Open makes a tier from its settings. It does not connect: Redis may be away.
func Open(cfg Config) (*Tier, error) {
	cfg.fillIn()
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return &Tier{cfg: cfg, options: options, breaker: newBreaker(), asks: make(chan struct{}, cfg.Asks),
		offers: make(chan offer, offersWaiting), hot: make(chan offer)}, nil
}

// Run connects, writes what was offered, and probes where Redis does not answer, until ctx is done. Then it closes the
// connections.
func (t *Tier) Run(ctx context.Context) error {
	filling := make(chan struct{})
	go func() { defer close(filling); t.fill(ctx) }()
	t.probe(ctx)
	<-filling
	if client := t.client.Swap(nil); client != nil {
		(*client).Close()
	}
	return nil
}

const (
	probeFirst = 250 * time.Millisecond
	probeMost  = 4 * time.Second
	beatEvery  = time.Second
	watchEvery = 100 * time.Millisecond
)

// probe is the only one who asks while the breaker is open. While it is closed, probe looks whether Redis lives: nodes that are
// current may ask nothing for long, and must learn that it lost its memory.
func (t *Tier) probe(ctx context.Context) {
	for wait := probeFirst; ; {
		next := beatEvery
		if !t.attempt(ctx) {
			next = wait/2 + rand.N(wait/2)
			wait = min(2*wait, probeMost)
		} else {
			wait = probeFirst
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// attempt asks once, and opens or closes the breaker by what comes of it.
func (t *Tier) attempt(ctx context.Context) (closed bool) {
	if t.breaker.closed.Load() {
		if err := t.beat(ctx, connectWithin); err != nil && ctx.Err() == nil {
			t.opened(err, t.breaker.trip(err))
		}
		return t.breaker.closed.Load()
	}
	if err := t.try(ctx); err != nil {
		t.breaker.failed(err)
		return false
	}
	t.breaker.close()
	t.cfg.Logger.Info("the shared tier of links is there", "redis", Redacted(t.cfg.URL))
	return true
}

// try connects if need be, without haste, and then wants an answer as quick as visits do.
func (t *Tier) try(ctx context.Context) error {
	if t.client.Load() == nil {
		client, err := rueidis.NewClient(t.options)
		if err != nil {
			return fmt.Errorf("connecting to Redis: %w", err)
		}
		t.client.Store(&client)
	}
	if err := t.beat(ctx, connectWithin); err != nil {
		return err
	}
	return t.beat(ctx, t.cfg.Timeout)
}

// beat asks for the connection's number. Another than before: it was lost, and what is there now may be another Redis, or an
// empty one. Of a cluster's many connections that cannot be told.
func (t *Tier) beat(ctx context.Context, within time.Duration) error {
	client := *t.client.Load()
	var number int64
	err := bounded(ctx, within, func(ctx context.Context) error {
		got, err := client.Do(ctx, client.B().ClientId().Build()).AsInt64()
		if err == nil {
			number = got
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("probing Redis: %w", err)
	}
	if client.Mode() != rueidis.ClientModeCluster && number != t.connection {
		t.connection = number
		t.breaker.renew()
	}
	return nil
}

// bounded returns by the bound at the latest, even where the client would wait longer for a connection or for room.
func bounded(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	done := make(chan error, 1)
	go func() { defer cancel(); done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select { // both at once
		case err := <-done:
			return err
		default:
			return ctx.Err()
		}
	}
}

// judge tells the breaker how an operation ended.
func (t *Tier) judge(err error) {
	switch {
	case err == nil:
		t.breaker.succeeded()
	case errors.Is(err, context.Canceled): // the caller's own wish
	default:
		t.opened(err, t.breaker.failed(err))
	}
}

func (t *Tier) opened(err error, now bool) {
	if now {
		t.cfg.Logger.Warn("the shared tier of links does not answer; nobody waits for it", "redis", Redacted(t.cfg.URL), "error", err)
	}
}

// key is where the record of a route key is. Values of another format lie elsewhere.
func (t *Tier) key(routeKey []byte) string { return t.cfg.Prefix + "link:" + string(routeKey) }

// life is how many milliseconds a value stays: not all that were written together go together.
func (t *Tier) life() int64 {
	ms := t.cfg.TTL.Milliseconds()
	return max(1, ms-ms/10+rand.Int64N(ms/5+1))
}

// Status is how the tier is. The figures count since the start.
type Status struct {
	URL    string    `json:"url"`
	State  string    `json:"state"` // closed: in use; open: Redis does not answer and is not asked
	Since  time.Time `json:"since"`
	Opened uint64    `json:"opened"` // how often
	Error  string    `json:"error,omitempty"`

	Hits     uint64 `json:"hits"`     // questions that found a record
	Misses   uint64 `json:"misses"`   // that found none
	Unusable uint64 `json:"unusable"` // that found what is not ours
	Failed   uint64 `json:"failed"`   // that were not answered in time
	Skipped  uint64 `json:"skipped"`  // not asked: the breaker was open
	Crowded  uint64 `json:"crowded"`  // not asked: too many under way

	Written uint64 `json:"written"`           // records that Redis took
	Same    uint64 `json:"same"`              // that it had
	Newer   uint64 `json:"newer"`             // that it had in a newer version
	Late    uint64 `json:"late"`              // fills that came too late, or whose clock disagrees with Redis's
	Full    uint64 `json:"full"`              // for which it had no room
	Dropped uint64 `json:"dropped"`           // fills that were not sent: too many, or the breaker was open
	Lost    uint64 `json:"lost"`              // writes that failed
	Refusal string `json:"refusal,omitempty"` // what Redis said to the last of them that it answered
}

// Status returns how the tier is.
func (t *Tier) Status() Status {
	b, c := t.breaker, &t.counts
	s := Status{URL: Redacted(t.cfg.URL), State: "open", Hits: c.hits.Load(), Misses: c.misses.Load(), Unusable: c.unusable.Load(), Failed: c.failed.Load(),
		Skipped: c.skipped.Load(), Crowded: c.crowded.Load(), Written: c.written.Load(), Same: c.same.Load(), Newer: c.newer.Load(), Late: c.late.Load(),
		Full: c.full.Load(), Dropped: c.dropped.Load(), Lost: c.lost.Load()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Since, s.Opened = b.since, b.opened
	if b.closed.Load() {
		s.State = "closed"
	} else if b.last != nil {
		s.Error = b.last.Error()
	}
	if why := t.refusal.Load(); why != nil {
		s.Refusal = *why
	}
	return s
}
