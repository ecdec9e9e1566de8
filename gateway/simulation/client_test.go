//go:build synctests

package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
)

// The owners, and domains that are there from the start: one of everybody's, one of each.
const (
	alice, bob    = "alice", "bob"
	sharedDomain  = "s.example"
	aliceDomain   = "alice.example"
	bobDomain     = "bob.example"
	clientPatient = 35 * time.Second
)

// client sends requests of its own choice, one after the other, repeats what it got no answer to, and checks what it hears.
type client struct {
	w     *world
	name  string
	rng   *rand.Rand
	keys  int
	until time.Time
}

// run sends until the client's time is over.
func (c *client) run() {
	for c.w.ctx.Err() == nil && time.Now().Before(c.until) {
		c.step()
		time.Sleep(time.Duration(c.rng.IntN(60_000)) * time.Microsecond)
	}
}

func (c *client) step() {
	k, met := c.w.book.any(c.rng)
	draw := c.rng.IntN(100)
	switch {
	case draw < 25 || !met:
		c.write(c.create())
	case draw < 45:
		c.write(c.change(k))
	case draw < 57:
		c.burst(k)
	case draw < 63:
		c.twice(c.create())
	case draw < 73:
		c.again()
	case draw < 90:
		c.read(k)
	case draw < 93:
		c.history(k)
	case draw < 96:
		c.list(k)
	default:
		if p := c.w.book.old(c.rng); p != nil {
			c.inquire(p, "")
		}
	}
}

func (c *client) key() string {
	c.keys++
	return c.name + "-" + strconv.Itoa(c.keys)
}

func (c *client) owner() string {
	if c.rng.IntN(4) == 0 {
		return bob
	}
	return alice
}

// create draws a create: of a generated code, a random one, a custom one that others choose too, or with dedupe.
func (c *client) create() *request {
	body := map[string]any{"target": fmt.Sprintf("https://example.com/%s/%d", c.name, c.rng.IntN(1000))}
	switch draw := c.rng.IntN(10); {
	case draw < 3:
		body["code"] = "word" + strconv.Itoa(c.rng.IntN(12))
	case draw < 5:
		body["dedupe"], body["target"] = true, fmt.Sprintf("https://example.com/shared/%d", c.rng.IntN(4))
	case draw < 6:
		body["code_mode"] = "random"
	}
	r := &request{method: http.MethodPost, path: "/v1/links", owner: c.owner(), key: c.key(), generated: body["code"] == nil && body["dedupe"] == nil}
	switch c.rng.IntN(8) {
	case 0:
		body["domain"] = bobDomain
	case 1:
		body["domain"] = aliceDomain
	case 2:
		c.onNewDomain(r, body)
	}
	if c.rng.IntN(4) == 0 {
		body["tags"] = []string{"t" + strconv.Itoa(c.rng.IntN(3))}
	}
	r.body = encode(body)
	return r
}

// onNewDomain makes it a create on a domain that was added a moment ago, at whose position the writer must judge it.
func (c *client) onNewDomain(r *request, body map[string]any) {
	if n := c.w.truth.controlSeq(); n > 0 {
		if name := c.w.newestDomain(); name != "" {
			body["domain"] = name
			r.position = events.Position{Stream: events.StreamControl, Bucket: events.ControlBucket, Seq: n}.String()
		}
	}
}

// change draws a write to a link.
func (c *client) change(k known) *request {
	r := &request{method: http.MethodPost, path: linkPath(k.domain, k.code), owner: k.owner, key: c.key()}
	switch draw := c.rng.IntN(20); {
	case draw < 12:
		r.method, r.body = http.MethodPatch, encode(map[string]any{"title": fmt.Sprintf("%s %d", c.name, c.rng.IntN(1000))})
		if c.rng.IntN(4) == 0 {
			r.body = encode(map[string]any{"target": fmt.Sprintf("https://example.com/new/%d", c.rng.IntN(1000)), "tags": []string{"t" + strconv.Itoa(c.rng.IntN(3))}})
		}
	case draw < 19:
		r.path += []string{"/disable", "/enable", "/ban", "/unban"}[c.rng.IntN(4)]
	default:
		r.method = http.MethodDelete
	}
	if c.rng.IntN(3) == 0 {
		r.ifMatch = fmt.Sprintf("%q", strconv.FormatUint(max(1, c.w.truth.latest(k.domain, k.code).GetVersion()), 10))
	}
	return r
}

func encode(body map[string]any) string {
	text, _ := json.Marshal(body) // of strings, numbers and booleans
	return string(text)
}

func (c *client) anyAPI() *process { return c.w.apis[c.rng.IntN(len(c.w.apis))] }

// ask sends a request, sometimes with little patience.
func (c *client) ask(p *process, r *request) *answer {
	patience := clientPatient
	if c.rng.IntN(12) == 0 {
		patience = time.Duration(1+c.rng.IntN(300)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(c.w.ctx, patience)
	defer cancel()
	a := p.send(ctx, r)
	c.w.trace.note("%s asks %s: %s → %s", c.name, p.name, r, a)
	return a
}

// write sends a write until it is answered for good, mostly.
func (c *client) write(r *request) {
	p := c.w.book.promised(r)
	for try := range 8 {
		a := c.ask(c.anyAPI(), r)
		c.w.checkWrite(r, p, a)
		if c.w.ctx.Err() != nil {
			return
		}
		if settled(a) {
			c.afterwards(r, p, a)
			return
		}
		if try > 0 && c.rng.IntN(8) == 0 {
			return
		}
		time.Sleep(time.Duration(c.rng.IntN(400)) * time.Millisecond)
	}
}

// settled reports whether an answer is one that a repeat would meet again.
func settled(a *answer) bool {
	_, decided := a.position()
	switch string(a.problem.Code) {
	case commands.CodeUnavailable, commands.CodeCommandExpired, commands.CodeQuotaExceeded:
		return false
	}
	return !a.lost() && decided
}

// afterwards looks at what was done from another side, now and then.
func (c *client) afterwards(r *request, p *promise, a *answer) {
	switch c.rng.IntN(8) {
	case 0: // a repeat
		c.w.checkWrite(r, p, c.ask(c.anyAPI(), r))
	case 1: // another request under the same key, which meets it in its bucket
		if r.generated {
			other := *r
			other.body = encode(map[string]any{"target": "https://example.com/another"})
			c.w.checkWrite(&other, p, c.ask(c.anyAPI(), &other))
		}
	case 2:
		c.inquire(p, a.header.Get("Hoplog-Position"))
	case 3:
		if at, ok := a.position(); ok && a.link.Code != "" {
			c.read(known{a.link.Owner, a.link.Domain, a.link.Code, at})
		}
	case 4:
		c.listOf(a.life.process, known{owner: a.link.Owner, domain: a.link.Domain, code: a.link.Code})
	}
}

// burst sends several writes to one link at the same time: they meet in one batch.
func (c *client) burst(k known) {
	var all sync.WaitGroup
	for range 2 + c.rng.IntN(5) {
		r := c.change(k)
		if c.rng.IntN(4) == 0 {
			r = c.create()
		}
		own := c.fork()
		all.Go(func() { own.write(r) })
	}
	all.Wait()
}

// twice sends one request twice at the same time.
func (c *client) twice(r *request) {
	var all sync.WaitGroup
	for range 2 {
		own := c.fork()
		all.Go(func() { own.write(r) })
	}
	all.Wait()
}

// fork makes a client for one errand, with draws of its own.
func (c *client) fork() *client {
	c.keys++
	return &client{w: c.w, name: c.name + "." + strconv.Itoa(c.keys), rng: rand.New(rand.NewPCG(c.rng.Uint64(), c.rng.Uint64()))}
}

// again repeats a request of any time before, whoever sent it.
func (c *client) again() {
	if p := c.w.book.old(c.rng); p != nil {
		r := p.request
		c.w.checkWrite(&r, p, c.ask(c.anyAPI(), &r))
	}
}

// visit looks links up at the redirect node, again and again: none may fall back.
func (c *client) visit() {
	for c.w.ctx.Err() == nil && time.Now().Before(c.until) {
		time.Sleep(time.Duration(c.rng.IntN(100_000)) * time.Microsecond)
		if k, met := c.w.book.any(c.rng); met {
			c.lookUp(k)
		}
	}
}

func (c *client) lookUp(k known) {
	l := c.w.node.enter()
	if l == nil {
		return
	}
	defer l.calls.Done()
	least := l.shown.of(k.domain, k.code)
	got, err := l.redirects.Lookup([]byte(events.RouteKey(k.domain, k.code)))
	select {
	case <-l.dead:
		return
	default:
	}
	if err != nil {
		c.w.fail("looking up %s/%s: %v", k.domain, k.code, err)
		return
	}
	if got == nil {
		if least > 0 {
			c.w.fail("the node has lost %s/%s", k.domain, k.code)
		}
		return
	}
	want := c.w.truth.version(k.domain, k.code, got.GetVersion())
	if want == nil || got.GetVersion() < least || got.GetTarget() != want.GetContent().GetTarget() || got.GetDisabled() != want.GetDisabled() ||
		got.GetBanned() != want.GetBanned() || got.GetDeleted() != want.GetDeleted() || got.GetLinkId() != want.GetRef().GetLinkId() {
		c.w.failUnlessOver("the node shows %v of %s/%s, which is %v and was at version %d", got, k.domain, k.code, want, least)
	}
	l.shown.raise(k.domain, k.code, got.GetVersion())
}
