package app

import (
	"context"
	"time"

	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

const (
	repairFirstPause = time.Second
	repairLongPause  = 30 * time.Second
)

// followRedirects feeds the redirects, and has them made again when their store turns out to be damaged while they are served.
func (n *node) followRedirects(store *redirects.Store) {
	hurt, mended := n.disk.hurt("redirects"), make(chan struct{}, 1)
	n.work("redirects projection", func(ctx context.Context) error {
		for {
			err := toEnd(ctx, store.Runner)
			if err == nil {
				err = store.Run(ctx)
			}
			if err == nil || !disk.IsDamage(err) {
				return err
			}
			n.logger.Error("the redirects stand still: their store is damaged", "error", err)
			notify(hurt)
			select {
			case <-mended:
			case <-ctx.Done():
				return nil
			}
		}
	})
	n.work("redirects repair", func(ctx context.Context) error {
		for {
			select {
			case <-hurt:
				// One damage is told twice: by the store, and by the fold that met it.
				if disk.IsDamage(store.Err()) || n.disk.isDamaged("redirects") {
					n.repairRedirects(ctx, store)
				}
				notify(mended)
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// repairRedirects tries until the store is made again. Meanwhile what can be read is served, and what cannot is 503.
func (n *node) repairRedirects(ctx context.Context, store *redirects.Store) {
	for pause := repairFirstPause; ctx.Err() == nil; pause = min(2*pause, repairLongPause) {
		report, err := n.repairOnce(ctx, store)
		if report != nil && store.Err() == nil {
			n.disk.repaired(n.dir("redirects"))
			n.logger.Info("a damaged store is made again from the log and switched", "store", n.dir("redirects"), "records", report.Records, "left", err)
			return
		}
		n.logger.Error("a damaged store cannot be made again yet", "store", n.dir("redirects"), "error", err)
		sleep(ctx, pause)
	}
}

// repairOnce returns the report of a store that was switched.
func (n *node) repairOnce(ctx context.Context, store *redirects.Store) (report *runner.Report, err error) {
	select {
	case n.admin.rebuilding <- struct{}{}: // one at a time, with those that an operator asks for
		defer func() { <-n.admin.rebuilding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return store.Repair(ctx, nil)
}

// notify wakes who waits, now or the next time.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
