package gateway

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/readmodels/clicks"
)

// countedClicks stands in for ClickHouse: it gives what it has and notes what it was asked.
type countedClicks struct {
	stats clicks.Stats
	err   error
	asked clicks.Query
}

func (c *countedClicks) Stats(_ context.Context, q clicks.Query) (*clicks.Stats, error) {
	c.asked = q
	return &c.stats, c.err
}

func (c *countedClicks) freshness(context.Context) (clicks.Freshness, error) {
	return clicks.Freshness{AsOf: time.Date(2026, 5, 8, 10, 0, 0, 0, time.FixedZone("", 3600)), Age: 1500 * time.Millisecond}, nil
}

func testAPIStats(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/stats"})
	stored, err := r.deps.Links.Get(link.Domain, link.Code)
	if err != nil {
		t.Fatal(err)
	}
	with := func(reader ClickStats, fresh ClickFreshness) string {
		deps := r.deps
		deps.Metrics, deps.Logger, deps.Clicks, deps.ClicksAsOf = prometheus.NewRegistry(), apiQuietLogger(), reader, fresh
		api, err := NewAPI(deps)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(api)
		t.Cleanup(server.Close)
		return server.URL
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, berlin)
	counted := &countedClicks{stats: clicks.Stats{Total: clicks.Counts{Clicks: 6, Human: 3, Bot: 2, Preview: 1}, UniqueVisitors: 2,
		Series: []clicks.Bucket{{Start: start, Counts: clicks.Counts{Clicks: 6, Human: 3, Bot: 2, Preview: 1}}, {Start: start.AddDate(0, 0, 1)}},
		By:     map[string][]clicks.Value{"country": {{Value: "DE", Clicks: 3}}, "device": {}}}}
	server := with(counted, counted.freshness)
	a := apiCall(t, server, "GET", apiPath(link, "/stats?from=2026-05-01&to=2026-05-02&interval=day&time_zone=Europe/Berlin&by=country,device&bots=true"), nil)
	const want = `{"as_of":"2026-05-08T09:00:00Z","by":{"country":[{"clicks":3,"value":"DE"}],"device":[]},"data_age_seconds":1.5,"from":"2026-05-01T00:00:00+02:00","interval":"day",` +
		`"series":[{"bot":2,"clicks":6,"human":3,"preview":1,"start":"2026-05-01T00:00:00+02:00"},{"bot":0,"clicks":0,"human":0,"preview":0,"start":"2026-05-02T00:00:00+02:00"}],` +
		`"time_zone":"Europe/Berlin","to":"2026-05-03T00:00:00+02:00","total":{"bot":2,"clicks":6,"human":3,"preview":1,"unique_visitors":2}}` + "\n"
	if a.status != 200 || string(a.body) != want {
		t.Errorf("%v\nwanted %s", a, want)
	}
	q := counted.asked
	if q.LinkID != stored.GetRef().GetLinkId() || !q.From.Equal(start) || !q.To.Equal(start.AddDate(0, 0, 2)) || q.Zone.String() != "Europe/Berlin" || !q.Bots || len(q.By) != 2 || q.Interval != clicks.Day {
		t.Errorf("asked %+v", q)
	}
	if a := apiCall(t, server, "GET", apiPath(link, "/stats"), nil); a.status != 200 || counted.asked.Zone != time.UTC || counted.asked.Interval != clicks.Day || counted.asked.Bots ||
		time.Since(counted.asked.To) > time.Minute || counted.asked.To.Sub(counted.asked.From) < 28*24*time.Hour {
		t.Errorf("asked nothing in particular: %v, %+v", a, counted.asked)
	}
	counted.err = &clicks.QueryError{Field: "interval", Detail: "too many"}
	wantProblem(t, apiCall(t, server, "GET", apiPath(link, "/stats"), nil), 400, ErrorCodeInvalidRequest, "interval")

	wantProblem(t, r.call(t, "GET", apiPath(link, "/stats"), nil), 503, ErrorCodeAnalyticsUnavailable, "")
	down, err := clicks.Open(clicks.Config{Addr: "127.0.0.1:1", Timeout: time.Second}, apiQuietLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = down.Close() })
	server = with(down, counted.freshness)
	if a := apiCall(t, server, "GET", apiPath(link, "/stats"), nil); wantProblem(t, a, 503, ErrorCodeAnalyticsUnavailable, "").Detail == "" || a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	wantProblem(t, apiCall(t, server, "GET", apiPath(link, "/stats?from=2026-01-01&interval=minute"), nil), 400, ErrorCodeInvalidRequest, "interval")
}
