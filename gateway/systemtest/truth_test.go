package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// reconciliation is what the tests read of `reconcile --json`.
type reconciliation struct {
	LogClicks       int `json:"log_clicks"`
	RawClicks       int `json:"raw_clicks"`
	AggregateClicks int `json:"aggregate_clicks"`
	Missing         int
	Duplicated      int
	Differences     []struct {
		Kind, Table, Detail string
		Repaired            bool
	}
}

func (p *process) reconcile(args ...string) (r reconciliation, exit int) {
	p.t.Helper()
	exit = p.cliJSON(&r, append([]string{"reconcile"}, args...)...)
	return r, exit
}

// TestReconcile takes, doubles and changes what ClickHouse holds: each is found, named and repaired, and the counts are exact
// again.
func TestReconcile(t *testing.T) {
	p := dev(t, "--partitions", "1") // a repair takes its time for each
	const visits = 40
	codes := []string{p.made(fields{"target": "https://example.com/0"}), p.made(fields{"target": "https://example.com/1"}), p.made(fields{"target": "https://example.com/2"})}
	for range visits {
		for _, code := range codes {
			p.visit("/" + code)
		}
	}
	for _, code := range codes {
		p.eventually("all clicks are counted", func() bool { return clicksOf(p, code) == visits })
	}
	total := visits * len(codes)
	exact := func(when string, r reconciliation, exit int) {
		t.Helper()
		if exit != 0 || len(r.Differences) > 0 || r.LogClicks != total || r.RawClicks != total || r.AggregateClicks != total || r.Missing != 0 || r.Duplicated != 0 {
			t.Errorf("%s: exit %d, %+v", when, exit, r)
		}
	}
	r, exit := p.reconcile()
	exact("untouched", r, exit)

	first := func(code string) string {
		return fmt.Sprintf("code = '%s' AND (log_partition, log_offset, log_index) = (SELECT min((log_partition, log_offset, log_index)) FROM hoplog.clicks_raw WHERE code = '%[1]s')", code)
	}
	for _, c := range []struct {
		what                string
		statements          []string
		missing, duplicated int
	}{
		{"a removed row", []string{"DELETE FROM hoplog.clicks_raw WHERE " + first(codes[0])}, 1, 0},
		{"rows removed, doubled and changed", []string{
			"ALTER TABLE hoplog.clicks_raw DELETE WHERE code = '" + codes[1] + "' SETTINGS mutations_sync = 1",
			"INSERT INTO hoplog.clicks_raw SELECT * FROM hoplog.clicks_raw WHERE " + first(codes[0]),
			"ALTER TABLE hoplog.clicks_raw UPDATE class = 'bot' WHERE " + first(codes[2]) + " SETTINGS mutations_sync = 1",
		}, visits, 1},
		{"aggregates removed and doubled", []string{
			"ALTER TABLE hoplog.clicks_hour DELETE WHERE link_id = (SELECT any(link_id) FROM hoplog.clicks_raw WHERE code = '" + codes[2] + "') SETTINGS mutations_sync = 1",
			"INSERT INTO hoplog.clicks_day SELECT * FROM hoplog.clicks_day LIMIT 1",
		}, 0, 0},
	} {
		for _, statement := range c.statements {
			p.sql(statement)
		}
		r, exit := p.reconcile()
		if exit != 1 || len(r.Differences) == 0 || r.Missing != c.missing || r.Duplicated != c.duplicated || r.LogClicks != total {
			t.Errorf("%s: exit %d, %+v, want exit 1, %d missing, %d duplicated", c.what, exit, r, c.missing, c.duplicated)
		}
		if code, out, _ := p.cli("reconcile"); code != 1 || !strings.Contains(out, "--repair") {
			t.Errorf("%s, for people: exit %d, %s", c.what, code, out)
		}
		if r, exit = p.reconcile("--repair"); len(r.Differences) == 0 {
			t.Errorf("%s, repair: exit %d, %+v", c.what, exit, r)
		}
		for _, d := range r.Differences {
			if !d.Repaired {
				t.Errorf("%s: not repaired: %+v", c.what, d)
			}
		}
		r, exit = p.reconcile()
		exact("after the repair of "+c.what, r, exit)
	}
	for _, code := range codes {
		if n := clicksOf(p, code); n != visits {
			t.Errorf("%s has %d clicks, want %d", code, n, visits)
		}
	}
	for range visits { // the sink goes on after all that
		p.visit("/" + codes[0])
	}
	p.eventually("new clicks are counted", func() bool { return clicksOf(p, codes[0]) == 2*visits })
}

// TestRebuildWhileServing builds the redirects again from the log while visitors come and links are edited.
func TestRebuildWhileServing(t *testing.T) {
	p := dev(t)
	const links = 2000
	codes := make([]string, 0, links)
	for range links / 1000 {
		rows := make([]fields, 1000)
		for i := range rows {
			rows[i] = fields{"target": "https://example.com/rebuild"}
		}
		_, made := rowsOf(p.api("POST", "/v1/links:batch", fields{"links": rows}))
		for _, code := range made {
			codes = append(codes, fmt.Sprint(code))
		}
	}
	for _, code := range codes { // the last one being there says nothing of those in other partitions
		p.eventually("it is served: "+code, func() bool { return p.visitAs("HEAD", "/"+code).status == http.StatusFound })
	}
	var stop atomic.Bool
	var work sync.WaitGroup
	var visits, edits atomic.Int64
	work.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if v, err := p.tryVisit("GET", "/"+codes[i*7%links]); err != nil || v.status != http.StatusFound || !strings.HasPrefix(v.header.Get("Location"), "https://example.com/rebuild") {
				t.Errorf("while rebuilding: %v %d %v", err, v.status, v.header)
				return
			}
			visits.Add(1)
		}
	})
	edited := func(i int64) string { return fmt.Sprint("https://example.com/rebuild/", i) }
	work.Go(func() {
		for !stop.Load() {
			if a, err := p.tryAPI("PATCH", p.link(codes[0]), fields{"target": edited(edits.Load() + 1)}); err != nil || a.status != http.StatusOK {
				t.Errorf("while rebuilding: %v %d %s", err, a.status, a.raw)
				return
			}
			edits.Add(1)
		}
	})
	for range 5 {
		var r struct {
			Records   int
			Buckets   int
			Differing []int
		}
		if exit := p.cliJSON(&r, "replay", "--rebuild", "redirects"); exit != 0 || r.Records < links || r.Buckets < 1000 || len(r.Differing) > 0 {
			t.Errorf("rebuild: exit %d, %+v", exit, r)
		}
	}
	stop.Store(true)
	work.Wait()
	t.Logf("%d visits and %d edits meanwhile", visits.Load(), edits.Load())
	p.eventually("the last edit is served", func() bool { return p.visit("/"+codes[0]).header.Get("Location") == edited(edits.Load()) })
	fresh := p.made(fields{"target": "https://example.com/rebuild/fresh"})
	p.kill()
	p.start()
	for _, code := range append([]string{fresh}, codes[:50]...) {
		if v := p.visit("/" + code); v.status != http.StatusFound {
			t.Errorf("after a restart %s: %d", code, v.status)
		}
	}
}

// TestReplayAsOf asks the log how a link was, by time and by position.
func TestReplayAsOf(t *testing.T) {
	p := shared(t)
	created := p.create(fields{"target": "https://example.com/as-of/1"})
	link := p.domain() + "/" + created.str("code")
	between := time.Now()
	edited := p.api("PATCH", p.link(created.str("code")), fields{"target": "https://example.com/as-of/2", "reason": "moved"})
	banned := p.api("POST", p.link(created.str("code"), "/ban"), fields{"reason": "spam"})
	if edited.status != http.StatusOK || banned.status != http.StatusOK {
		t.Fatalf("%s %s", edited.raw, banned.raw)
	}
	for moment, want := range map[string]string{
		created.header.Get("Hoplog-Position"):                              "1 https://example.com/as-of/1 active",
		between.UTC().Format(time.RFC3339Nano):                             "1 https://example.com/as-of/1 active",
		edited.header.Get("Hoplog-Position"):                               "2 https://example.com/as-of/2 active",
		banned.header.Get("Hoplog-Position"):                               "3 https://example.com/as-of/2 banned",
		time.Now().UTC().Format(time.RFC3339Nano):                          "3 https://example.com/as-of/2 banned",
		time.Now().In(time.FixedZone("", 20_700)).Format(time.RFC3339Nano): "3 https://example.com/as-of/2 banned", // +05:45
	} {
		var l struct {
			Version        int
			Target, Status string
		}
		if exit := p.cliJSON(&l, "replay", "--as-of", moment, link); exit != 0 || fmt.Sprint(l.Version, " ", l.Target, " ", l.Status) != want {
			t.Errorf("as of %s: exit %d, %+v, want %s", moment, exit, l, want)
		}
	}
	for _, moment := range []string{between.Add(-time.Hour).UTC().Format(time.RFC3339), "link/1/999999999", "yesterday", "link/x"} {
		if exit, out, errs := p.cli("replay", "--as-of", moment, link); exit == 0 || out != "" || !strings.HasPrefix(errs, "hoplog: ") {
			t.Errorf("as of %s: exit %d, %s %s", moment, exit, out, errs)
		}
	}
	var history struct {
		Events []struct {
			Version             int
			Type, Actor, Reason string
			Position, Hash      string
		}
	}
	if exit := p.cliJSON(&history, "audit", link); exit != 0 || len(history.Events) != 3 {
		t.Fatalf("audit: exit %d, %+v", exit, history)
	}
	for i, want := range []string{"link.created ", "link.updated moved", "link.banned spam"} {
		if e := history.Events[i]; e.Version != i+1 || e.Type+" "+e.Reason != want || e.Actor == "" || len(e.Hash) != 64 || e.Position == "" {
			t.Errorf("event %d: %+v, want %s", i, e, want)
		}
	}
	if api := p.api("GET", p.link(created.str("code"), "/history"), nil); !strings.Contains(api.raw, history.Events[2].Hash) {
		t.Errorf("the API tells another history: %s", api.raw)
	}
}
