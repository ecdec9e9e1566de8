package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
)

// adminParts is the address's own state.
type adminParts struct {
	rebuilding chan struct{} // holds a token while a rebuild is under way
}

const (
	adminHeaderTimeout = 5 * time.Second
	readyPoll          = 20 * time.Millisecond
)

// startAdmin serves health, metrics, status, profiles and rebuilds. It starts first and stops last, so that a process that
// starts or drains can be asked how it is.
func (n *node) startAdmin(context.Context) error {
	n.admin.rebuilding = make(chan struct{}, 1)
	n.registry.MustRegister(nodeCollector{n})
	ln, err := n.listen(setAdmin)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive", "version": version})
	})
	mux.HandleFunc("GET /readyz", n.health.serveReady)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, http.StatusOK, n.status(r.Context())) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /rebuild/redirects", n.rebuildRedirects)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	n.serve("admin", &http.Server{Handler: mux, ReadHeaderTimeout: adminHeaderTimeout}, ln)
	return nil
}

// statusReport is what `hoplog status` shows of a process.
type statusReport struct {
	Version     string                `json:"version"`
	State       string                `json:"state"`
	Ready       bool                  `json:"ready"`
	Roles       map[string]roleHealth `json:"roles"`
	Domain      string                `json:"domain,omitempty"`
	Control     uint64                `json:"control_position"`
	Writers     []writerStatus        `json:"writers,omitempty"`
	Projections []projectionStatus    `json:"projections,omitempty"`
	AsOf        *time.Time            `json:"as_of,omitempty"`
	DataAge     *float64              `json:"data_age_seconds,omitempty"`  // of what a redirect node or the API answers from, at most
	ListsAge    *float64              `json:"lists_age_seconds,omitempty"` // at most; missing before the first pulse
	Clicks      *gateway.ClickStatus  `json:"clicks,omitempty"`
	Scan        *scan.Status          `json:"scan,omitempty"` // who guesses codes
	Sink        []sinkStatus          `json:"sink,omitempty"`
	ClickHouse  *engineStatus         `json:"clickhouse,omitempty"`
	Shared      *shared.Status        `json:"shared_tier,omitempty"`
	Effects     []effectStatus        `json:"effects,omitempty"`
	DeadLetters int64                 `json:"dead_letters,omitempty"` // -1: the brokers do not say
	Propagation []propagationStatus   `json:"propagation,omitempty"`
	// Attention is what is off, with what to do; empty when all is well.
	Attention []advice `json:"attention"`
}

// writerStatus is how one partition's writer is. Behind is how many commands wait for it.
type writerStatus struct {
	handler.PartitionStatus
	Behind int64 `json:"behind"`
}

func (w writerStatus) name() string { return fmt.Sprintf("writer %s/%d", w.Stream, w.Partition) }

type projectionStatus struct {
	Projection string  `json:"projection"`
	Positions  []int64 `json:"positions"`
	Lag        []int64 `json:"lag,omitempty"`
	Applied    uint64  `json:"applied"`
	Voids      uint64  `json:"voids"`
	Error      string  `json:"error,omitempty"`
}

type engineStatus struct {
	Version  string `json:"version"`
	Ready    bool   `json:"ready"`
	Restarts uint64 `json:"restarts"`
}

func (n *node) status(ctx context.Context) statusReport {
	health := n.health.report()
	r := statusReport{Version: version, State: health.State, Ready: health.Ready, Roles: health.Roles, DataAge: health.DataAge}
	if n.control != nil {
		r.Control, r.Domain = n.control.Seq(), n.control.Current().DefaultDomain().GetNamespace()
	}
	if h := n.parts.handler; h != nil {
		r.Writers = n.writers(ctx)
		if state := h.Control().State(); state != nil {
			r.Control, r.Domain = state.Seq, state.DefaultDomain().GetNamespace()
		}
	}
	for _, p := range n.runners() {
		r.Projections = append(r.Projections, n.projection(ctx, p))
	}
	if f := n.parts.freshness; f != nil && !f.AsOf().IsZero() {
		asOf := f.AsOf()
		r.AsOf = &asOf
	}
	if age, known := n.listsAge(); known {
		seconds := age.Seconds()
		r.ListsAge = &seconds
	}
	if n.parts.recorder != nil {
		clicks := n.parts.recorder.Status()
		r.Clicks = &clicks
	}
	r.Scan = n.scanStatus()
	if n.parts.sink != nil {
		r.Sink = sinkOf(n.parts.sink.Status())
	}
	if e := n.parts.engine; e != nil {
		r.ClickHouse = &engineStatus{e.Version(), e.Ready(), e.Restarts()}
	}
	if n.parts.shared != nil {
		tier := n.parts.shared.Status()
		r.Shared = &tier
	}
	if n.parts.effects != nil {
		r.Effects, r.DeadLetters = n.parts.effects.status()
	}
	for _, p := range n.parts.propagation {
		r.Propagation = append(r.Propagation, p.status(time.Now()))
	}
	if r.Attention = r.attention(time.Now()); r.Attention == nil {
		r.Attention = []advice{}
	}
	return r
}

// writers are the partitions of this process's commands role, with what waits for those that it writes.
func (n *node) writers(ctx context.Context) []writerStatus {
	list := n.parts.handler.Status()
	positions := map[string][]int64{}
	for _, w := range list {
		positions[w.Stream] = append(positions[w.Stream], w.Command)
	}
	behind := map[string][]int64{
		events.StreamLink:    n.ends.behind(ctx, eventlog.CommandsLink, positions[events.StreamLink]),
		events.StreamControl: n.ends.behind(ctx, eventlog.CommandsControl, positions[events.StreamControl]),
	}
	out := make([]writerStatus, len(list))
	for i, w := range list {
		out[i].PartitionStatus = w
		if lags := behind[w.Stream]; w.Writing() && lags != nil {
			out[i].Behind = lags[w.Partition]
		}
	}
	return out
}

// runners are the projections of this process.
func (n *node) runners() (list []*runner.Runner) {
	if n.control != nil {
		list = append(list, n.control.Runner)
	}
	if n.parts.links != nil {
		list = append(list, n.parts.links.Runner)
	}
	if n.parts.redirects != nil {
		list = append(list, n.parts.redirects.Runner)
	}
	if n.parts.effects != nil {
		list = append(list, n.parts.effects.fold.Runner)
	}
	return list
}

func (n *node) projection(ctx context.Context, r *runner.Runner) projectionStatus {
	s := r.Status()
	out := projectionStatus{Projection: s.Projection, Positions: s.Positions, Applied: s.Applied, Voids: s.Voids, Lag: n.ends.behind(ctx, s.Topic, s.Positions)}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

// rebuildLine is one line of a rebuild's answer: progress, and at the end the report or an error.
type rebuildLine struct {
	Done   int64          `json:"done"`
	Total  int64          `json:"total"`
	Report *runner.Report `json:"report,omitempty"`
	Error  string         `json:"error,omitempty"`
}

// rebuildRedirects builds the redirects again and answers with a line of JSON per step.
func (n *node) rebuildRedirects(w http.ResponseWriter, r *http.Request) {
	if n.parts.redirects == nil {
		writeJSON(w, http.StatusConflict, rebuildLine{Error: "this process has no redirects to rebuild: ask one with the role redirect"})
		return
	}
	select {
	case n.admin.rebuilding <- struct{}{}:
		defer func() { <-n.admin.rebuilding }()
	default:
		writeJSON(w, http.StatusConflict, rebuildLine{Error: "a rebuild is under way already"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, control := json.NewEncoder(w), http.NewResponseController(w)
	var last time.Time
	report, err := n.parts.redirects.Rebuild(r.Context(), func(done, total int64) {
		if time.Since(last) > rebuildTick || done == total {
			last = time.Now()
			_ = lines.Encode(rebuildLine{Done: done, Total: total}) // who does not listen ends r's context
			_ = control.Flush()
		}
	})
	end := rebuildLine{Report: report}
	if err != nil {
		n.logger.Error("rebuilding redirects failed", "error", err)
		end.Error = err.Error()
	}
	_ = lines.Encode(end)
}

const rebuildTick = 200 * time.Millisecond
