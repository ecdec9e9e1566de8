package systemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Sizes of the load. A link is replaced by a new one when it has as many operations as porcupine checks at once.
const (
	chaosWorkers = 16
	activeLinks  = 20
	opsPerLink   = 60
	lostPerLink  = 10
	thinkTime    = 6 * time.Millisecond // on average, between two operations of a worker
)

// chaosLoad is users at work: they create, edit, read and visit links, repeat what was not answered, and write down
// everything for the checks.
type chaosLoad struct {
	t          testing.TB
	began      time.Time
	domain     string
	partitions int
	apis       []*chaosServer
	redirects  []*chaosServer

	mu     sync.Mutex
	links  []*chaosLink // all of them
	active []*chaosLink

	stop    atomic.Bool
	ended   time.Time // of all workers
	workers sync.WaitGroup
	keys    atomic.Int64
	counts  chaosCounts
	// progress counts acknowledged writes by partition.
	progress []atomic.Int64
}

// chaosCounts are figures for the summary.
type chaosCounts struct {
	creates, edits, reads, histories, visits atomic.Int64 // answered
	exact, lost, replays, refused, notSent   atomic.Int64
	violations                               atomic.Int64
}

func newChaosLoad(t testing.TB, domain string, partitions int, apis, redirects []*chaosServer) *chaosLoad {
	return &chaosLoad{t: t, began: time.Now(), domain: domain, partitions: partitions, apis: apis, redirects: redirects, progress: make([]atomic.Int64, partitions)}
}

// start sets the users to work; each draws from a source of its own, seeded from seed.
func (l *chaosLoad) start(seed uint64) {
	for number := range chaosWorkers {
		w := &chaosWorker{chaosLoad: l, number: number, random: rand.New(rand.NewPCG(seed, uint64(number)))}
		l.workers.Go(w.run)
	}
}

// end lets the users finish what they began.
func (l *chaosLoad) end() {
	l.stop.Store(true)
	l.workers.Wait()
	l.ended = time.Now()
}

// broken reports a promise that was not kept. The test goes on: what follows may say more.
func (l *chaosLoad) broken(format string, args ...any) {
	if n := l.counts.violations.Add(1); n <= 20 {
		l.t.Errorf(format, args...)
	}
}

func (l *chaosLoad) operations() int64 {
	c := &l.counts
	return c.creates.Load() + c.edits.Load() + c.reads.Load() + c.histories.Load() + c.lost.Load()
}

// acknowledged counts a write that was answered, for the partition that its position lies in.
func (l *chaosLoad) acknowledged(position string) {
	if bucket := bucketOf(position); bucket >= 0 {
		l.progress[bucket*l.partitions/4096].Add(1)
	}
}

func (l *chaosLoad) progressNow() []int64 {
	now := make([]int64, len(l.progress))
	for i := range l.progress {
		now[i] = l.progress[i].Load()
	}
	return now
}

// awaitProgress waits until every partition acknowledged a write.
func (l *chaosLoad) awaitProgress(within time.Duration) {
	l.t.Helper()
	began, before := time.Now(), l.progressNow()
	for time.Since(began) < within {
		waiting := false
		for i, n := range l.progressNow() {
			waiting = waiting || n <= before[i]
		}
		if !waiting {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.broken("after %s some partitions acknowledge no write: before %v, now %v", within, before, l.progressNow())
}

// watchStalls tells of partitions that acknowledge nothing for a long time; what it returns ends that, and says how long the
// longest time was.
func (l *chaosLoad) watchStalls() (longest func() time.Duration) {
	end, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		counts, since := l.progressNow(), make([]time.Time, l.partitions)
		for i := range since {
			since[i] = time.Now()
		}
		for {
			select {
			case <-end:
				most <- longest
				return
			case <-time.After(50 * time.Millisecond):
			}
			for i, n := range l.progressNow() {
				stalled := time.Since(since[i])
				longest = max(longest, stalled)
				if n == counts[i] {
					continue
				}
				if stalled > slowRecovery {
					l.t.Logf("partition %d acknowledged nothing for %s until %s", i, stalled.Round(100*time.Millisecond), time.Now().UTC().Format(time.TimeOnly))
				}
				counts[i], since[i] = n, time.Now()
			}
		}
	}()
	return func() time.Duration { close(end); return <-most }
}

func (l *chaosLoad) newLink() *chaosLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	link := &chaosLink{number: len(l.links), began: l.began, shownBy: map[life]int{}, refusedBy: map[life]uint64{}, targets: map[string]int64{}}
	l.links = append(l.links, link)
	return link
}

// publish gives a link that exists to all workers.
func (l *chaosLoad) publish(link *chaosLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = append(l.active, link)
}

// pick returns a link to work on, nil if there are too few.
func (l *chaosLoad) pick(random *rand.Rand) *chaosLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = slices.DeleteFunc(l.active, (*chaosLink).full)
	if len(l.active) < activeLinks {
		return nil
	}
	return l.active[random.IntN(len(l.active))]
}

// key makes a request key that nobody used.
func (l *chaosLoad) key() string { return fmt.Sprintf("chaos-%d", l.keys.Add(1)) }

// chaosWorker is one user.
type chaosWorker struct {
	*chaosLoad
	number int
	random *rand.Rand
}

func (w *chaosWorker) run() {
	for !w.stop.Load() {
		time.Sleep(time.Duration(w.random.Int64N(int64(2 * thinkTime))))
		link := w.pick(w.random)
		if link == nil {
			w.create()
			continue
		}
		switch n := w.random.IntN(100); {
		case n < 35:
			w.edit(link)
		case n < 75:
			w.read(link, opRead)
		case n < 88:
			w.read(link, opHistory)
		default:
			w.visit(link)
		}
	}
}

func (w *chaosWorker) api() *chaosServer { return w.apis[w.random.IntN(len(w.apis))] }

// read asks for a link or its history, mostly at the newest position that anybody knows.
func (w *chaosWorker) read(link *chaosLink, kind string) {
	server, path := w.api(), w.path(link)
	if kind == opHistory {
		path += "/history"
	}
	op, position := link.ask(linkOp{kind: kind}, server, w.random.IntN(10) < 7)
	var headers []string
	if position != "" {
		headers = []string{"Hoplog-Position", position}
	}
	a, err := server.call(w.patience(), "GET", path, nil, headers...)
	if err != nil || a.status == http.StatusServiceUnavailable {
		return
	}
	out, last, ok := readAnswerOf(kind, a)
	if !ok {
		w.broken("%s %s (%v): %d %s", kind, path, headers, a.status, a.raw)
		return
	}
	link.answered(w.number, op, out, last)
	w.count(kind, op.op.exact)
}

func (w *chaosWorker) count(kind string, exact bool) {
	counter := map[string]*atomic.Int64{opRead: &w.counts.reads, opHistory: &w.counts.histories, opCreate: &w.counts.creates, opEdit: &w.counts.edits}[kind]
	counter.Add(1)
	if exact {
		w.counts.exact.Add(1)
	}
}

// visit follows a short link.
func (w *chaosWorker) visit(link *chaosLink) {
	server := w.redirects[w.random.IntN(len(w.redirects))]
	v := chaosVisit{life: server.life(), call: link.now()}
	a, err := server.visit(w.patience(), "GET", w.domain, link.code)
	if err != nil {
		return
	}
	switch a.status {
	case http.StatusFound, http.StatusNotFound:
		v.target, v.back = a.header.Get("Location"), link.now()
	case http.StatusServiceUnavailable: // it does not know yet
		return
	default:
		w.broken("visit of link %d: %d %v", link.number, a.status, a.header)
		return
	}
	if v.life != server.life() {
		v.life.number = -1 // of no known life
	}
	link.mu.Lock()
	link.visits = append(link.visits, v)
	link.mu.Unlock()
	w.counts.visits.Add(1)
}

// patience is how long a user waits for an answer: mostly longer than a process is frozen.
func (w *chaosWorker) patience() time.Duration {
	if w.random.IntN(8) == 0 {
		return time.Duration(300+w.random.IntN(1200)) * time.Millisecond
	}
	return 8 * time.Second
}
