package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// drillLink is a known link, and what it must answer.
type drillLink struct {
	path, target string
	status       int
	low          bool // of low trust
}

// drillRule is what the row of the table under way allows beside the usual answers.
type drillRule struct {
	row     string
	low     []int // answers of links of low trust; nil: as of any other
	creates []int // answers of creates; nil: 201
	away    bool  // the node is being killed: it may not answer at all
	noAPI   bool  // likewise the API
}

func (r *drillRule) allowsVisit(l drillLink, a answer, err error) bool {
	switch {
	case err != nil:
		return r.away
	case l.low && r.low != nil && slices.Contains(r.low, a.status) && a.status != l.status:
		return a.header.Get("Retry-After") != ""
	case l.low && r.low != nil && !slices.Contains(r.low, l.status):
		return false
	}
	return a.status == l.status && a.header.Get("Location") == l.target
}

func (r *drillRule) allowsCreate(a answer, err error) bool {
	if err != nil {
		return r.noAPI
	}
	if a.status == http.StatusCreated {
		return true
	}
	return slices.Contains(r.creates, a.status) && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "" || a.str("code") == "outcome_unknown")
}

// drillLoad is visitors of known links and users who make new ones, all the time. Each answer is judged by the rule of the row
// under way; one that came while rows changed, by both.
type drillLoad struct {
	t     testing.TB
	node  *process
	api   *process
	host  string
	links []drillLink
	rule  atomic.Pointer[drillRule]

	stop    atomic.Bool
	workers sync.WaitGroup

	visits, redirected, cut, refusedLow atomic.Int64
	made, notMade, wrong, stale         atomic.Int64
	lastOld                             atomic.Int64 // when the node's lists were old
	mu                                  sync.Mutex
	created                             []drillLink
	slowest                             time.Duration // of the visits that were answered
}

const (
	drillVisitors = 4
	drillCreators = 2
	visitPause    = 3 * time.Millisecond
	createPause   = 25 * time.Millisecond
)

func (l *drillLoad) start() {
	for i := range drillVisitors {
		l.workers.Go(func() {
			for n := i; !l.stop.Load(); n++ {
				l.visit(l.links[n%len(l.links)])
				time.Sleep(visitPause)
			}
		})
	}
	for i := range drillCreators {
		l.workers.Go(func() {
			for n := i; !l.stop.Load(); n += drillCreators {
				l.create(n)
				time.Sleep(createPause)
			}
		})
	}
}

func (l *drillLoad) visit(link drillLink) {
	before, began := l.rule.Load(), time.Now()
	a, err := l.node.tryVisit("GET", link.path, "Host", l.host)
	after, took := l.rule.Load(), time.Since(began)
	switch {
	case before.allowsVisit(link, a, err) || after.allowsVisit(link, a, err):
	case err == nil && link.low && a.status == http.StatusServiceUnavailable && l.listsAreOld():
		l.stale.Add(1)
	default:
		l.fail("%s: visit of %s: %d %q %v after %s, want %d %q", after.row, link.path, a.status, a.header.Get("Location"), err, took, link.status, link.target)
	}
	l.visits.Add(1)
	switch {
	case err != nil:
		l.cut.Add(1)
		return
	case a.status/100 == 3:
		l.redirected.Add(1)
	case link.low:
		l.refusedLow.Add(1)
	}
	l.mu.Lock()
	l.slowest = max(l.slowest, took)
	l.mu.Unlock()
}

// listsAreOld reports whether the node's lists were older than the bound a moment ago. On a machine that is too busy, the writer
// of the control stream is silent for so long without a fault, and then links of low trust must be closed.
func (l *drillLoad) listsAreOld() bool {
	var s struct {
		Age *float64 `json:"lists_age_seconds"`
	}
	_, body := l.node.get(l.node.ports["admin"], "/status")
	if json.Unmarshal([]byte(body), &s) == nil && (s.Age == nil || *s.Age > drillStale.Seconds()*2/3) {
		l.lastOld.Store(time.Now().UnixNano())
	}
	return time.Since(time.Unix(0, l.lastOld.Load())) < 2*time.Second
}

// slowestVisit returns how long the slowest visit since the last call took.
func (l *drillLoad) slowestVisit() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slowest := l.slowest
	l.slowest = 0
	return slowest
}

func (l *drillLoad) create(n int) {
	before := l.rule.Load()
	target := fmt.Sprint("https://example.com/new/", n)
	a, err := l.api.tryAPI("POST", "/v1/links", fields{"target": target}, "Idempotency-Key", fmt.Sprint("drill-", n))
	after := l.rule.Load()
	if !before.allowsCreate(a, err) && !after.allowsCreate(a, err) {
		l.fail("%s: create: %d %s %v", after.row, a.status, a.raw, err)
	}
	if err != nil || a.status != http.StatusCreated {
		l.notMade.Add(1)
		return
	}
	l.made.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.created = append(l.created, drillLink{path: "/" + a.str("code"), target: target, status: http.StatusFound})
}

// fail reports what the row does not allow. The load goes on: what follows may say more.
func (l *drillLoad) fail(format string, args ...any) {
	if l.wrong.Add(1) <= 20 {
		l.t.Errorf(format, args...)
	}
}

// during runs a row: its rule holds for all that happens meanwhile.
func (l *drillLoad) during(rule drillRule, do func()) {
	l.rule.Store(&rule)
	do()
}

// lowIs waits until the links of low trust answer so.
func (l *drillLoad) lowIs(status int) {
	for _, link := range l.links {
		if link.low {
			l.node.eventually(fmt.Sprintf("%s of low trust answers %d", link.path, status), func() bool {
				a, err := l.node.tryVisit("HEAD", link.path, "Host", l.host)
				return err == nil && a.status == status
			})
		}
	}
}

// end lets the users finish, and visits all that was made meanwhile.
func (l *drillLoad) end() {
	l.stop.Store(true)
	l.workers.Wait()
	for _, link := range l.created {
		l.node.eventually(link.path+" is served", func() bool {
			a, err := l.node.tryVisit("HEAD", link.path, "Host", l.host)
			return err == nil && a.status == link.status && a.header.Get("Location") == link.target
		})
	}
}
