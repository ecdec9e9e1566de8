//go:build synctests

package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway"
)

// request is one HTTP request as a client may send it again and again.
type request struct {
	method, path, body string
	owner, key         string // who asks, and the Idempotency-Key of a write
	position, ifMatch  string
	other              bool // the answer is something else than a link
	generated          bool // a create whose bucket follows from its key alone
}

// identity is what makes two requests of one key the same: not the headers.
func (r *request) identity() string { return r.method + " " + r.path + " " + r.body + " " + r.ifMatch }

func (r *request) String() string {
	text := fmt.Sprintf("%s: %s %s %s", r.owner, r.method, r.path, r.body)
	for _, header := range []struct{ name, value string }{{"key", r.key}, {"position", r.position}, {"if-match", r.ifMatch}} {
		if header.value != "" {
			text += " " + header.name + "=" + header.value
		}
	}
	return text
}

// answer is what a client heard. Without a status it heard nothing: the process was down, died, or the client hung up.
type answer struct {
	life    *life
	status  int
	header  http.Header
	body    []byte
	problem gateway.Problem
	link    gateway.Link
}

func (a *answer) lost() bool { return a.status == 0 }

func (a *answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// position returns where the answer says its decision stands, and whether it says so.
func (a *answer) position() (events.Position, bool) {
	p, err := events.ParsePosition(a.header.Get("Hoplog-Position"))
	return p, err == nil
}

func (a *answer) String() string {
	if a.lost() {
		return "no answer"
	}
	text := fmt.Sprintf("%d", a.status)
	if a.problem.Code != "" {
		text += " " + string(a.problem.Code) + " (" + a.problem.Detail + ")"
	}
	if a.link.Code != "" {
		text += fmt.Sprintf(" %s/%s v%d", a.link.Domain, a.link.Code, a.link.Version)
	}
	if a.replayed() {
		text += " replayed"
	}
	return text + " " + a.header.Get("Hoplog-Position")
}

// send asks a process and waits for the answer, until ctx is done or the process is killed.
func (p *process) send(ctx context.Context, r *request) *answer {
	l := p.enter()
	if l == nil {
		return &answer{}
	}
	if !l.open.Load() {
		l.calls.Done()
		return &answer{}
	}
	a := &answer{life: l}
	recorder := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer l.calls.Done()
		l.api.ServeHTTP(recorder, r.http(ctx))
		close(done)
	}()
	select {
	case <-done:
	case <-l.dead:
		return a
	}
	select {
	case <-l.dead: // at the same moment: what was not said before the end was not said
		return a
	default:
	}
	if ctx.Err() != nil {
		return a
	}
	a.status, a.header, a.body = recorder.Code, recorder.Result().Header, recorder.Body.Bytes()
	if err := a.decode(r); err != nil {
		p.w.fail("%s answers %s with %d and a body that cannot be read: %v", p.name, r, a.status, err)
	}
	return a
}

// decode reads a problem or a link; other bodies are left to those who asked for them.
func (a *answer) decode(r *request) error {
	switch {
	case a.status >= http.StatusBadRequest:
		return json.Unmarshal(a.body, &a.problem)
	case a.status != http.StatusAccepted && !r.other:
		return json.Unmarshal(a.body, &a.link)
	}
	return nil
}

// enter begins a call of the life at hand, which does not close its stores before the call is over.
func (p *process) enter() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		p.life.calls.Add(1)
	}
	return p.life
}

func (r *request) http(ctx context.Context) *http.Request {
	out := httptest.NewRequestWithContext(ctx, r.method, r.path, strings.NewReader(r.body))
	out.Header.Set("Authorization", "Bearer "+secretOf(r.owner))
	for name, value := range map[string]string{"Idempotency-Key": r.key, "Hoplog-Position": r.position, "If-Match": r.ifMatch} {
		if value != "" {
			out.Header.Set(name, value)
		}
	}
	return out
}

func secretOf(owner string) string { return "secret of " + owner }

func linkPath(domain, code string) string { return "/v1/links/" + domain + "/" + url.PathEscape(code) }

// floors are versions below which a life has no right to fall back: it has shown them.
type floors struct {
	mu       sync.Mutex
	versions map[string]uint64 // by route key
}

func (f *floors) of(domain, code string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.versions[events.RouteKey(domain, code)]
}

func (f *floors) raise(domain, code string, version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.versions == nil {
		f.versions = map[string]uint64{}
	}
	route := events.RouteKey(domain, code)
	f.versions[route] = max(f.versions[route], version)
}
