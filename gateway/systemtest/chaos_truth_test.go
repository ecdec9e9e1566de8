package systemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// judge compares all that users were told with the log, once the load has ended. fresh is an API process that folded the log
// from its beginning; it returns the number of void envelopes.
func (c *chaosRun) judge(fresh *chaosServer) (void int) {
	c.t.Helper()
	l := c.load
	began := time.Now()
	l.eachLink(func(link *chaosLink) { l.compare(link, append([]*chaosServer{fresh}, l.apis...)) })
	c.t.Logf("compared %d links in %s", len(l.links), time.Since(began).Round(time.Millisecond))
	l.codesAreUnique()
	l.repeatCreates(rand.New(rand.NewPCG(c.seed, 2)))
	void = c.verify(fresh)
	c.checkHistories()
	return void
}

// eachLink calls f for all links that exist, a few at once.
func (l *chaosLoad) eachLink(f func(*chaosLink)) {
	links := make(chan *chaosLink)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for link := range links {
				f(link)
			}
		})
	}
	for _, link := range l.links {
		if link.version() > 0 {
			links <- link
		}
	}
	close(links)
	group.Wait()
}

// compare asks every API process and every redirect process for a link. All tell the same history, which holds every
// acknowledged write; it becomes the last operation on the link, so that porcupine judges by it too.
func (l *chaosLoad) compare(link *chaosLink, apis []*chaosServer) {
	var truth []chaosEvent
	for i, api := range apis {
		a, op := l.finalHistory(link, api)
		list, ok := eventsOf(a)
		if !ok {
			l.broken("the history of link %d (%s) at %s: %d %s", link.number, link.code, api.name, a.status, a.raw)
			return
		}
		if i == 0 {
			truth = list
			out, last, _ := readAnswerOf(opHistory, a)
			op.op.exact = true // all is quiet, and it was asked at the newest position
			link.answered(chaosWorkers, op, out, last)
		}
		if !slices.EqualFunc(truth, list, func(a, b chaosEvent) bool {
			return a.Version == b.Version && a.Hash == b.Hash && a.Position == b.Position && a.target() == b.target()
		}) {
			l.broken("link %d (%s) has the history %v at %s and %v at %s", link.number, link.code, truth, apis[0].name, list, api.name)
		}
	}
	for _, ack := range link.acks {
		if ack.version > len(truth) || truth[ack.version-1].target() != ack.target || truth[ack.version-1].Position != ack.position {
			l.broken("link %d (%s): acknowledged was version %d, %s at %s; the log has %v", link.number, link.code, ack.version, ack.target, ack.position, truth)
		}
	}
	l.judgeVisits(link, truth)
}

func (l *chaosLoad) finalHistory(link *chaosLink, api *chaosServer) (a answer, op asked) {
	for end := l.graceEnds(); ; time.Sleep(20 * time.Millisecond) { // a process that has just started waits 2 s for the position at most
		var position string
		op, position = link.ask(linkOp{kind: opHistory}, api, true)
		a, err := api.call(10*time.Second, "GET", "/v1/links/"+l.domain+"/"+link.code+"/history", nil, "Hoplog-Position", position)
		if err == nil && a.status == http.StatusOK || time.Now().After(end) {
			return a, op
		}
	}
}

// judgeVisits: a redirect process may lag, but it shows only targets that were, in their order, and none before it was asked
// for; when all is quiet, it shows the newest.
func (l *chaosLoad) judgeVisits(link *chaosLink, truth []chaosEvent) {
	versions := map[string]int{}
	for _, e := range truth {
		versions[e.target()] = e.Version
	}
	slices.SortFunc(link.visits, func(a, b chaosVisit) int { return int(a.call - b.call) })
	for i, v := range link.visits {
		version, was := versions[v.target]
		if v.target != "" && (!was || link.targets[v.target] > v.back) {
			l.broken("a visit of link %d was sent to %s, which was never its target by then: %v", link.number, v.target, truth)
		}
		for _, before := range link.visits[:i] {
			if before.life == v.life && v.life.number > 0 && before.back < v.call && versions[before.target] > version {
				l.broken("a visit of link %d at %s was sent to %q after one that was sent to %q", link.number, v.life.server.name, v.target, before.target)
			}
		}
	}
	want := truth[len(truth)-1].target()
	for _, server := range l.redirects {
		got := ""
		for end := l.graceEnds(); got != want && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if a, err := server.visit(5*time.Second, "HEAD", l.domain, link.code); err == nil {
				if got = a.header.Get("Location"); got == want {
					break
				}
			}
		}
		if got != want {
			l.broken("link %d: %s sends to %q, the newest target is %q", link.number, server.name, got, want)
		}
	}
}

// graceEnds is how long a process may be behind: long after the load has ended, because it may have been killed right before, and
// a while for each link, because there may be many.
func (l *chaosLoad) graceEnds() time.Time {
	end, while := l.ended.Add(patient), time.Now().Add(10*time.Second)
	if end.After(while) {
		return end
	}
	return while
}

func (l *chaosLoad) codesAreUnique() {
	codes := map[string]int{}
	for _, link := range l.links {
		if other, twice := codes[link.code]; twice && link.code != "" {
			l.broken("links %d and %d have the code %s", other, link.number, link.code)
		}
		codes[link.code] = link.number
	}
}

// repeatCreates sends some creates again: each key still means its link.
func (l *chaosLoad) repeatCreates(random *rand.Rand) {
	for range min(300, len(l.links)) {
		link := l.links[random.IntN(len(l.links))]
		key := link.keys[0]
		body := fields{"target": "https://example.com/chaos/" + key}
		if len(link.keys) > 1 {
			body["code"] = link.code
		}
		w := &chaosWorker{chaosLoad: l, number: chaosWorkers, random: random}
		w.untilKnown(chaosWrite{link: link, server: w.api(), method: "POST", path: "/v1/links", body: body, op: linkOp{kind: opCreate, key: key, target: body["target"].(string)}})
	}
}

// verify asks the log itself: chains, counts of links and of clicks.
func (c *chaosRun) verify(p *chaosServer) (void int) {
	c.t.Helper()
	var verify struct {
		Envelopes, Void, Links int
		Problems               []any
	}
	if exit := p.cliJSON(&verify, "audit", "verify"); exit != 0 || len(verify.Problems) > 0 {
		c.t.Errorf("audit verify: exit %d, %v", exit, verify.Problems)
	}
	if verify.Links != len(c.load.links) {
		c.t.Errorf("the log has %d links, %d were made: a key made two, or none", verify.Links, len(c.load.links))
	}
	if r := p.agrees(); r.Missing != 0 || r.Duplicated != 0 || r.LogClicks != r.RawClicks || r.LogClicks != r.AggregateClicks {
		c.t.Errorf("reconcile: %+v", r)
	}
	c.t.Logf("the log has %d envelopes, %d of them void", verify.Envelopes, verify.Void)
	return verify.Void
}

// checkHistories gives what happened to porcupine, link by link.
func (c *chaosRun) checkHistories() {
	c.t.Helper()
	began := time.Now()
	operations := 0
	results := map[porcupine.CheckResult]int{}
	var longest time.Duration
	for _, link := range c.load.links {
		operations += len(link.ops)
		one := time.Now()
		result := porcupine.CheckOperationsTimeout(linkModel, essential(link.ops), time.Minute)
		longest = max(longest, time.Since(one))
		results[result]++
		if result != porcupine.Ok {
			c.load.broken("the history of link %d is not linearizable (%s):\n%s", link.number, result, transcript(link.ops))
		}
	}
	c.t.Logf("porcupine: %d operations on %d links: %s, in %s, %s at most for one", operations, len(c.load.links), fmt.Sprint(results),
		time.Since(began).Round(time.Millisecond), longest.Round(time.Millisecond))
}
