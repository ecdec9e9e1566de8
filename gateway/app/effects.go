package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway/effects"
	"github.com/hoplog/hoplog/readmodels/control"
)

// Settings of the CDN's purge. They are the same on api processes, which promise what effects processes keep.
const (
	setPurgeURL  = "purge-url"
	setPurgeBody = "purge-body"
)

// hasEffects reports whether anything is configured that an effects process would do.
func (s settings) hasEffects() bool {
	return s.GetString(setPurgeURL) != "" || s.GetString(setRedis) != ""
}

// startEffects follows the links and carries their changes to the caches outside.
func (n *node) startEffects(context.Context) error {
	if !n.hasEffects() {
		return usagef("the role %s has nothing to do: name the CDN's purge address with --%s, or the Redis that nodes share with --%s", roleEffects, setPurgeURL, setRedis)
	}
	fold, err := openStore(n, "effects", func() (*effects.Fold, error) {
		return effects.OpenFold(effects.FoldConfig{Dir: n.dir("effects"), Source: n.source, Pebble: n.pebble()})
	})
	if err != nil {
		return fmt.Errorf("opening effects: %w", err)
	}
	n.onClose("effects", fold.Close)
	caughtUp := &atomic.Bool{}
	n.work("effects fold", func(ctx context.Context) error {
		if err := toEnd(ctx, fold.Runner); err != nil {
			return err
		}
		caughtUp.Store(true)
		return fold.Run(ctx)
	})
	handlers, sweeper, err := n.effectHandlers(fold)
	if err != nil {
		return err
	}
	measures := map[string]*propagation{}
	for _, h := range handlers {
		if h.Bound > 0 {
			measures[h.Name] = n.newPropagation(h.Name, h.Bound)
		}
	}
	role, err := effects.New(effects.Config{Log: n.log, Fold: fold, Logger: n.logger, Handlers: handlers, GiveUp: n.GetDuration("purge-give-up"),
		Observe: func(handler string, took, _ time.Duration) {
			if m := measures[handler]; m != nil {
				m.observe(took, time.Now())
			}
		}})
	if err != nil {
		return err
	}
	n.parts.effects = &effectsPart{role: role, fold: fold, sweeper: sweeper, control: n.control, log: n.log, ends: n.ends, dead: -1}
	n.onStop("effects handlers", role.Close)
	n.work("effects", role.Run)
	n.work("dead letters", func(ctx context.Context) error { effects.DeadLetters(n.log).Keep(ctx, n.logger); return nil })
	n.work("effects positions", n.parts.effects.watch)
	n.registry.MustRegister(effectsCollector{n.parts.effects})
	n.health.add(roleEffects, func() roleHealth { return n.parts.effects.health(caughtUp) })
	return nil
}

// effectHandlers are the handlers that are configured. What they hold is closed after the role. The sweeper is nil without a CDN.
func (n *node) effectHandlers(fold *effects.Fold) (list []effects.Handler, sweeper *effects.Sweeper, err error) {
	if n.GetString(setPurgeURL) != "" {
		purger, err := effects.NewPurger(n.purge())
		if err != nil {
			return nil, nil, usageError{err}
		}
		n.onClose("purge requests", func() error { purger.Close(); return nil })
		purge := purger.Handler(n.purgeBound())
		sweeper = effects.NewSweeper(effects.SweepConfig{Log: n.log, Fold: fold, Control: n.control, For: purge.Name, Settle: n.nodeBound()})
		n.onClose("sweeps for lists", sweeper.Close)
		list = append(list, purge, sweeper.Handler())
	}
	tier, err := n.sharedTier()
	if err != nil {
		return nil, nil, err
	}
	if tier != nil {
		list = append(list, effects.SharedTier(fold, n.nodeBound(), tier.Put))
	}
	return list, sweeper, nil
}

func (n *node) purge() effects.PurgeConfig {
	return effects.PurgeConfig{
		Request: effects.PurgeRequest{Method: n.GetString("purge-method"), URL: n.GetString(setPurgeURL), Body: n.GetString(setPurgeBody),
			Headers: slices.DeleteFunc(strings.Split(n.GetString("purge-headers"), "\n"), func(s string) bool { return strings.TrimSpace(s) == "" }),
			Token:   n.GetString("purge-token"), Batch: n.GetInt("purge-batch"), Each: effects.PurgeEach(n.GetString("purge-each"))},
		Scheme: n.GetString("purge-scheme"), Timeout: n.GetDuration("purge-timeout"), Settle: n.nodeBound(), Hosts: n.hostsOf,
		Logger: n.logger,
	}
}

// hostsOf are the names under which a namespace is visited.
func (n *node) hostsOf(namespace string) []string {
	return append([]string{namespace}, n.control.Current().Resolve(namespace).GetAliases()...)
}

// effectsPart is what status, metrics and health ask of the role.
type effectsPart struct {
	role    *effects.Role
	fold    *effects.Fold
	sweeper *effects.Sweeper // nil: there is no CDN
	control *control.Store
	log     *eventlog.Log
	ends    *logEnds

	mu     sync.Mutex         // guards what follows
	lags   map[string][]int64 // records behind, by handler and partition; missing: not known
	queued map[string]int64   // records behind of what is to be done beside events, by handler; missing: not known
	dead   int64              // letters that wait to be looked after; -1: not known
}

// effectStatus is how one handler is, as JSON.
type effectStatus struct {
	Handler string  `json:"handler"`
	Done    uint64  `json:"done"`
	Failed  uint64  `json:"failed_attempts"`
	Dead    uint64  `json:"dead"`
	Lag     []int64 `json:"lag,omitempty"`
	// Queued is how much waits beside the events: links that lists concern, and letters that were put back. Missing: not known.
	Queued *int64 `json:"queued,omitempty"`
	// Sweeps is of the handler that looks for links that lists concern.
	Sweeps *effects.SweepStatus `json:"sweeps,omitempty"`
	// FailingSeconds is for how long every attempt has failed, 0: the latest succeeded, or its effect was given up.
	FailingSeconds float64 `json:"failing_seconds"`
	Error          string  `json:"error,omitempty"`
}

// beside says what waits beside events, and what was swept, "" if there is nothing to say.
func (s *effectStatus) beside() (text string) {
	if s.Queued != nil && *s.Queued > 0 {
		text = fmt.Sprintf(", %d queued", *s.Queued)
	}
	if w := s.Sweeps; w != nil && w.Read > 0 {
		text += fmt.Sprintf(", %d of %d links found by %d sweeps, the last in %.1f s", w.Found, w.Read, w.Sweeps, w.LastSeconds)
	}
	return text
}

// watch asks the brokers every second or two how far the groups are and how many dead letters wait, until ctx is done: nobody
// who looks at the process waits for them.
func (p *effectsPart) watch(ctx context.Context) error {
	tick := time.NewTicker(endsAge)
	defer tick.Stop()
	for {
		p.ask(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *effectsPart) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWait)
	defer cancel()
	lags, queued := map[string][]int64{}, map[string]int64{}
	for _, h := range p.role.Status() {
		lags[h.Handler] = p.behind(ctx, h.Handler, h.Topic)
		if behind := p.behind(ctx, h.Handler, eventlog.EffectsRetry); len(behind) > 0 {
			queued[h.Handler] = behind[0]
		}
	}
	dead, err := effects.DeadLetters(p.log).Waiting(ctx)
	if err != nil {
		dead = -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lags, p.queued, p.dead = lags, queued, dead
}

// behind returns how many records of each partition of a topic a handler has not done; nil: it is not known. A group without a
// position begins where events end, and where what waits beside them begins.
func (p *effectsPart) behind(ctx context.Context, handler, topic string) []int64 {
	at, err := p.log.GroupPositions(ctx, effects.Group(handler, topic), topic)
	if err == nil && topic == eventlog.EffectsRetry && slices.Contains(at, -1) {
		at, err = p.log.Starts(ctx, topic)
	}
	if err != nil || slices.Contains(at, -1) {
		return nil
	}
	return p.ends.behind(ctx, topic, at)
}

func (p *effectsPart) status() (list []effectStatus, dead int64) {
	p.mu.Lock()
	lags, queued, dead := p.lags, p.queued, p.dead
	p.mu.Unlock()
	for _, h := range p.role.Status() {
		s := effectStatus{Handler: h.Handler, Done: h.Done, Failed: h.Failed, Dead: h.Dead, Lag: lags[h.Handler]}
		if !h.Failing.IsZero() {
			s.FailingSeconds = time.Since(h.Failing).Seconds()
		}
		if err := errors.Join(h.Last, h.Trouble); err != nil {
			s.Error = err.Error()
		}
		if n, known := queued[h.Handler]; known {
			s.Queued = &n
		}
		if p.sweeper != nil && h.Topic == eventlog.EventsControl {
			sweeps := p.sweeper.Status()
			s.Sweeps = &sweeps
		}
		list = append(list, s)
	}
	return list, dead
}

// failsLong is for how long a handler fails before anybody needs to know.
const failsLong = 10 * time.Second

func (p *effectsPart) health(caughtUp *atomic.Bool) roleHealth {
	if err := errors.Join(p.fold.Err(), p.control.Err()); err != nil {
		return notReady(err.Error())
	}
	if !caughtUp.Load() {
		return notReady("reading the log for the first time")
	}
	for _, h := range p.role.Status() {
		if h.Last != nil && time.Since(h.Failing) > failsLong {
			return degraded(fmt.Sprintf("%s fails since %s: %v", h.Handler, h.Failing.UTC().Format(time.RFC3339), h.Last))
		}
	}
	return ready
}

// effectsCollector shows the role as metrics.
type effectsCollector struct{ part *effectsPart }

var (
	metricEffects = prometheus.NewDesc("hoplog_effects_total", "Effects of this process since the start: done, failed attempts, given up (dead).", []string{"handler", "outcome"}, nil)
	metricEffLag  = prometheus.NewDesc("hoplog_effects_lag", "Records of the log that the handler's group has not done, as of a second or two ago.", []string{"handler", "partition"}, nil)
	metricQueued  = prometheus.NewDesc("hoplog_effects_queued", "What waits for the handler beside events: links that lists concern, letters put back; as of a second or two ago.", []string{"handler"}, nil)
	metricSweeps  = prometheus.NewDesc("hoplog_effects_sweeps_total", "Readings of all links for changes of lists, trust and switches.", nil, nil)
	metricSwept   = prometheus.NewDesc("hoplog_effects_swept_links_total", "Links that sweeps looked at (read), and those of them that are purged (found).", []string{"what"}, nil)
	metricLetters = prometheus.NewDesc("hoplog_effects_dead_letters", "Dead letters that wait for somebody to look after them.", nil, nil)
)

// Describe implements prometheus.Collector.
func (effectsCollector) Describe(out chan<- *prometheus.Desc) {
	out <- metricEffects
	out <- metricEffLag
	out <- metricQueued
	out <- metricSweeps
	out <- metricSwept
	out <- metricLetters
}

// Collect implements prometheus.Collector.
func (c effectsCollector) Collect(out chan<- prometheus.Metric) {
	list, dead := c.part.status()
	for _, s := range list {
		for outcome, n := range map[string]uint64{"done": s.Done, "failed": s.Failed, "dead": s.Dead} {
			out <- prometheus.MustNewConstMetric(metricEffects, prometheus.CounterValue, float64(n), s.Handler, outcome)
		}
		for p, lag := range s.Lag {
			out <- prometheus.MustNewConstMetric(metricEffLag, prometheus.GaugeValue, float64(lag), s.Handler, fmt.Sprint(p))
		}
		if s.Queued != nil {
			out <- prometheus.MustNewConstMetric(metricQueued, prometheus.GaugeValue, float64(*s.Queued), s.Handler)
		}
		if w := s.Sweeps; w != nil {
			out <- prometheus.MustNewConstMetric(metricSweeps, prometheus.CounterValue, float64(w.Sweeps))
			out <- prometheus.MustNewConstMetric(metricSwept, prometheus.CounterValue, float64(w.Read), "read")
			out <- prometheus.MustNewConstMetric(metricSwept, prometheus.CounterValue, float64(w.Found), "found")
		}
	}
	if dead >= 0 {
		out <- prometheus.MustNewConstMetric(metricLetters, prometheus.GaugeValue, float64(dead))
	}
}
