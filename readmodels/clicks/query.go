package clicks

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Interval is the length of a bucket of a series.
type Interval string

// Intervals. Days, weeks (from Monday) and months are those of the query's time zone.
const (
	Minute Interval = "minute"
	Hour   Interval = "hour"
	Day    Interval = "day"
	Week   Interval = "week"
	Month  Interval = "month"
)

// MaxBuckets is how many buckets a series may have.
const MaxBuckets = 10_000

// maxValues is how many values a breakdown names, the most clicked first.
const maxValues = 1000

// Query asks for one link's clicks.
//
// What counts: Clicks = Human + Bot + Preview, always. Probes (our own checks) never count. A breakdown counts human
// clicks, or with Bots human, bot and preview clicks.
type Query struct {
	LinkID   uint64
	From, To time.Time // From ≤ click < To; parts of buckets at both ends are counted as parts
	Interval Interval
	Zone     *time.Location // where buckets begin; nil: UTC
	By       []string       // dimensions to break the total down by, see Dimensions
	Bots     bool
}

// Counts are clicks by class.
type Counts struct {
	Clicks, Human, Bot, Preview uint64
}

func (c *Counts) add(human, bot, preview uint64) {
	c.Human, c.Bot, c.Preview = c.Human+human, c.Bot+bot, c.Preview+preview
	c.Clicks += human + bot + preview
}

// Bucket is one step of a series.
type Bucket struct {
	Start time.Time // in the query's zone; the first may begin before Query.From
	Counts
}

// Value is one line of a breakdown. "" stands for unknown or absent.
type Value struct {
	Value  string
	Clicks uint64
}

// Stats answers a Query.
type Stats struct {
	Total Counts
	// UniqueVisitors is exact: the distinct visitors of human clicks, a visitor once per day of UTC, because the salt of
	// the hashes changes daily.
	UniqueVisitors uint64
	Series         []Bucket           // without holes, oldest first
	By             map[string][]Value // most clicks first, at most 1000 values each
}

// dimensions maps the names of the API to columns.
var dimensions = map[string]string{
	"referrer": "referrer_host", "country": "country", "region": "region_code", "device": "device", "os": "os", "browser": "browser",
	"utm_source": "utm_source", "utm_medium": "utm_medium", "utm_campaign": "utm_campaign", "utm_term": "utm_term",
	"utm_content": "utm_content", "channel": "channel", "version": "version", "status": "status", "class": "class",
}

// Dimensions are the names that Query.By may hold, sorted.
func Dimensions() []string {
	names := make([]string, 0, len(dimensions))
	for name := range dimensions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// check returns the starts of the buckets, or a *QueryError.
func (q *Query) check() ([]time.Time, error) {
	if q.Zone == nil {
		q.Zone = time.UTC
	}
	if !q.From.Before(q.To) {
		return nil, &QueryError{"from", "it is not before to"}
	}
	if q.From.Year() < 1970 || q.To.Year() > 2100 {
		return nil, &QueryError{"from", "the range leaves the years 1970 to 2100"}
	}
	for _, name := range q.By {
		if dimensions[name] == "" {
			return nil, &QueryError{"by", fmt.Sprintf("unknown dimension %.40q, known are %s", name, strings.Join(Dimensions(), ", "))}
		}
	}
	return buckets(q.From.In(q.Zone), q.To, q.Interval)
}

// ParseTime reads a bound of a range: a time (RFC 3339), or a date, which means the beginning of that day in the zone or,
// as the end of a range, of the day after it: the end day is included.
func ParseTime(s string, zone *time.Location, end bool) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is neither a time like 2026-01-31T12:00:00Z nor a date like 2026-01-31", s)
	}
	if end {
		t = t.AddDate(0, 0, 1)
	}
	return startOfDay(t.Year(), t.Month(), t.Day(), zone), nil
}

// DefaultFrom is where a range begins that has an end and no beginning: so that it has a readable number of buckets, the last
// of which holds the end.
func DefaultFrom(to time.Time, interval Interval, zone *time.Location) time.Time {
	last := to.Add(-time.Nanosecond).In(zone)
	switch interval {
	case Minute:
		return bucketStart(last, Minute).Add(-59 * time.Minute)
	case Hour:
		return bucketStart(last, Hour).Add(-47 * time.Hour)
	case Week:
		return startOfDay(last.Year(), last.Month(), last.Day()-weekday(last)-7*25, zone)
	case Month:
		return startOfDay(last.Year(), last.Month()-11, 1, zone)
	default:
		return startOfDay(last.Year(), last.Month(), last.Day()-29, zone)
	}
}
