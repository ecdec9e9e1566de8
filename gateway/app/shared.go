package app

import (
	"context"
	"errors"
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
func (n *node) share(tier *shared.Tier, store *redirects.Store, age *dataAge) {
	n.work("redirects' currency", func(ctx context.Context) error { n.watchCurrent(ctx, store, age); return nil })
	n.work("shared tier's refresh", func(ctx context.Context) error { return tier.Refresh(ctx, store.EachInMemory) })
}

const (
	currentEvery = 200 * time.Millisecond
	// currentFor is for how long after it stood at the log's end a node counts as current. The end is asked for every second.
	currentFor = 3 * time.Second
)

// watchCurrent tells the store when it was last seen at the log's end.
func (n *node) watchCurrent(ctx context.Context, store *redirects.Store, age *dataAge) {
	for going := true; going; going = sleep(ctx, currentEvery) {
		at := age.parts[0].measured.AsOf()
		if errors.Join(store.Err(), n.control.Err()) != nil || time.Since(at) > currentFor {
			at = time.Time{}
		}
		store.SetCurrent(at)
	}
}
