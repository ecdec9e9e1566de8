package app

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How long a change takes to the caches is measured where it arrives: from the writer's stamp, which lies before the answer to
// the change, to the moment when visitors are served by it, or the CDN has confirmed its purge. Two clocks are compared, the
// writer's and that of the process that measures: what they differ by is in the figure, so keep them together (NTP), well
// within the bound. A change "before" its stamp counts as at once.

// setPropagation is how soon redirect nodes follow, and the first part of what writes promise.
const setPropagation = "propagation"

// nodeBound is the time within which a redirect node that reaches the log follows a change.
func (s settings) nodeBound() time.Duration { return s.GetDuration(setPropagation) }

// purgeBound is the time within which a CDN has forgotten a change, if there is one: it is asked when the nodes follow.
func (s settings) purgeBound() time.Duration {
	return s.nodeBound() + s.GetDuration("purge-within")
}

// propagationBound is what a write promises: the time to the last cache.
func (s settings) propagationBound() time.Duration {
	if s.GetString(setPurgeURL) != "" {
		return s.purgeBound()
	}
	return s.nodeBound()
}

func (s settings) checkPropagation() error {
	if s.nodeBound() < time.Millisecond || s.GetDuration("purge-within") < 0 || s.purgeBound() > time.Hour {
		return usagef("%s and purge-within: want 1 ms to 1 h together", setPropagation)
	}
	return nil
}

// propagation is how long changes took to one kind of cache.
type propagation struct {
	cache string
	bound time.Duration
	took  prometheus.Histogram
	late  prometheus.Counter

	mu      sync.Mutex // guards what follows
	minutes [propagationMinutes]propagationMinute
}

const propagationMinutes = 10

// propagationMinute is what was measured in a minute since 1970.
type propagationMinute struct {
	minute int64
	count  uint64
	late   uint64
	worst  time.Duration
}

// newPropagation makes the measure of a cache with its metrics.
func (n *node) newPropagation(cache string, bound time.Duration) *propagation {
	labels := prometheus.Labels{"cache": cache}
	p := &propagation{cache: cache, bound: bound,
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hoplog_propagation_seconds", ConstLabels: labels,
			Help:    "From the stamp of a change to where this process's cache follows it; of a redirect node, the oldest change of each commit.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 120, 900}}),
		late: prometheus.NewCounter(prometheus.CounterOpts{Name: "hoplog_propagation_late_total", ConstLabels: labels,
			Help: "Measurements of hoplog_propagation_seconds above the bound."})}
	promised := prometheus.NewGauge(prometheus.GaugeOpts{Name: "hoplog_propagation_bound_seconds", ConstLabels: labels, Help: "What writes promise of this cache."})
	promised.Set(bound.Seconds())
	n.registry.MustRegister(p.took, p.late, promised)
	n.parts.propagation = append(n.parts.propagation, p)
	return p
}

// observe takes one measurement.
func (p *propagation) observe(took time.Duration, now time.Time) {
	took = max(0, took)
	p.took.Observe(took.Seconds())
	isLate := took > p.bound
	if isLate {
		p.late.Inc()
	}
	minute := now.Unix() / 60
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.minutes[minute%propagationMinutes]
	if m.minute != minute {
		*m = propagationMinute{minute: minute}
	}
	m.count++
	m.worst = max(m.worst, took)
	if isLate {
		m.late++
	}
}

// propagationStatus is what was measured in the last ten minutes.
type propagationStatus struct {
	Cache   string `json:"cache"`
	BoundMS int64  `json:"bound_ms"`
	WorstMS int64  `json:"worst_ms"`
	Count   uint64 `json:"count"`
	Late    uint64 `json:"late"`
}

func (p *propagation) status(now time.Time) propagationStatus {
	s := propagationStatus{Cache: p.cache, BoundMS: p.bound.Milliseconds()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.minutes {
		if m.minute > now.Unix()/60-propagationMinutes {
			s.Count, s.Late, s.WorstMS = s.Count+m.count, s.Late+m.late, max(s.WorstMS, m.worst.Milliseconds())
		}
	}
	return s
}

func (s propagationStatus) String() string {
	return fmt.Sprintf("within %d ms promised\tlast ten minutes: %d measured, %d late, worst %d ms", s.BoundMS, s.Count, s.Late, s.WorstMS)
}

// followed measures a projection from when it has been at the log's end: before, it reads what is old.
type followed struct {
	measure  *propagation
	caughtUp atomic.Pointer[atomic.Bool]
}

func (f *followed) observe(stampUS int64) {
	if at := f.caughtUp.Load(); at != nil && at.Load() {
		now := time.Now()
		f.measure.observe(now.Sub(time.UnixMicro(stampUS)), now)
	}
}
