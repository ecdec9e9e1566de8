package systemtest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// drillHold is how long each failure lasts; HOPLOG_DRILL_SECONDS makes it longer.
const drillHold = time.Second

// drillStale is the age above which the lists of the node are old: short, so that the drills are.
const drillStale = 3 * time.Second

// drill is the fleet with a second process of commands, under load.
type drill struct {
	*fleet
	t       *testing.T
	hold    time.Duration
	node    *process
	writers []*process
	load    *drillLoad
}

// TestDrills lets fail, one after the other and all at once, what stands behind the redirects, under load. Visits of known
// links are answered as always but for those of low trust while the lists are old; creates may be refused where the design's
// table says so, and nothing else may be seen. Then all clicks are exact.
func TestDrills(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: the drills take too long for -short")
	}
	d := newDrill(t)
	for _, row := range []struct {
		name string
		run  func()
	}{
		{"nothing fails", d.nothingFails},
		{"a partition's writer is killed", d.writerKilled},
		{"id leases are used up", d.leasesUsedUp},
		{"ClickHouse is killed", d.clickHouseKilled},
		{"ClickHouse is frozen", d.clickHouseFrozen},
		{"the owner index stands still, then is gone", d.ownerIndexGone},
		{"Kafka is stopped", d.kafkaStopped},
		// Redis comes here: it may change no answer; what the cache held is read from the node's store.
		{"all at once, and the node starts again", d.allAtOnce},
	} {
		began := time.Now()
		visits, redirected, made, notMade := d.load.visits.Load(), d.load.redirected.Load(), d.load.made.Load(), d.load.notMade.Load()
		d.load.slowestVisit()
		row.run()
		d.load.during(drillRule{row: "after " + row.name, low: []int{http.StatusFound, http.StatusServiceUnavailable}, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, d.settle)
		t.Logf("%-45s %5.1f s: %d visits, %d redirects, slowest %s; %d links made, %d not", row.name, time.Since(began).Seconds(), d.load.visits.Load()-visits,
			d.load.redirected.Load()-redirected, d.load.slowestVisit().Round(time.Millisecond), d.load.made.Load()-made, d.load.notMade.Load()-notMade)
		if d.load.wrong.Load() > 0 {
			t.Fatalf("%d answers that %q does not allow", d.load.wrong.Load(), row.name)
		}
	}
	d.load.end()
	d.exact()
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	d := &drill{fleet: startFleet(t, "--partitions", "4"), t: t, hold: drillHold}
	if s, err := strconv.Atoi(os.Getenv("HOPLOG_DRILL_SECONDS")); err == nil {
		d.hold = time.Duration(s) * time.Second
	}
	d.node = d.roles["redirect"]
	d.node.args = append(d.node.args, "--deny-stale", drillStale.String())
	d.node.kill()
	d.node.start()
	first := d.roles["commands"]
	d.writers = []*process{first, d.launchRole(t, "commands")}
	d.writers[1].ready()
	d.load = &drillLoad{t: t, node: d.node, api: d.roles["api"], host: d.domain(), links: d.knownLinks()}
	d.load.during(drillRule{row: "start"}, d.settle)
	d.load.start()
	t.Cleanup(func() { d.load.stop.Store(true); d.load.workers.Wait() })
	return d
}

// knownLinks makes a link of each kind.
func (d *drill) knownLinks() (list []drillLink) {
	d.t.Helper()
	add := func(f fields, status int) drillLink {
		l := drillLink{path: "/" + d.made(f), target: f["target"].(string), status: status}
		list = append(list, l)
		return l
	}
	post := func(path string, f fields, want int) {
		d.t.Helper()
		if a := d.api("POST", path, f); a.status != want {
			d.t.Fatalf("%s %v: %d %s", path, f, a.status, a.raw)
		}
	}
	for i := range 8 {
		add(fields{"target": fmt.Sprintf("https://example.com/?n=%d&raw=%%2f", i)}, http.StatusFound)
	}
	add(fields{"target": "https://example.com/moved", "redirect_status": 308}, http.StatusPermanentRedirect)
	low := add(fields{"target": "https://example.com/low"}, http.StatusFound)
	list[len(list)-1].low = true
	denied := add(fields{"target": "https://example.com/denied"}, http.StatusForbidden)
	legal := add(fields{"target": "https://example.com/legal"}, http.StatusUnavailableForLegalReasons)
	off := add(fields{"target": "https://example.com/off"}, http.StatusGone)
	add(fields{"target": "https://evil.example/"}, http.StatusForbidden)
	post("/v1/trust", fields{"kind": "code", "value": d.domain() + low.path, "tier": "low"}, http.StatusCreated)
	post("/v1/denylist", fields{"kind": "code", "value": d.domain() + denied.path}, http.StatusCreated)
	post("/v1/denylist", fields{"kind": "code", "value": d.domain() + legal.path, "reason": "legal"}, http.StatusCreated)
	post("/v1/denylist", fields{"kind": "host", "value": "evil.example"}, http.StatusCreated)
	post(d.link(off.path[1:], "/disable"), fields{"reason": "drill"}, http.StatusOK)
	for i := range list {
		l := &list[i]
		if l.status/100 != 3 {
			l.target = ""
		}
		d.eventually(fmt.Sprintf("%s answers %d", l.path, l.status), func() bool { return d.visitAs("HEAD", l.path).status == l.status })
	}
	return list
}

// settle waits until everybody is ready, and links of low trust are served.
func (d *drill) settle() {
	d.t.Helper()
	began := time.Now()
	var took []string
	step := func(what string) {
		if s := time.Since(began).Seconds(); s > 1 {
			took = append(took, fmt.Sprintf("%s %.1f s", what, s))
		}
	}
	defer func() {
		if len(took) > 0 {
			d.t.Logf("as before after: %s", strings.Join(took, ", "))
		}
	}()
	for _, p := range append([]*process{d.node, d.roles["api"], d.roles["analytics"]}, d.writers...) {
		p.ready()
		step(p.args[2])
	}
	d.eventually("all answers are as usual", func() bool {
		var r struct{ State string }
		_, body := d.node.get(d.node.ports["admin"], "/readyz")
		return json.Unmarshal([]byte(body), &r) == nil && r.State == "ready"
	})
	d.load.lowIs(http.StatusFound)
	step("lists")
	d.eventually("links are made", func() bool {
		return d.create(fields{"target": "https://example.com/settled"}).status == http.StatusCreated
	})
	step("creates")
}

func (d *drill) nothingFails() {
	d.load.during(drillRule{row: "nothing fails"}, func() { time.Sleep(d.hold) })
}

// notControl returns the process of commands that does not write the control stream, and the other one.
func (d *drill) notControl() (victim, other int) {
	var s struct {
		Writers []struct{ Stream, Mode string }
	}
	_, body := d.writers[0].get(d.writers[0].ports["admin"], "/status")
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		d.t.Fatal(err)
	}
	for _, w := range s.Writers {
		if w.Stream == "control" && w.Mode == "writing" {
			return 1, 0
		}
	}
	return 0, 1
}

// writerKilled kills a writer of links. The other takes over.
func (d *drill) writerKilled() {
	victim, _ := d.notControl()
	d.load.during(drillRule{row: "writer killed", creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		d.writers[victim].kill()
		time.Sleep(d.hold)
		d.eventually("the other has taken over", func() bool {
			for i := range 20 {
				if d.create(fields{"target": fmt.Sprint("https://example.com/over/", i)}).status != http.StatusCreated {
					return false
				}
			}
			return true
		})
		d.writers[victim].start()
	})
}

// leasesUsedUp has somebody hold the control partition who does not write it, so that no leases come, and uses up those that
// are there, by links of nine characters in one bucket: each burns thousands of ids that fall into other buckets.
func (d *drill) leasesUsedUp() {
	kafka, err := eventlog.Open(eventlog.Config{Brokers: []string{d.ports["kafka"]}, SessionTimeout: 1500 * time.Millisecond}, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	defer kafka.Close()
	keys := oneBucketKeys()
	nine := func() map[string]int {
		return statuses(together(8, func(int) answer {
			return d.create(fields{"target": "https://example.com/nine", "code_length": 9}, "Idempotency-Key", keys())
		}))
	}
	d.eventually("there are leased ids", func() bool { return nine()["201"] == 8 })
	low := []int{http.StatusFound, http.StatusServiceUnavailable} // without the control stream's writer nobody knows how old the lists are
	d.load.during(drillRule{row: "id leases", low: low, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		got := make(chan struct{}, 100)
		idle, err := kafka.Join(d.t.Context(), handler.Group, []string{eventlog.CommandsControl}, func(string, []int32) { got <- struct{}{} }, func(string, []int32) {})
		if err != nil {
			d.t.Fatal(err)
		}
		defer idle.Close()
		select {
		case <-got:
		case <-time.After(patient):
			d.t.Fatal("the control partition is not given away")
		}
		made := 0
		d.eventually("the leases are used up", func() bool {
			answers := nine()
			made += answers["201"]
			return answers["503 unavailable"] == 8
		})
		d.t.Logf("%d links were made of leased ids before 503", made)
		if made == 0 {
			d.t.Error("no link was made of leased ids")
		}
	})
	d.load.during(drillRule{row: "leases come again", low: low, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		d.eventually("links are made of new leases", func() bool { return nine()["201"] == 8 })
	})
}

// oneBucketKeys returns what makes request keys that lead to one bucket, for one caller at a time or many.
func oneBucketKeys() func() string {
	const bucket = 7
	var next atomic.Int64
	return func() string {
		for {
			key := fmt.Sprint("nine-", next.Add(1))
			if events.BucketOfKey([]byte("default\x00"+key)) == bucket {
				return key
			}
		}
	}
}

func (d *drill) clickHouseKilled() {
	d.load.during(drillRule{row: "ClickHouse killed"}, func() {
		if err := syscall.Kill(d.clickhouse.Pid(), syscall.SIGKILL); err != nil {
			d.t.Fatal(err)
		}
		time.Sleep(d.hold)
		d.eventually("ClickHouse is there again", d.clickhouse.Ready)
	})
}

func (d *drill) clickHouseFrozen() {
	d.load.during(drillRule{row: "ClickHouse frozen"}, func() {
		pid := d.clickhouse.Pid()
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(d.hold)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	})
}

// ownerIndexGone freezes the process that has the owner index, and kills it. A list says of when it is.
func (d *drill) ownerIndexGone() {
	api := d.roles["api"]
	d.load.during(drillRule{row: "owner index", noAPI: true, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		_ = api.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(d.hold)
		_ = api.cmd.Process.Signal(syscall.SIGCONT)
		if at, err := time.Parse(time.RFC3339Nano, d.api("GET", "/v1/links?limit=1", nil).str("as_of")); err != nil || time.Since(at) > time.Minute {
			d.t.Errorf("the list is as of %v, %v", at, err)
		}
		api.kill()
		time.Sleep(d.hold)
		api.start()
	})
}

// kafkaStopped kills the broker. Once the lists are older than the bound, links of low trust are closed, all of them.
func (d *drill) kafkaStopped() {
	low := []int{http.StatusFound, http.StatusServiceUnavailable}
	creates := []int{http.StatusAccepted, http.StatusServiceUnavailable}
	d.load.during(drillRule{row: "Kafka stops", low: low, creates: creates}, func() {
		d.broker.Kill()
		d.load.lowIs(http.StatusServiceUnavailable)
	})
	d.load.during(drillRule{row: "Kafka is stopped", low: []int{http.StatusServiceUnavailable}, creates: []int{http.StatusServiceUnavailable}}, func() { time.Sleep(d.hold) })
	d.load.during(drillRule{row: "Kafka comes back", low: low, creates: creates}, func() {
		d.broker.Restart()
		d.settle()
	})
}

// allAtOnce kills everything behind the node, and the node itself, which starts with nothing there.
func (d *drill) allAtOnce() {
	low := []int{http.StatusFound, http.StatusServiceUnavailable}
	d.load.during(drillRule{row: "all goes", low: low, noAPI: true, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		d.broker.Kill()
		_ = syscall.Kill(d.clickhouse.Pid(), syscall.SIGSTOP)
		for _, p := range []*process{d.writers[0], d.writers[1], d.roles["api"], d.roles["analytics"]} {
			p.kill()
		}
		d.load.lowIs(http.StatusServiceUnavailable)
	})
	closed := drillRule{row: "all is gone", low: []int{http.StatusServiceUnavailable}, noAPI: true}
	d.load.during(closed, func() { time.Sleep(d.hold) })
	closed.away, closed.row = true, "the node starts with all gone"
	d.load.during(closed, func() {
		d.node.kill()
		began := time.Now()
		d.node.start()
		d.t.Logf("without anything behind it the node is ready after %s", time.Since(began).Round(10*time.Millisecond))
	})
	closed.away, closed.row = false, "a node on its own"
	d.load.during(closed, func() {
		d.onItsOwn()
		time.Sleep(d.hold)
	})
	d.load.during(drillRule{row: "all comes back", low: low, noAPI: true, creates: []int{http.StatusAccepted, http.StatusServiceUnavailable}}, func() {
		d.broker.Launch()
		_ = syscall.Kill(d.clickhouse.Pid(), syscall.SIGCONT)
		for _, p := range []*process{d.writers[0], d.writers[1], d.roles["api"], d.roles["analytics"]} {
			p.launch()
		}
		d.settle()
	})
}

// onItsOwn: the node says how it is, and does not say of what it does not know that it does not exist.
func (d *drill) onItsOwn() {
	status, body := d.node.get(d.node.ports["admin"], "/readyz")
	var r struct {
		State   string
		Age     float64 `json:"data_age_seconds"`
		Reasons []string
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK || r.State != "degraded" || r.Age < d.hold.Seconds() || len(r.Reasons) == 0 {
		d.t.Errorf("/readyz: %d %s", status, body)
	}
	if code, out, _ := d.node.cli("status"); code != 0 || !strings.Contains(out, "s old") {
		d.t.Errorf("status: exit %d: %s", code, out)
	}
	if a, err := d.node.tryVisit("GET", "/nobody-knows", "Host", d.domain()); err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		d.t.Errorf("an unknown code: %d, %v", a.status, err)
	}
}

// exact compares the clicks with the answers that visitors got: each is counted once, and of those that got none because the
// node was killed, each at most once.
func (d *drill) exact() {
	answered, cut := int(d.load.redirected.Load()), int(d.load.cut.Load())
	r := d.clicksArrive(d.node)
	extra := r.LogClicks - answered
	d.t.Logf("%d redirects answered, %d visits cut off, %d of low trust refused, %d of these because the lists were old while the brokers were there; log %d, raw %d, sums %d", answered, cut, d.load.refusedLow.Load(), d.load.stale.Load(), r.LogClicks, r.RawClicks, r.AggregateClicks)
	if extra < 0 || extra > cut || r.RawClicks != r.LogClicks || r.AggregateClicks != r.LogClicks || r.Missing+r.Duplicated > 0 {
		d.t.Errorf("%d clicks more than answers, reconcile %+v", extra, r)
	}
}
