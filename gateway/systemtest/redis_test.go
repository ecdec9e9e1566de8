package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	redistier "github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// redisRig is a redirect node in a process of its own, the Redis that it shares, and a process that is all the rest.
type redisRig struct {
	*process // the rest
	node     *process
	redis    *redistest.Server
	codes    []string
}

const redisLinks = 40

func newRedisRig(t *testing.T) *redisRig {
	t.Helper()
	r := &redisRig{redis: redistest.Start(t, "--requirepass", "redis-secret")}
	r.process = newProcess(t, []string{"dev", "--partitions", "4"}, "api", "redirect", "admin", "kafka", "clickhouse")
	r.start()
	r.node = newProcess(t, []string{"serve", "--roles", "redirect"}, "redirect", "admin")
	r.node.ports["kafka"] = r.ports["kafka"]
	r.node.env = []string{"HOPLOG_REDIS=redis://:redis-secret@" + r.redis.Addr}
	for i := range redisLinks {
		r.codes = append(r.codes, r.made(fields{"target": redisTarget(i)}))
	}
	r.node.start()
	return r
}

func redisTarget(i int) string { return fmt.Sprintf("https://example.com/redis/%d", i) }

// check visits a link at the node.
func (r *redisRig) check(i int) {
	a, err := r.node.tryVisit("GET", "/"+r.codes[i], "Host", r.domain())
	if err != nil || a.status != http.StatusFound || a.header.Get("Location") != redisTarget(i) {
		r.t.Errorf("link %d: %d %q %v", i, a.status, a.header.Get("Location"), err)
	}
}

// load visits known and unknown links until what is done meanwhile is done.
func (r *redisRig) load(meanwhile func()) {
	r.t.Helper()
	var over atomic.Bool
	var workers sync.WaitGroup
	defer workers.Wait()
	defer over.Store(true)
	for range 4 {
		workers.Go(func() {
			for !over.Load() && !r.t.Failed() {
				r.check(rand.IntN(redisLinks))
				if a, err := r.node.tryVisit("GET", fmt.Sprintf("/nobody%d", rand.Uint32()), "Host", r.domain()); err != nil || a.status != http.StatusNotFound {
					r.t.Errorf("an unknown link: %d %v", a.status, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	meanwhile()
}

func (r *redisRig) tier() (s redistier.Status) {
	_, body := r.node.get(r.node.ports["admin"], "/status")
	var status struct {
		Shared redistier.Status `json:"shared_tier"`
	}
	_ = json.Unmarshal([]byte(body), &status)
	return status.Shared
}

// put is what the effects role does with an event.
func (r *redisRig) put(code string, link *pb.Redirect) {
	r.t.Helper()
	tier, err := redistier.Open(redistier.Config{URL: "redis://:redis-secret@" + r.redis.Addr})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tier.Run(ctx) }()
	r.eventually("the link is in Redis", func() bool { return tier.Put(ctx, []byte(events.RouteKey(r.domain(), code)), link) == nil })
	cancel()
	if err := <-done; err != nil {
		r.t.Error(err)
	}
}

// Redis freezes, dies and comes back empty under load, and no redirect notices. A node that is cut off from the log serves from it
// what it does not have itself, and what it has as before.
func TestRedisDies(t *testing.T) {
	r := newRedisRig(t)
	for i := range redisLinks {
		r.check(i)
	}
	r.eventually("what is visited is shared", func() bool { s := r.tier(); return s.State == "closed" && s.Written >= redisLinks })
	r.load(func() {
		r.redis.Freeze()
		time.Sleep(1200 * time.Millisecond)
		r.redis.Thaw()
		time.Sleep(200 * time.Millisecond)
		r.redis.Kill()
		edited := redisLinks - 1
		if a := r.api("PATCH", r.link(r.codes[edited]), fields{"title": "edited without Redis"}); a.status != http.StatusOK {
			t.Errorf("edit: %d %s", a.status, a.raw)
		}
		r.eventually("its death is known", func() bool { return r.tier().State == "open" })
		r.redis.Restart()
		before := r.tier().Written
		r.eventually("the links are shared again", func() bool { return r.tier().Written >= before+redisLinks })
	})

	only := "onlyRedisHasIt"
	r.put(only, &pb.Redirect{Version: 3, LinkId: 1, Target: "https://example.com/only", RedirectStatus: http.StatusFound})
	r.put(r.codes[0], &pb.Redirect{Version: 1, LinkId: 1, Target: "https://example.com/not-this-one"})
	visit := func() int { return r.node.visit("/"+only, "Host", r.domain()).status }
	r.eventually("a node that knows all does not ask Redis", func() bool { return visit() == http.StatusNotFound })
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.eventually("a node that is cut off asks Redis", func() bool { return visit() == http.StatusFound })
	for i := range redisLinks {
		r.check(i)
	}
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.eventually("a node that is back does not", func() bool { return visit() == http.StatusNotFound })
	for i := range redisLinks {
		r.check(i)
	}
	if s := r.tier(); s.Hits == 0 || s.Opened == 0 {
		t.Errorf("%+v", s)
	}
	for _, out := range []string{r.node.out.String(), fmt.Sprint(r.tier())} {
		if strings.Contains(out, "redis-secret") {
			t.Errorf("the password is shown: %s", out)
		}
	}
}
