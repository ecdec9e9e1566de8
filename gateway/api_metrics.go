package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

// apiMetrics counts requests by route, never by path: a path is what a caller chose.
type apiMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newAPIMetrics(to prometheus.Registerer) (*apiMetrics, error) {
	m := &apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hoplog_api_requests_total", Help: "Requests answered by the command API.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hoplog_api_request_seconds", Help: "Time from a request's header to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"method", "route"}),
	}
	return m, errors.Join(to.Register(m.requests), to.Register(m.seconds))
}

func (m *apiMetrics) seen(c *gin.Context, took time.Duration) {
	method, route := c.Request.Method, c.FullPath()
	if route == "" {
		method, route = "other", "none"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(c.Writer.Status())).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}
