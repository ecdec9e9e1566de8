package app

import (
	"context"
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
	metricBehind   = prometheus.NewDesc("hoplog_projection_lag", "Records of the log that are not folded yet, as of a second ago.", []string{"projection", "partition"}, nil)

	metricWriting     = prometheus.NewDesc("hoplog_writer_writing", "1 when this process writes the partition.", []string{"stream", "partition"}, nil)
	metricWriterVoid  = prometheus.NewDesc("hoplog_writer_void_total", "Void envelopes met since the start.", []string{"stream", "partition"}, nil)
	metricLives       = prometheus.NewDesc("hoplog_writer_replays_total", "Lives of the writer that began, each with a replay to the log's end.", []string{"stream", "partition"}, nil)
	metricUnconfirmed = prometheus.NewDesc("hoplog_writer_unconfirmed_total", "Appends that were not confirmed; each ends a life.", []string{"stream", "partition"}, nil)
	metricBatches     = prometheus.NewDesc("hoplog_writer_batches_total", "Confirmed appends.", []string{"stream", "partition"}, nil)
	metricDecided     = prometheus.NewDesc("hoplog_writer_commands_total", "Commands in confirmed appends; divided by the batches, the size of a batch.", []string{"stream", "partition"}, nil)
	metricWaiting     = prometheus.NewDesc("hoplog_writer_lag", "Commands that wait for the writer, as of a second ago.", []string{"stream", "partition"}, nil)
	metricMint        = prometheus.NewDesc("hoplog_mint_ids_left", "Leased ids that are not drawn yet.", []string{"partition", "space"}, nil)
	metricSegment     = prometheus.NewDesc("hoplog_mint_segment_ids", "Size of the segment in use; alarm when fewer ids than a fifth of it are left.", []string{"partition", "space"}, nil)
	metricLease       = prometheus.NewDesc("hoplog_mint_lease_failures_total", "Attempts at a lease that failed.", []string{"partition", "space"}, nil)
	metricDrawn       = prometheus.NewDesc("hoplog_mint_drawn_total", "Candidates drawn in this life.", []string{"partition"}, nil)
	metricBurnt       = prometheus.NewDesc("hoplog_mint_burnt_total", "Candidates burnt in this life.", []string{"partition"}, nil)
	metricPooled      = prometheus.NewDesc("hoplog_mint_pooled", "Candidates waiting in pools.", []string{"partition"}, nil)

	metricCache  = prometheus.NewDesc("hoplog_redirect_cache_lookups_total", "Look-ups of the map in memory.", []string{"result"}, nil)
	metricHot    = prometheus.NewDesc("hoplog_redirect_memory_links", "Links that the redirect node has in memory.", nil, nil)
	metricMemory = prometheus.NewDesc("hoplog_redirect_memory_bytes", "Bytes of the redirect node's links in memory, of the filter over all codes, and of blocks of its stores.", []string{"part"}, nil)
	metricFilter = prometheus.NewDesc("hoplog_redirect_filter_known", "Share of all codes that the filter knows; for the rest the store is asked.", nil, nil)
	metricClick  = prometheus.NewDesc("hoplog_clicks_total", "Clicks of this node.", []string{"state"}, nil)
	metricSpool  = prometheus.NewDesc("hoplog_click_spool_bytes", "Bytes of the click spool: of blocks that the log does not have yet, and in all.", []string{"part"}, nil)
	metricOnDisk = prometheus.NewDesc("hoplog_click_spool_durable", "1 when clicks wait in a file, 0 when they wait in memory.", nil, nil)
	metricDeny   = prometheus.NewDesc("hoplog_redirect_denied_total", "Visitors who were turned away by lists and switches.", []string{"answer"}, nil)
	metricPulse  = prometheus.NewDesc("hoplog_lists_age_seconds", "How old this node's lists can be at most.", nil, nil)
	metricShared = prometheus.NewDesc("hoplog_redirect_shared_answers_total", "Answers of the shared tier to look-ups: newer than the node's own, or refused as older.", []string{"result"}, nil)
	metricReads  = prometheus.NewDesc("hoplog_shared_tier_reads_total", "Questions to the Redis that nodes share; of those that were skipped or found too many under way, none was sent.", []string{"result"}, nil)
	metricWrites = prometheus.NewDesc("hoplog_shared_tier_writes_total", "Links for the Redis that nodes share, by what became of them.", []string{"result"}, nil)
	metricOpen   = prometheus.NewDesc("hoplog_shared_tier_open", "1 while the Redis that nodes share does not answer and is not asked.", nil, nil)
	metricOpened = prometheus.NewDesc("hoplog_shared_tier_opened_total", "How often it stopped to answer in time.", nil, nil)
	metricAge    = prometheus.NewDesc("hoplog_data_age_seconds", "How old what this process answers from can be at most.", nil, nil)
	metricSink   = prometheus.NewDesc("hoplog_sink_clicks_total", "Clicks that the sink of a partition met, over all its writers.", []string{"partition", "state"}, nil)
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
	report := c.n.health.report()
	for role, health := range report.Roles {
		gauge(metricReady, truth(health.State != stateNot), role)
	}
	if report.DataAge != nil {
		gauge(metricAge, *report.DataAge)
	}
	for _, r := range c.n.runners() {
		s := r.Status()
		gauge(metricAlarm, truth(s.Err != nil), s.Projection)
		count(metricApplied, s.Applied, s.Projection)
		count(metricVoid, s.Voids, s.Projection)
		for p, position := range s.Positions {
			gauge(metricPosition, float64(position), s.Projection, strconv.Itoa(p))
		}
		for p, behind := range c.n.ends.behind(context.Background(), s.Topic, s.Positions) {
			gauge(metricBehind, float64(behind), s.Projection, strconv.Itoa(p))
		}
	}
	c.collectWriters(gauge, count)
	if store := c.n.parts.redirects; store != nil {
		s := store.CacheStats()
		count(metricCache, s.Hits, "hit")
		count(metricCache, s.Unknown, "unknown")
		count(metricCache, s.Misses, "miss")
		count(metricCache, s.Busy, "busy")
		gauge(metricHot, float64(s.Entries))
		gauge(metricMemory, float64(s.Bytes), "links")
		gauge(metricMemory, float64(s.FilterBytes), "filter")
		gauge(metricMemory, float64(c.n.cache.Size()), "blocks")
		gauge(metricFilter, float64(s.FilterStripes)/float64(s.AllStripes))
		count(metricShared, s.SharedNewer, "newer")
		count(metricShared, s.SharedOlder, "older")
	}
	c.n.collectVisitors(gauge, count)
	c.collectShared(gauge, count)
	if gate := c.n.parts.gate; gate != nil {
		for answer, n := range gate.Counts() {
			count(metricDeny, n, answer)
		}
		if age, known := c.n.listsAge(); known {
			gauge(metricPulse, age.Seconds())
		}
	}
	if recorder := c.n.parts.recorder; recorder != nil {
		s := recorder.Status()
		count(metricClick, s.Taken, "taken")
		count(metricClick, s.Sent, "sent")
		count(metricClick, s.Dropped, "dropped")
		count(metricClick, s.Left, "left")
		count(metricClick, s.Damaged, "damaged")
		gauge(metricSpool, float64(s.WaitingBytes), "waiting")
		gauge(metricSpool, float64(s.SpoolBytes), "all")
		gauge(metricOnDisk, truth(s.Durable))
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
	for _, w := range c.n.writers(context.Background()) {
		p := strconv.Itoa(int(w.Partition))
		gauge(metricWriting, truth(w.Writing()), w.Stream, p)
		count(metricWriterVoid, w.Voids, w.Stream, p)
		count(metricLives, w.Lives, w.Stream, p)
		count(metricUnconfirmed, w.Unconfirmed, w.Stream, p)
		count(metricBatches, w.Batches, w.Stream, p)
		count(metricDecided, w.Decided, w.Stream, p)
		gauge(metricWaiting, float64(w.Behind), w.Stream, p)
		if w.Mint == nil {
			continue
		}
		count(metricDrawn, w.Mint.Drawn, p)
		count(metricBurnt, w.Mint.Burnt, p)
		gauge(metricPooled, float64(w.Mint.Pooled), p)
		for _, s := range w.Mint.Spaces {
			space := strconv.Itoa(int(s.Space))
			gauge(metricMint, float64(s.Left), p, space)
			gauge(metricSegment, float64(s.Segment), p, space)
			count(metricLease, s.Failures, p, space)
		}
	}
}

func (c nodeCollector) collectShared(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	if c.n.parts.shared == nil {
		return
	}
	s := c.n.parts.shared.Status()
	gauge(metricOpen, truth(s.State != "closed"))
	count(metricOpened, s.Opened)
	for result, n := range map[string]uint64{"hit": s.Hits, "miss": s.Misses, "unusable": s.Unusable, "failed": s.Failed, "skipped": s.Skipped, "crowded": s.Crowded} {
		count(metricReads, n, result)
	}
	for result, n := range map[string]uint64{"written": s.Written, "same": s.Same, "newer": s.Newer, "late": s.Late, "full": s.Full, "dropped": s.Dropped, "failed": s.Lost} {
		count(metricWrites, n, result)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
