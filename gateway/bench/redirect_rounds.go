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
	scene  *scene // where the clicks go; that of hoplog for others
	hoplog bool   // it is a node of the scene
	busy   bool   // the log and the sink get as many clicks as hoplog's would make
	half   bool   // it is loaded at half load too
}

func (s *scene) side(into *RedirectServer, visited int) side {
	return side{into: into, addr: s.addr, cpu: s.cpu, visits: s.links.visits(visited), scene: s, hoplog: true}
}

func (cfg *RedirectConfig) rounds(ctx context.Context, s, small *scene, result *RedirectResult) (err error) {
	beside, why, err := startNginx(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	if result.Without = why; beside != nil {
		defer func() { _ = beside.stop() }() // its data is gone with it
	}
	sides := cfg.sides(s, small, beside, result)
	clicks, err := newClicker(ctx, s.target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clicks.close()) }()
	for i := range sides {
		if sides[i].hoplog {
			if err := cfg.warm(ctx, &sides[i]); err != nil {
				return err
			}
		}
	}
	for round := range cfg.Rounds {
		for i := range sides {
			step := fmt.Sprintf("round %d of %d: %s", round+1, cfg.Rounds, sides[i].into.Name)
			if err := cfg.round(ctx, step, &sides[i], clicks, &result.Hoplog); err != nil {
				return err
			}
		}
	}
	for i := range sides {
		sides[i].into.sum()
	}
	result.compare()
	return nil
}

// sides are the servers in the order in which a round loads them. Hoplog comes first: its rate is what the others' half load and
// clicks are measured by.
func (cfg *RedirectConfig) sides(s, small *scene, beside *nginx, result *RedirectResult) []side {
	result.Hoplog.Name = "hoplog"
	all := s.side(&result.Hoplog, cfg.Visited)
	all.half = true
	sides := []side{all}
	if small != nil {
		count := small.links.count
		result.Few = &RedirectServer{Name: "hoplog, " + thousands(float64(count)) + " of its links visited"}
		result.Small = &RedirectServer{Name: "hoplog with no more than " + thousands(float64(count)) + " links"}
		sides = append(sides, s.side(result.Few, count), small.side(result.Small, count))
	}
	if beside != nil {
		result.Nginx, result.NginxBusy = &RedirectServer{Name: beside.name + " return 302"}, &RedirectServer{Name: beside.name + " beside log and sink"}
		sides = append(sides, side{into: result.Nginx, addr: beside.addr, cpu: beside.cpu, visits: all.visits, scene: s, half: true},
			side{into: result.NginxBusy, addr: beside.addr, cpu: beside.cpu, visits: all.visits, scene: s, busy: true, half: true})
	}
	result.Beside = make([]RedirectServer, len(cfg.Beside))
	for i, p := range cfg.Beside {
		result.Beside[i].Name = p.Name
		sides = append(sides, side{into: &result.Beside[i], addr: p.Addr, cpu: cpuOfPID(p.PID), visits: p.source(), scene: s})
	}
	return sides
}

// warm asks a node for each draw once, or for some minutes, so that the rounds meet a node that has run for a while: what is measured
// is not how its memory fills. A round draws on where the one before ended.
func (cfg *RedirectConfig) warm(ctx context.Context, s *side) error {
	const slice, most = 2 * time.Second, 3 * time.Minute
	l := load{addr: s.addr, connections: cfg.Connections, during: slice, source: s.visits}
	enough := len(s.visits.drawn)
	for began, asked := time.Now(), 0; asked < enough && time.Since(began) < most; {
		cfg.Progress.tell("warming the node up", int64(asked), int64(enough))
		done, err := l.run(ctx)
		if err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
		asked += done.requests
	}
	return nil
}

// round loads a server as far as it goes and then, at a fixed rate, with half of what hoplog took.
func (cfg *RedirectConfig) round(ctx context.Context, step string, s *side, clicks *clicker, hoplog *RedirectServer) error {
	full, err := cfg.drive(ctx, step, s, 0, clicks, hoplog)
	if err != nil {
		return err
	}
	s.into.Rounds = append(s.into.Rounds, full)
	if !s.half {
		return nil
	}
	half, err := cfg.drive(ctx, step+", half load", s, hoplog.Rounds[0].PerSecond/2, clicks, hoplog)
	if err != nil {
		return err
	}
	s.into.Halves = append(s.into.Halves, half)
	return nil
}

// drive loads a server after a warm-up that is not measured.
func (cfg *RedirectConfig) drive(ctx context.Context, step string, s *side, rate float64, clicks *clicker, hoplog *RedirectServer) (r RedirectRound, err error) {
	if err := s.scene.settle(ctx, cfg.Progress); err != nil {
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
	hitsBefore, err := s.lookups(ctx)
	if err != nil {
		return r, err
	}
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
	hits, err := s.lookups(ctx)
	if err != nil {
		return r, err
	}
	if done.wrong > 0 {
		return r, fmt.Errorf("%w: %s: %d of %d requests, the first: %s", ErrWrong, step, done.wrong, done.requests, done.problem)
	}
	requests := float64(done.requests)
	return RedirectRound{PerSecond: done.perSecond(), CPU: per(us(after-before), requests),
		P50MS: ms(done.latency.Quantile(0.5)), P99MS: ms(done.latency.Quantile(0.99)), MaxMS: ms(done.latency.Max()),
		Hits: hits.since(hitsBefore), LoadCPU: per(us(own), requests), Latencies: done.latency.Bins()}, nil
}

// lookups are how many look-ups of a node were answered from memory, of how many.
type lookups struct{ hits, all float64 }

// lookups asks a node of hoplog; others have none.
func (s *side) lookups(ctx context.Context) (l lookups, err error) {
	if !s.hoplog || s.scene.admin == "" {
		return l, nil
	}
	figures, err := metricsOf(ctx, s.scene.admin)
	return lookups{figures[metricHits], figures[metricHits] + figures[metricMisses]}, err
}

// since returns the share of hits since an earlier moment.
func (l lookups) since(before lookups) float64 { return per(l.hits-before.hits, l.all-before.all) }

// sum takes the medians over the rounds.
func (s *RedirectServer) sum() {
	all := mediansOf(s.Rounds)
	s.PerSecond, s.CPU, s.P50MS, s.P99MS = all.PerSecond, all.CPU, all.P50MS, all.P99MS
	s.Hits = medianOf(s.Rounds, func(r RedirectRound) float64 { return r.Hits })
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
	if r.Nginx != nil {
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
	if r.Few != nil {
		r.Ratios.Growth = per(r.Few.CPU, r.Small.CPU)
	}
}
