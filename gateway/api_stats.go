package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a machine may have no time zones of its own

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/readmodels/clicks"
)

// ClickStats is the read model of clicks. Its errors are *clicks.QueryError, about the question, and clicks.ErrUnavailable.
type ClickStats interface {
	Stats(ctx context.Context, q clicks.Query) (*clicks.Stats, error)
}

// ClickFreshness says what an answer of ClickStats holds that is asked for afterwards.
type ClickFreshness func(ctx context.Context) (clicks.Freshness, error)

// GetLinkStats answers GET …/stats.
func (a *api) GetLinkStats(c *gin.Context, domain LinkDomain, code LinkCode, params GetLinkStatsParams) {
	query, err := statsQuery(&params, a.Now())
	if err != nil {
		a.fail(c, err)
		return
	}
	link, err := a.readable(c, domain, code, params.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	query.LinkID = link.GetRef().GetLinkId()
	stats, err := a.stats(c.Request.Context(), query)
	if err != nil {
		a.fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, stats)
}

// maxStatsBy is how many dimensions a question may name, as the API's description states it.
const maxStatsBy = 20

// statsQuery reads the parameters; what is left out ends now and reaches back as far as suits the interval.
func statsQuery(p *GetLinkStatsParams, now time.Time) (q clicks.Query, err error) {
	q = clicks.Query{Interval: clicks.Day, To: now.Truncate(time.Microsecond), By: orZero(p.By), Bots: orZero(p.Bots)}
	if p.Interval != nil {
		if q.Interval = clicks.Interval(*p.Interval); !p.Interval.Valid() {
			return q, invalid("interval", "interval must be one of minute, hour, day, week and month")
		}
	}
	if len(q.By) > maxStatsBy {
		return q, invalid("by", fmt.Sprintf("by takes at most %d dimensions", maxStatsBy))
	}
	for _, name := range q.By {
		if known := clicks.Dimensions(); !slices.Contains(known, name) {
			return q, invalid("by", "by takes "+strings.Join(known, ", "))
		}
	}
	if q.Zone, err = statsZone(orZero(p.TimeZone)); err != nil {
		return q, err
	}
	if p.To != nil {
		if q.To, err = clicks.ParseTime(*p.To, q.Zone, true); err != nil {
			return q, invalid("to", "to: "+err.Error())
		}
	}
	if p.From == nil {
		q.From = clicks.DefaultFrom(q.To, q.Interval, q.Zone)
	} else if q.From, err = clicks.ParseTime(*p.From, q.Zone, false); err != nil {
		return q, invalid("from", "from: "+err.Error()+"; in a URL, + is written %2B")
	}
	if !q.From.Before(q.To) {
		return q, invalid("from", "from must be before to")
	}
	return q, nil
}

// statsZone returns a time zone by its IANA name, "" for UTC. The zone that this server is in is not one.
func statsZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || zone == time.Local {
		return nil, invalid("time_zone", "time_zone must be the IANA name of a time zone, such as Europe/Berlin")
	}
	return zone, nil
}

func (a *api) stats(ctx context.Context, q clicks.Query) (*LinkStats, error) {
	if a.Clicks == nil {
		return nil, commands.Refuse(codeAnalyticsUnavailable, "",
			"this server runs without ClickHouse: give it one (--clickhouse), or install the embedded one with `make engine` and start again")
	}
	fresh, err := a.ClicksAsOf(ctx) // before the counts: they hold at least what it promises
	if err != nil {
		return nil, a.statsError(err)
	}
	counted, err := a.Clicks.Stats(ctx, q)
	if err != nil {
		return nil, a.statsError(err)
	}
	return showStats(q, counted, fresh), nil
}

func (a *api) statsError(err error) error {
	var wrong *clicks.QueryError
	switch {
	case errors.As(err, &wrong):
		return invalid(wrong.Field, wrong.Field+": "+wrong.Detail)
	case errors.Is(err, clicks.ErrUnavailable):
		a.logger.Warn("statistics are not available", "error", err)
		return commands.Refuse(codeAnalyticsUnavailable, "", "ClickHouse does not answer now; clicks are kept in the log and are counted when it does")
	}
	return err
}

// showStats returns the API's form of statistics; times of the question are in its zone.
func showStats(q clicks.Query, counted *clicks.Stats, fresh clicks.Freshness) *LinkStats {
	shown := &LinkStats{
		From: q.From.In(q.Zone), To: q.To.In(q.Zone), Interval: StatsInterval(q.Interval), TimeZone: q.Zone.String(),
		Total: StatsTotal{Clicks: int64(counted.Total.Clicks), Human: int64(counted.Total.Human), Bot: int64(counted.Total.Bot),
			Preview: int64(counted.Total.Preview), UniqueVisitors: int64(counted.UniqueVisitors)},
		Series: make([]StatsBucket, len(counted.Series)), By: map[string][]StatsValue{},
		AsOf: fresh.AsOf.UTC().Truncate(time.Microsecond), DataAgeSeconds: fresh.Age.Seconds(),
	}
	for i, b := range counted.Series {
		shown.Series[i] = StatsBucket{Start: b.Start.In(q.Zone), Clicks: int64(b.Clicks), Human: int64(b.Human), Bot: int64(b.Bot), Preview: int64(b.Preview)}
	}
	for name, values := range counted.By {
		list := make([]StatsValue, len(values))
		for i, v := range values {
			list[i] = StatsValue{Value: v.Value, Clicks: int64(v.Clicks)}
		}
		shown.By[name] = list
	}
	return shown
}
