package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const redirectWarmUp = time.Second

// side is a server under load.
type side struct {
	into   *RedirectServer
	addr   string
	cpu    cpuMeter
	visits *visitSource
	busy   bool // the log and the sink get as many clicks as hoplog's would make
	half   bool // it is loaded at half load too
}

func (cfg *RedirectConfig) rounds(ctx context.Context, t *target, links *linkSet, result *RedirectResult) (err error) {
	visits := newVisitSource(links.domain, links.codes)
	beside, why, err := startNginx(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	result.Without = why
	// Hoplog comes first: its rate is what the others' half load and clicks are measured by.
	result.Hoplog.Name = "hoplog"
	sides := []side{{into: &result.Hoplog, addr: t.redirect, cpu: t.cpu, visits: visits, half: true}}
	if beside != nil {
		defer func() { _ = beside.stop() }() // its data is gone with it
		result.Nginx, result.NginxBusy = &RedirectServer{Name: "nginx return 302"}, &RedirectServer{Name: "nginx beside log and sink"}
		sides = append(sides, side{into: result.Nginx, addr: beside.addr, cpu: beside.cpu, visits: visits, half: true},
			side{into: result.NginxBusy, addr: beside.addr, cpu: beside.cpu, visits: visits, busy: true, half: true})
	}
	result.Beside = make([]RedirectServer, len(cfg.Beside))
	for i, p := range cfg.Beside {
		result.Beside[i].Name = p.Name
		sides = append(sides, side{into: &result.Beside[i], addr: p.Addr, cpu: cpuOfPID(p.PID), visits: p.source()})
	}
	clicks, err := newClicker(ctx, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clicks.close()) }()
	if err := cfg.warm(ctx, &sides[0]); err != nil {
		return err
	}
	for round := range cfg.Rounds {
		for _, s := range sides {
			if err := cfg.round(ctx, t, fmt.Sprintf("round %d of %d: %s", round+1, cfg.Rounds, s.into.Name), &s, clicks, &result.Hoplog); err != nil {
				return err
			}
		}
	}
	for _, s := range sides {
		s.into.sum()
	}
	result.compare()
	return nil
}

// warm asks for each draw once, so that the rounds meet a node that has run for a while: what is measured is not how its memory
// fills. A round draws again where the one before ended.
func (cfg *RedirectConfig) warm(ctx context.Context, s *side) error {
	const slice, most = 2 * time.Second, 3 * time.Minute
	l := load{addr: s.addr, connections: cfg.Connections, during: slice, source: s.visits}
	for began, asked := time.Now(), 0; asked < len(s.visits.drawn) && time.Since(began) < most; {
		cfg.Progress.tell("warming the node up", int64(asked), int64(len(s.visits.drawn)))
		done, err := l.run(ctx)
		if err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
		asked += done.requests
	}
	return nil
}

// round loads a server as far as it goes and then, at a fixed rate, with half of what hoplog took.
func (cfg *RedirectConfig) round(ctx context.Context, t *target, step string, s *side, clicks *clicker, hoplog *RedirectServer) error {
	full, err := cfg.drive(ctx, t, step, s, 0, clicks, hoplog)
	if err != nil {
		return err
	}
	s.into.Rounds = append(s.into.Rounds, full)
	if !s.half {
		return nil
	}
	half, err := cfg.drive(ctx, t, step+", half load", s, hoplog.Rounds[0].PerSecond/2, clicks, hoplog)
	if err != nil {
		return err
	}
	s.into.Halves = append(s.into.Halves, half)
	return nil
}

// drive loads a server after a warm-up that is not measured.
func (cfg *RedirectConfig) drive(ctx context.Context, t *target, step string, s *side, rate float64, clicks *clicker, hoplog *RedirectServer) (r RedirectRound, err error) {
	if err := t.settle(ctx, cfg.Progress); err != nil {
		return r, err
	}
	if s.busy {
		perSecond := rate
		if rate == 0 {
			perSecond = hoplog.Rounds[len(hoplog.Rounds)-1].PerSecond
		}
		defer clicks.start(perSecond)()
	}
	l := load{addr: s.addr, connections: cfg.Connections, during: redirectWarmUp, rate: rate, source: s.visits}
	if _, err := l.run(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", step, err)
	}
	l.during = cfg.During
	l.tell = func(since time.Duration) { cfg.Progress.tell(step, int64(since.Seconds()), int64(l.during.Seconds())) }
	before, err := s.cpu(ctx)
	if err != nil {
		return r, err
	}
	own := cpuOfSelf()
	done, err := l.run(ctx)
	if err != nil {
		return r, fmt.Errorf("%s: %w", step, err)
	}
	own = cpuOfSelf() - own
	after, err := s.cpu(ctx)
	if err != nil {
		return r, err
	}
	if done.wrong > 0 {
		return r, fmt.Errorf("%w: %s: %d of %d requests, the first: %s", ErrWrong, step, done.wrong, done.requests, done.problem)
	}
	requests := float64(done.requests)
	return RedirectRound{PerSecond: done.perSecond(), CPU: per(us(after-before), requests),
		P50MS: ms(done.latency.Quantile(0.5)), P99MS: ms(done.latency.Quantile(0.99)), MaxMS: ms(done.latency.Max()),
		LoadCPU: per(us(own), requests), Latencies: done.latency.Bins()}, nil
}

// sum takes the medians over the rounds.
func (s *RedirectServer) sum() {
	all := mediansOf(s.Rounds)
	s.PerSecond, s.CPU, s.P50MS, s.P99MS = all.PerSecond, all.CPU, all.P50MS, all.P99MS
	if len(s.Halves) > 0 {
		half := mediansOf(s.Halves)
		s.Half = &half
	}
}

func mediansOf(rounds []RedirectRound) RedirectHalf {
	return RedirectHalf{
		PerSecond: medianOf(rounds, func(r RedirectRound) float64 { return r.PerSecond }),
		CPU:       medianOf(rounds, func(r RedirectRound) float64 { return r.CPU }),
		P50MS:     medianOf(rounds, func(r RedirectRound) float64 { return r.P50MS }),
		P99MS:     medianOf(rounds, func(r RedirectRound) float64 { return r.P99MS }),
	}
}

func (r *RedirectResult) compare() {
	if r.Nginx == nil {
		return
	}
	r.Ratios = RedirectRatios{
		CPU:            per(r.Hoplog.CPU, r.Nginx.CPU),
		Throughput:     per(r.Hoplog.PerSecond, r.Nginx.PerSecond),
		ThroughputBusy: per(r.Hoplog.PerSecond, r.NginxBusy.PerSecond),
		HalfP99:        per(r.Hoplog.Half.P99MS, r.Nginx.Half.P99MS),
		HalfP99Busy:    per(r.Hoplog.Half.P99MS, r.NginxBusy.Half.P99MS),
	}
	if r.Hoplog.CPU > 0 {
		r.Floors = append(r.Floors, atMost("CPU per redirect, times nginx", floorRedirect, r.Ratios.CPU))
	}
}

const (
	// settledShare of a core is what a process uses that has caught up; settleWithin bounds the wait for it.
	settledShare = 0.05
	settleWithin = 2 * time.Minute
	settlePoll   = 500 * time.Millisecond
)

// settle waits until the process with the log and the sink has worked off what the load before left it.
func (t *target) settle(ctx context.Context, progress Progress) error {
	if t.own == nil {
		return nil
	}
	progress.tell("waiting for the log and the sink to catch up", 0, 0)
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
	for began := time.Now(); err == nil && time.Since(began) < settleWithin; {
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
		var now time.Duration
		if now, err = used(); err == nil && float64(now-last) < settledShare*float64(settlePoll) {
			return nil
		}
		last = now
	}
	return err
}
