//go:build synctests

package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
)

// book is what all clients together know: the links that they met, and what every key was answered.
type book struct {
	mu    sync.Mutex
	links []known
	keys  map[string]*promise // by owner and key
	order []*promise          // for draws
}

// known is a link that a client was told of, and the last position at which it was.
type known struct {
	owner, domain, code string
	position            events.Position
}

// promise is what a request key stands for since its first final answer.
type promise struct {
	request request

	mu      sync.Mutex // guards what follows: one request may be sent twice at a time
	acked   bool       // by a 202: the log has the command
	final   *verdict
	stampUS int64           // of the first envelope that answered it
	fresh   events.Position // of the answer that was no repeat's; zero: none was heard
}

// verdict is the part of an answer that a repeat must meet again.
type verdict struct {
	failed, domain, code string
	version              uint64
}

func (v verdict) String() string {
	if v.failed != "" {
		return v.failed
	}
	return fmt.Sprintf("%s/%s v%d", v.domain, v.code, v.version)
}

func newBook() *book { return &book{keys: map[string]*promise{}} }

// promised returns the promise of a request's key.
func (b *book) promised(r *request) *promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := requestID(r.owner, r.key)
	p := b.keys[id]
	if p == nil {
		p = &promise{request: *r}
		b.keys[id] = p
		b.order = append(b.order, p)
	}
	return p
}

// old returns a key that was used before.
func (b *book) old(rng *rand.Rand) *promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.order) == 0 {
		return nil
	}
	return b.order[rng.IntN(len(b.order))]
}

// meet remembers a link.
func (b *book) meet(k known) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, old := range b.links {
		if old.domain == k.domain && old.code == k.code {
			if old.position.Seq < k.position.Seq {
				b.links[i].position = k.position
			}
			return
		}
	}
	b.links = append(b.links, k)
}

// any returns a link, the newest ones and the oldest few most often: they are what clients meet over.
func (b *book) any(rng *rand.Rand) (known, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.links)
	switch {
	case n == 0:
		return known{}, false
	case rng.IntN(2) == 0:
		return b.links[rng.IntN(min(3, n))], true
	}
	return b.links[rng.IntN(n)], true
}

// Promised and kept lifetimes of a request key, between which either is right.
const (
	promisedTTL = 7 * 24 * time.Hour
	keptTTL     = commands.KeyTTL * time.Microsecond
)

// checkWrite holds the answer to a write against the truth and against what the key was answered before.
func (w *world) checkWrite(r *request, p *promise, a *answer) {
	if a.lost() {
		return
	}
	position, decided := a.position()
	if !decided {
		w.checkUndecided(r, p, a)
		return
	}
	e := w.truth.at(position)
	if e == nil {
		w.failUnlessOver("%s was answered %s, and the log does not come to %s", r, a, position)
		return
	}
	if e.GetRequest().GetOwner() != r.owner || e.GetRequest().GetKey() != r.key {
		w.fail("%s was answered %s, and the envelope there answers %s of %s", r, a, e.GetRequest().GetKey(), e.GetRequest().GetOwner())
		return
	}
	o := e.GetOutcome()
	created := o.GetError() == "" && len(e.GetEvents()) > 0 && e.GetEvents()[0].GetLinkCreated() != nil
	if o.GetError() != string(a.problem.Code) || o.GetReplayed() != a.replayed() || created != (a.status == http.StatusCreated) {
		w.fail("%s was answered %s, and the envelope says %v", r, a, o)
		return
	}
	if o.GetError() == "" {
		w.checkLink(r, a, o.GetVersion())
		w.book.meet(known{a.link.Owner, a.link.Domain, a.link.Code, position})
		a.life.shown.raise(a.link.Domain, a.link.Code, a.link.Version)
		a.life.written.raise(a.link.Domain, a.link.Code, a.link.Version)
	}
	if commands.Stores(e.Envelope) || o.GetReplayed() {
		w.checkPromise(r, p, a, verdict{o.GetError(), o.GetNamespace(), o.GetCode(), o.GetVersion()}, e)
	} else if o.GetError() == commands.CodeIdempotencyKeyReused && r.identity() == p.request.identity() {
		w.fail("%s was answered %s, and the key was never used for anything else", r, a)
	}
}

// checkUndecided judges answers that name no decision.
func (w *world) checkUndecided(r *request, p *promise, a *answer) {
	switch {
	case a.status == http.StatusAccepted:
		p.mu.Lock()
		p.acked = true
		p.mu.Unlock()
	case a.status == http.StatusServiceUnavailable:
	case a.problem.Code == commands.CodeIdempotencyKeyReused && r.identity() != p.request.identity():
	default:
		w.fail("%s was answered %s, without a decision in the log", r, a)
	}
}

// checkPromise: within seven days a key stands for its first outcome, and for one request.
func (w *world) checkPromise(r *request, p *promise, a *answer, v verdict, e *events.Envelope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stampUS, here := e.GetStamp().GetTimeUs(), e.Position(events.StreamLink)
	age := time.Duration(stampUS-p.stampUS) * time.Microsecond
	switch again := r.identity() == p.request.identity(); {
	case !again:
		if p.final != nil && age < promisedTTL {
			w.fail("%s was answered %s, and its key stands for %s", r, a, &p.request)
		}
		return
	case p.final == nil:
		p.final, p.stampUS = &v, stampUS
	case age >= promisedTTL && !a.replayed():
		p.final, p.stampUS, p.fresh = &v, stampUS, events.Position{}
	case *p.final != v:
		w.fail("%s was answered %s: a new opinion, the first one was %s", r, a, p.final)
	}
	p.stampUS = min(p.stampUS, stampUS)
	if a.replayed() {
		return
	}
	if p.fresh != (events.Position{}) && p.fresh != here {
		w.fail("%s was answered %s as if for the first time, which was at %s", r, a, p.fresh)
	}
	p.fresh = here
}

// checkLink holds a link in an answer against the truth at its version.
func (w *world) checkLink(r *request, a *answer, version uint64) {
	if a.link.Version != version {
		w.fail("%s was answered %s, it should show version %d", r, a, version)
		return
	}
	w.checkShown(r.String(), a.life, &a.link)
}

// failUnlessOver is fail, but for what comes of the end of the simulation.
func (w *world) failUnlessOver(format string, args ...any) {
	if w.ctx.Err() == nil {
		w.fail(format, args...)
	}
}
