package systemtest

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// spoolRig is a redirect node in a process of its own, and another process that is all the rest: broker, sink, ClickHouse.
type spoolRig struct {
	*process // the rest
	node     *process
	code     string
	visits   *spoolVisits
}

// spoolVisits are visits that name themselves, and what became of them.
type spoolVisits struct {
	next     atomic.Int64
	mu       sync.Mutex
	answered map[string]bool
	asked    map[string]bool
}

func newSpoolRig(t *testing.T) *spoolRig {
	t.Helper()
	rest := newProcess(t, []string{"dev", "--partitions", "4"}, "api", "redirect", "admin", "kafka", "clickhouse")
	rest.start()
	if !rest.hasEngine() {
		t.Skip("SKIPPED: without ClickHouse nothing counts clicks")
	}
	node := newProcess(t, []string{"serve", "--roles", "redirect", "--node", "spool-node"}, "redirect", "admin")
	node.ports["kafka"] = rest.ports["kafka"]
	rig := &spoolRig{process: rest, node: node, code: rest.made(fields{"target": "https://example.com/spool"}),
		visits: &spoolVisits{answered: map[string]bool{}, asked: map[string]bool{}}}
	node.start()
	return rig
}

// load visits the node from several connections until what is done meanwhile is done.
func (r *spoolRig) load(meanwhile func()) {
	r.t.Helper()
	var stop atomic.Bool
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop.Store(true)
	for range 4 {
		workers.Go(func() {
			for !stop.Load() {
				if !r.visitOnce() {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	meanwhile()
}

// answers waits until so many more visits are answered.
func (r *spoolRig) answers(n int) {
	r.t.Helper()
	answered := func() int {
		r.visits.mu.Lock()
		defer r.visits.mu.Unlock()
		return len(r.visits.answered)
	}
	want := answered() + n
	r.eventually("visits are answered", func() bool { return answered() >= want })
}

func (r *spoolRig) visitOnce() bool {
	id := strconv.FormatInt(r.visits.next.Add(1), 10)
	r.visits.mu.Lock()
	r.visits.asked[id] = true
	r.visits.mu.Unlock()
	a, err := r.node.tryVisit("GET", "/"+r.code+"?utm_content="+id, "Host", r.domain())
	if err != nil {
		return false
	}
	if a.status == http.StatusServiceUnavailable {
		return false // a node that has just started does not know its domains yet; such an answer is no click
	}
	if a.status != http.StatusFound {
		r.t.Errorf("visit %s: %d", id, a.status)
		return false
	}
	r.visits.mu.Lock()
	defer r.visits.mu.Unlock()
	r.visits.answered[id] = true
	return true
}

// spoolClicks is what the tests read of a node's status.
type spoolClicks struct {
	Clicks struct {
		Taken, Left, Sent, Dropped, Damaged, Waiting uint64
		Durable                                      bool
		SpoolError                                   string `json:"spool_error"`
	}
}

// spoolStatus reads it of a redirect node; it is the zero value while the node does not answer.
func (p *process) spoolStatus() (s spoolClicks) {
	_, body := p.get(p.ports["admin"], "/status")
	_ = json.Unmarshal([]byte(body), &s)
	return s
}

// clicksArrive waits until no click waits in the node's spool and ClickHouse agrees with the log. The node must not have lost any.
func (p *process) clicksArrive(node *process) (r reconciliation) {
	p.t.Helper()
	p.eventually("no click waits", func() bool {
		s := node.spoolStatus().Clicks
		if s.Dropped+s.Damaged > 0 || s.SpoolError != "" {
			p.t.Fatalf("clicks of the node: %+v", s)
		}
		return s.Durable && s.Waiting == 0
	})
	return p.agrees()
}

// agrees waits until ClickHouse agrees with the log: a sink whose partitions were somebody's who was killed comes late.
func (p *process) agrees() (r reconciliation) {
	p.t.Helper()
	p.eventually("ClickHouse agrees with the log", func() bool {
		var exit int
		r, exit = p.reconcile()
		return exit == 0
	})
	return r
}

// check waits until all has arrived, and compares ClickHouse with the answers that visitors got, one by one.
func (r *spoolRig) check() {
	t := r.t
	t.Helper()
	result := r.clicksArrive(r.node)
	counts := map[string]int{}
	for line := range strings.Lines(r.sql("SELECT utm_content, count() FROM hoplog.clicks_raw WHERE node = 'spool-node' GROUP BY utm_content FORMAT TSV")) {
		id, n, _ := strings.Cut(strings.TrimSpace(line), "\t")
		counts[id], _ = strconv.Atoi(n)
	}
	lost, doubled, invented, unasked := 0, 0, 0, 0
	for id := range r.visits.answered {
		if counts[id] == 0 {
			lost++
		}
	}
	for id, n := range counts {
		if n > 1 {
			doubled++
		}
		if !r.visits.answered[id] {
			unasked++
		}
		if !r.visits.asked[id] {
			invented++
		}
	}
	t.Logf("%d visits answered, %d counted, of these %d whose answer was cut off; log %d, raw %d, sums %d", len(r.visits.answered), len(counts), unasked,
		result.LogClicks, result.RawClicks, result.AggregateClicks)
	if lost+doubled+invented > 0 || result.LogClicks != result.RawClicks || result.RawClicks != result.AggregateClicks || len(r.visits.answered) < 200 {
		t.Errorf("%d lost, %d doubled, %d invented", lost, doubled, invented)
	}
	for line := range strings.Lines(r.sql("SELECT max(sequence) - count() FROM hoplog.clicks_raw WHERE node = 'spool-node' GROUP BY boot, partition FORMAT TSV")) {
		if strings.TrimSpace(line) != "0" {
			t.Errorf("a hole in a node's sequences: %s", line)
		}
	}
}

// kill -9 of a redirect node loses none of its clicks and doubles none: with the log there, without it, and while the spool
// runs empty. Between the kills of the node, the log goes and comes.
func TestKilledNodeLosesNoClicks(t *testing.T) {
	r := newSpoolRig(t)
	again := func() { r.node.kill(); r.node.start() }
	// The log is there.
	for range 2 {
		r.load(func() { time.Sleep(500 * time.Millisecond); again(); r.answers(100) })
	}
	r.check()
	// The log goes away under load, and comes back to a node that lives.
	r.load(func() {
		r.kill()
		time.Sleep(1500 * time.Millisecond)
		r.answers(1)
		if s := r.node.spoolStatus(); s.Clicks.Waiting == 0 || !s.Clicks.Durable {
			t.Errorf("without the log: %+v", s)
		}
	})
	r.start()
	r.check()
	// The node dies while the log is away; both come back.
	r.load(func() {
		r.kill()
		time.Sleep(700 * time.Millisecond)
		r.answers(1)
		r.node.kill()
	})
	r.node.launch()
	r.start()
	r.node.ready()
	if s := r.node.spoolStatus(); s.Clicks.Left == 0 {
		t.Errorf("nothing was left in the spool: %+v", s)
	}
	// The node dies while it sends what was left, again and again.
	r.load(func() {
		r.kill()
		time.Sleep(time.Second)
		r.start()
		for i := range 3 {
			time.Sleep(time.Duration(i*40) * time.Millisecond)
			again()
		}
	})
	r.check()
}

// A clean stop while the log is away is quick, and the next start sends what waited. A node that is asked to keep its clicks
// in memory says what that means.
func TestStoppedNodeKeepsItsClicks(t *testing.T) {
	r := newSpoolRig(t)
	r.kill()
	r.load(func() { r.answers(100) })
	if exit, took := r.node.stop(); exit != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: exit %d after %s", exit, took)
	}
	if entries, err := os.ReadDir(r.node.data + "/clicks"); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	r.start()
	r.node.start()
	r.load(func() { r.answers(100) })
	r.check()

	r.node.stop()
	r.node.args = append(slices.Clone(r.node.args), "--spool-bytes", "0")
	r.node.start()
	if s := r.node.spoolStatus(); s.Clicks.Durable || s.Clicks.SpoolError != "" {
		t.Errorf("%+v", s)
	}
}
