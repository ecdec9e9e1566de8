package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const crawler = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"

// linkStats is what the tests read of an answer of stats.
type linkStats struct {
	From, To time.Time
	Total    struct{ Clicks, Human, Bot, Preview int }
	Series   []struct {
		Start  time.Time
		Clicks int
	}
	By       map[string][]struct{ Value string }
	AsOf     time.Time `json:"as_of"`
	TimeZone string    `json:"time_zone"`
}

func (p *process) stats(code, query string) (s linkStats) {
	p.t.Helper()
	a := p.api("GET", p.link(code, "/stats")+"?"+query, nil)
	if err := json.Unmarshal([]byte(a.raw), &s); err != nil || a.status != http.StatusOK {
		p.t.Fatalf("stats of %s: %d %s %v", code, a.status, a.raw, err)
	}
	return s
}

// settled returns the stats once they hold everything that happened before the call: clicks reach the log within a second.
func (p *process) settled(code, query string) (s linkStats) {
	p.t.Helper()
	now := time.Now()
	p.eventually("stats hold all clicks up to now", func() bool {
		s = p.stats(code, query)
		return s.AsOf.After(now.Add(time.Second))
	})
	return s
}

func TestB15BotsAndHeads(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b15"})
	for range 3 {
		p.visitAs("HEAD", "/"+code)
	}
	p.visit("/"+code, "User-Agent", crawler)
	if s := p.settled(code, ""); s.Total.Human != 0 || s.Total.Bot != 1 || s.Total.Clicks != 1 {
		t.Errorf("%+v, want no human click and one of a bot", s.Total)
	}
}

func TestB17TrustedHops(t *testing.T) {
	p := shared(t)
	trusting := p.serve(t, "redirect", "--trusted-hops", "1")
	code := p.made(fields{"target": "https://example.com/b17"})
	p.eventually("the other node serves it", func() bool { return rawVisit(t, trusting, "HEAD", "/"+code, p.domain()).status == http.StatusFound })
	const forwarded = "X-Forwarded-For: 192.0.2.7, 10.0.0.2"
	for node, want := range map[*process]string{trusting: "::ffff:192.0.2.0", p: "::ffff:127.0.0.0"} {
		ip := func() string { return p.sql("SELECT DISTINCT ip FROM hoplog.clicks_raw WHERE code = '" + code + "'") }
		before := ip()
		visitNode(t, node, p.domain(), "/"+code, forwarded)
		p.eventually("the click is counted", func() bool { return ip() != before })
		if got := ip(); !strings.Contains("\n"+got+"\n", "\n"+want+"\n") || strings.Contains(got, "192.0.2.7") {
			t.Errorf("the click is from %q, want %s", got, want)
		}
	}
}

func TestB18SevenDays(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b18"})
	p.visit("/" + code)
	p.settled(code, "")
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Kiritimati", "Asia/Kathmandu"} {
		place, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		today := time.Now().In(place)
		// The week that ends today, and one in which the clocks of Europe and of North America change.
		for _, last := range []time.Time{today, time.Date(2026, 3, 29, 12, 0, 0, 0, place), time.Date(2025, 11, 2, 12, 0, 0, 0, place)} {
			first := last.AddDate(0, 0, -6)
			query := url.Values{"from": {first.Format(time.DateOnly)}, "to": {last.Format(time.DateOnly)}, "time_zone": {zone}, "interval": {"day"}}.Encode()
			s := p.stats(code, query)
			if len(s.Series) != 7 || s.TimeZone != zone {
				t.Errorf("%s: %d buckets in %s", query, len(s.Series), s.TimeZone)
				continue
			}
			for i, bucket := range s.Series {
				day := first.AddDate(0, 0, i)
				if want := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, place); !bucket.Start.Equal(want) {
					t.Errorf("%s: bucket %d starts at %s, want %s", query, i, bucket.Start, want)
				}
			}
		}
		week := url.Values{"from": {today.AddDate(0, 0, -6).Format(time.DateOnly)}, "to": {today.Format(time.DateOnly)}, "time_zone": {zone}}.Encode()
		if s := p.stats(code, week); s.Series[6].Clicks != 1 || s.Total.Clicks != 1 {
			if now := time.Now().In(place); now.Day() == today.Day() { // not at midnight
				t.Errorf("%s: today's click is not in the last bucket: %+v", zone, s)
			}
		}
	}
}

func TestB19LongReferrer(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b19"})
	long := "https://news.example/" + strings.Repeat("a", 5000-60) + "?secret=" + strings.Repeat("b", 30)
	if v := p.visit("/"+code, "Referer", long); v.status != http.StatusFound || v.header.Get("Location") != "https://example.com/b19" {
		t.Fatalf("%d %v", v.status, v.header)
	}
	s := p.settled(code, "by=referrer")
	if by := s.By["referrer"]; len(by) != 1 || by[0].Value != "news.example" {
		t.Errorf("referrers %v", by)
	}
	if row := p.sql(fmt.Sprintf("SELECT * FROM hoplog.clicks_raw WHERE code = '%s' FORMAT JSONEachRow", code)); !strings.Contains(row, `"referrer_host":"news.example"`) || strings.Contains(row, "aaaa") || strings.Contains(row, "secret") {
		t.Errorf("the click as it is kept: %s", row)
	}
}
