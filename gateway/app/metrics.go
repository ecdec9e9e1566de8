package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// nodeCollector shows the parts of a process as metrics. Values are read when they are asked for.
type nodeCollector struct{ n *node }

var (
	metricReady = prometheus.NewDesc("hoplog_role_ready", "1 when the role is ready or degraded, 0 when it is not ready.", []string{"role"}, nil)
	metricAlarm = prometheus.NewDesc("hoplog_stopped", "1 when a reader or writer stopped for good.", []string{"part"}, nil)

	metricPosition = prometheus.NewDesc("hoplog_projection_position", "Next offset to fold.", []string{"projection", "partition"}, nil)
	metricApplied  = prometheus.NewDesc("hoplog_projection_envelopes_total", "Accepted envelopes folded since the start.", []string{"projection"}, nil)
	metricVoid     = prometheus.NewDesc("hoplog_projection_void_total", "Void envelopes met since the start.", []string{"projection"}, nil)

	metricWriting = prometheus.NewDesc("hoplog_writer_writing", "1 when this process writes the partition.", []string{"stream", "partition"}, nil)
	metricMint    = prometheus.NewDesc("hoplog_mint_ids_left", "Leased ids that are not drawn yet.", []string{"partition", "space"}, nil)
	metricDrawn   = prometheus.NewDesc("hoplog_mint_drawn_total", "Candidates drawn in this life.", []string{"partition"}, nil)
	metricBurnt   = prometheus.NewDesc("hoplog_mint_burnt_total", "Candidates burnt in this life.", []string{"partition"}, nil)
	metricPooled  = prometheus.NewDesc("hoplog_mint_pooled", "Candidates waiting in pools.", []string{"partition"}, nil)

	metricCache = prometheus.NewDesc("hoplog_redirect_cache_lookups_total", "Look-ups of the map in memory.", []string{"result"}, nil)
	metricClick = prometheus.NewDesc("hoplog_clicks_total", "Clicks of this node.", []string{"state"}, nil)
	metricSink  = prometheus.NewDesc("hoplog_sink_clicks_total", "Clicks that the sink of a partition met, over all its writers.", []string{"partition", "state"}, nil)
)

// Describe implements prometheus.Collector: which metrics there are depends on the roles.
func (nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for role, health := range c.n.health.report().Roles {
		gauge(metricReady, truth(health.State != stateNot), role)
	}
	for _, r := range c.n.runners() {
		s := r.Status()
		gauge(metricAlarm, truth(s.Err != nil), s.Projection)
		count(metricApplied, s.Applied, s.Projection)
		count(metricVoid, s.Voids, s.Projection)
		for p, position := range s.Positions {
			gauge(metricPosition, float64(position), s.Projection, strconv.Itoa(p))
		}
	}
	c.collectWriters(gauge, count)
	if store := c.n.parts.redirects; store != nil {
		s := store.CacheStats()
		count(metricCache, s.Hits, "hit")
		count(metricCache, s.Misses, "miss")
	}
	if recorder := c.n.parts.recorder; recorder != nil {
		s := recorder.Status()
		count(metricClick, s.Taken, "taken")
		count(metricClick, s.Sent, "sent")
		count(metricClick, s.Dropped, "dropped")
	}
	if sink := c.n.parts.sink; sink != nil {
		for _, s := range sink.Status().Partitions {
			p := strconv.Itoa(int(s.Partition))
			gauge(metricAlarm, truth(s.Stopped != nil), "sink/"+p)
			count(metricSink, s.Rows, p, "inserted")
			count(metricSink, s.Repeats, p, "repeated")
			count(metricSink, s.Gaps, p, "missing")
		}
	}
}

func (c nodeCollector) collectWriters(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	h := c.n.parts.handler
	if h == nil {
		return
	}
	gauge(metricAlarm, truth(h.Alarm() != nil), "commands")
	for _, w := range h.Status() {
		gauge(metricWriting, truth(w.Writing()), w.Stream, strconv.Itoa(int(w.Partition)))
		if w.Mint == nil {
			continue
		}
		p := strconv.Itoa(int(w.Partition))
		count(metricDrawn, w.Mint.Drawn, p)
		count(metricBurnt, w.Mint.Burnt, p)
		gauge(metricPooled, float64(w.Mint.Pooled), p)
		for _, s := range w.Mint.Spaces {
			gauge(metricMint, float64(s.Left), p, strconv.Itoa(int(s.Space)))
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
