package runner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RunOnce waits for records, folds what makes one commit and returns how many records it had.
func (r *Runner) RunOnce(ctx context.Context) (records int64, err error) {
	defer r.enter()()
	if err := r.start(ctx); err != nil {
		return 0, err
	}
	for {
		b, err := r.read(ctx, nil)
		if err != nil {
			return records, err
		}
		records += b.records
		if err := r.apply(b); err != nil || !r.pending.open {
			return records, err
		}
	}
}

// RunToEnd folds up to the end that the log has now.
func (r *Runner) RunToEnd(ctx context.Context) error {
	ends, err := r.cfg.Source.Ends(ctx, r.cfg.Topic)
	if err != nil {
		return fmt.Errorf("asking for the end of the log: %w", err)
	}
	return r.RunTo(ctx, ends, nil)
}

// RunTo folds exactly up to these offsets, one per partition, and not one record further. Partitions that are there
// already stay. After each batch, progress (may be nil) gets how many records this call has folded.
func (r *Runner) RunTo(ctx context.Context, ends []int64, progress func(records int64)) error {
	defer r.enter()()
	if err := r.start(ctx); err != nil {
		return err
	}
	if len(ends) != len(r.checkers) {
		return fmt.Errorf("%d offsets to run to, %s has %d partitions", len(ends), r.cfg.Topic, len(r.checkers))
	}
	return r.pump(ctx, ends, progress)
}

// Run folds until ctx is done, which is no error, or the runner stops for good. It waits for a log that is not there yet.
func (r *Runner) Run(ctx context.Context) error {
	defer r.enter()()
	for told := false; ; told = true {
		err := r.start(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !passing(err) {
			return err
		}
		if !told {
			r.cfg.Logger.Warn("projection waits for the log", "projection", r.cfg.Projection.Name(), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryPause):
		}
	}
	err := r.pump(ctx, nil, nil)
	if err != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// enter notes that a run is under way; the returned function notes its end.
func (r *Runner) enter() (leave func()) {
	if r.running.Swap(true) {
		panic("runner: two runs at a time")
	}
	return func() {
		r.noteFar(false)
		r.running.Store(false)
	}
}

// pump reads, folds and commits. The feed polls what comes next meanwhile.
func (r *Runner) pump(ctx context.Context, limit []int64, progress func(int64)) error {
	var done int64
	for {
		b, err := r.read(ctx, limit)
		if err != nil || b.records == 0 && !b.ends {
			return err
		}
		if err := r.apply(b); err != nil {
			return err
		}
		done += b.records
		if progress != nil {
			progress(done)
		}
	}
}
