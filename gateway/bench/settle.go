package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

const (
	// settledShare of a core is what a process uses that has nothing left to do; quietWithin bounds the wait for that once
	// nothing waits for it: ClickHouse merges as long as it likes.
	settledShare = 0.05
	quietWithin  = 2 * time.Minute
	settlePoll   = 500 * time.Millisecond
	// stuckWithin is how long what waits may not become less.
	stuckWithin = 2 * time.Minute
)

// processStatus is what settling asks of a process.
type processStatus struct {
	Projections []struct {
		Projection string  `json:"projection"`
		Applied    int64   `json:"applied"`
		Lag        []int64 `json:"lag"`
	} `json:"projections"`
	Writers []struct {
		Behind int64 `json:"behind"`
	} `json:"writers"`
	Sink []struct {
		Partition int    `json:"partition"`
		Next      int64  `json:"next"`
		Error     string `json:"error"`
	} `json:"sink"`
}

func sumOf(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// waiting is how many records projections, writers and the click sink have still to take; clicks are where the topic ends.
func (s *processStatus) waiting(clicks []int64) (sum int64) {
	for _, p := range s.Projections {
		sum += sumOf(p.Lag)
	}
	for _, w := range s.Writers {
		sum += w.Behind
	}
	for _, p := range s.Sink {
		if p.Partition < len(clicks) {
			sum += max(0, clicks[p.Partition]-p.Next)
		}
	}
	return sum
}

// settle waits until the process with the log and the sink has worked off what the load before left it: first all that waits
// in the log, however long that takes while it becomes less, and then what ClickHouse does with it.
func (t *target) settle(ctx context.Context, progress Progress) error {
	if t.own == nil {
		return nil
	}
	log, err := eventlog.Open(eventlog.Config{Brokers: strings.Split(t.kafka, ",")}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := t.workedOff(ctx, log, progress); err != nil {
		return err
	}
	progress.tell("waiting for ClickHouse", 0, 0)
	return t.quiet(ctx)
}

func (t *target) workedOff(ctx context.Context, log *eventlog.Log, progress Progress) error {
	least, most := int64(-1), int64(0)
	for since := time.Now(); ; {
		ends, err := log.Ends(ctx, eventlog.Clicks)
		if err != nil {
			return fmt.Errorf("waiting for the click sink: %w", err)
		}
		var status processStatus
		if err := statusOf(ctx, t.admin, &status); err != nil {
			return err
		}
		left := status.waiting(ends)
		if left == 0 {
			return nil
		}
		if most = max(most, left); least < 0 || left < least {
			least, since = left, time.Now()
		}
		progress.tell("waiting for the log and the sink to catch up", most-left, most)
		if time.Since(since) > stuckWithin {
			return fmt.Errorf("%w: %d records wait beside the redirect node, no fewer for %v: %+v", ErrWrong, left, stuckWithin, status)
		}
		if err := pause(ctx, settlePoll); err != nil {
			return err
		}
	}
}

// quiet returns when the process and its ClickHouse hardly use a processor.
func (t *target) quiet(ctx context.Context) error {
	used := func() (sum time.Duration, err error) {
		for _, pid := range []int{t.own.pid(), childOf(t.own.pid())} {
			if pid == 0 {
				continue
			}
			one, err := cpuOfPID(pid)(ctx)
			if err != nil {
				return 0, err
			}
			sum += one
		}
		return sum, nil
	}
	last, err := used()
	for began := time.Now(); err == nil && time.Since(began) < quietWithin; {
		if err := pause(ctx, settlePoll); err != nil {
			return err
		}
		var now time.Duration
		if now, err = used(); err == nil && float64(now-last) < settledShare*float64(settlePoll) {
			return nil
		}
		last = now
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
