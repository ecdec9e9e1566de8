package app

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
)

// sharedTier opens the process's way to the Redis that nodes share, once; nil where there is none.
func (n *node) sharedTier() (*shared.Tier, error) {
	if n.parts.shared != nil || n.GetString(setRedis) == "" {
		return n.parts.shared, nil
	}
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hoplog_shared_tier_seconds", Help: "How long Redis took, by operation; fills are batches.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14)}, []string{"op"})
	cfg := n.redis()
	cfg.Logger = n.logger
	cfg.Observe = func(op shared.Op, d time.Duration) { took.WithLabelValues(string(op)).Observe(d.Seconds()) }
	tier, err := shared.Open(cfg)
	if err != nil {
		return nil, usageError{err}
	}
	n.registry.MustRegister(took)
	n.parts.shared = tier
	n.work("shared tier", tier.Run)
	return tier, nil
}

// share lets a store give the tier what is in its memory, and ask it while the store is behind.
func (n *node) share(tier *shared.Tier, store *redirects.Store, caughtUp *atomic.Bool) {
	n.work("redirects' currency", func(ctx context.Context) error { n.watchCurrent(ctx, store, caughtUp); return nil })
	n.work("shared tier's refresh", func(ctx context.Context) error { return tier.Refresh(ctx, store.EachInMemory) })
}

const (
	currentEvery = 200 * time.Millisecond
	// currentFor is for how long a node counts as current to which the log does not say where it ends.
	currentFor = 3 * time.Second
	// currentWithin is how many records of a partition a current node may lack.
	currentWithin = 1000
)

// watchCurrent tells the store when it was last seen at the log's end.
func (n *node) watchCurrent(ctx context.Context, store *redirects.Store, caughtUp *atomic.Bool) {
	for last := (time.Time{}); ; {
		asked := time.Now().Add(-endsAge) // an answer may be as old as that
		switch near, known := n.nearEnd(ctx, store); {
		case !caughtUp.Load() || errors.Join(store.Err(), n.control.Err()) != nil || known && !near:
			last = time.Time{}
		case known:
			last = asked
		case time.Since(last) > currentFor+endsAge:
			last = time.Time{}
		}
		store.SetCurrent(last)
		if !sleep(ctx, currentEvery) {
			return
		}
	}
}

// nearEnd reports whether the store lacks no more than a few records; known is false while the log does not say.
func (n *node) nearEnd(ctx context.Context, store *redirects.Store) (near, known bool) {
	status := store.Status()
	lags := n.ends.behind(ctx, status.Topic, status.Positions)
	if len(lags) == 0 {
		return false, false
	}
	return slices.Max(lags) <= currentWithin, true
}
