package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// chaosWrite is a write that can be attempted again.
type chaosWrite struct {
	link    *chaosLink
	server  *chaosServer
	method  string
	path    string
	body    fields
	headers []string
	op      linkOp
}

// create makes a link: mostly with one request, sometimes with several at once, of one key or for one custom code.
func (w *chaosWorker) create() {
	link := w.newLink()
	requests := []chaosWrite{w.creation(link, "")}
	switch w.random.IntN(5) {
	case 0: // one key, at once
		requests = append(requests, requests[0])
		requests[1].server = w.api()
	case 1: // one code, two keys
		code := fmt.Sprintf("chaos-code-%d", link.number)
		requests = []chaosWrite{w.creation(link, code), w.creation(link, code)}
	}
	var group sync.WaitGroup
	for i := range requests {
		seeds := [2]uint64{w.random.Uint64(), w.random.Uint64()}
		group.Go(func() {
			clone := &chaosWorker{chaosLoad: w.chaosLoad, number: w.number, random: rand.New(rand.NewPCG(seeds[0], seeds[1]))}
			clone.untilKnown(requests[i])
		})
	}
	group.Wait()
	if link.version() > 0 {
		w.publish(link)
	} else {
		w.broken("link %d was not created", link.number)
	}
}

func (w *chaosWorker) creation(link *chaosLink, code string) chaosWrite {
	key := w.key()
	body := fields{"target": "https://example.com/chaos/" + key}
	if code != "" {
		body["code"] = code
	}
	link.mu.Lock()
	link.keys = append(link.keys, key)
	link.mu.Unlock()
	return chaosWrite{link: link, server: w.api(), method: "POST", path: "/v1/links", body: body, op: linkOp{kind: opCreate, key: key, target: body["target"].(string)}}
}

// edit changes a link's target, with or without a key, with or without If-Match.
func (w *chaosWorker) edit(link *chaosLink) {
	key := w.key()
	body := fields{"target": "https://example.com/chaos/" + key}
	r := chaosWrite{link: link, server: w.api(), method: "PATCH", path: w.path(link), body: body, op: linkOp{kind: opEdit, key: key, target: body["target"].(string)}}
	if w.random.IntN(2) == 0 {
		r.op.ifVersion = max(1, link.version()-w.random.IntN(10)/9) // now and then an old one
		r.headers = append(r.headers, "If-Match", fmt.Sprintf("%q", fmt.Sprint(r.op.ifVersion)))
	}
	if w.random.IntN(3) == 0 {
		r.op.key = ""
		w.attempt(r)
		return
	}
	w.untilKnown(r)
	if w.random.IntN(10) == 0 { // again, though it was answered
		r.server = w.api()
		w.untilKnown(r)
	}
}

func (w *chaosWorker) path(link *chaosLink) string { return "/v1/links/" + w.domain + "/" + link.code }

// untilKnown repeats a write with its key until its outcome is known, also when the load ends.
func (w *chaosWorker) untilKnown(r chaosWrite) {
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(time.Duration(10+w.random.IntN(60)) * time.Millisecond) {
		if w.attempt(r) {
			return
		}
		r.server = w.api()
	}
	w.broken("no outcome within two minutes: %s %s %v", r.method, r.path, r.body)
}

// attempt sends a write once and writes down what came of it. False: nobody knows, or it was surely not sent.
func (w *chaosWorker) attempt(r chaosWrite) (known bool) {
	headers := r.headers
	if r.op.key != "" {
		headers = append([]string{"Idempotency-Key", r.op.key}, headers...)
	}
	op, _ := r.link.ask(r.op, r.server, false)
	a, err := r.server.call(w.patience(), r.method, r.path, r.body, headers...)
	problem := a.str("code")
	switch {
	case errors.Is(err, errNotDialled):
	case err != nil, a.status == http.StatusAccepted, a.status == http.StatusServiceUnavailable && problem == "outcome_unknown":
		r.link.loses(w.number, op)
		w.counts.lost.Add(1)
	case a.status == http.StatusServiceUnavailable && (problem == "unavailable" || problem == "command_expired"):
		w.counts.notSent.Add(1) // it had no effect: none of what follows may show one
	case a.status == http.StatusOK, a.status == http.StatusCreated:
		w.succeeded(r, op, a)
		return true
	case a.status == http.StatusConflict && problem == "code_taken", a.status == http.StatusPreconditionFailed && problem == "version_mismatch":
		r.link.answered(w.number, op, linkAnswer{refused: problem, replayed: a.header.Get("Idempotency-Replayed") == "true"}, a.header.Get("Hoplog-Position"))
		w.count(r.op.kind, false)
		w.counts.refused.Add(1)
		w.acknowledged(a.header.Get("Hoplog-Position"))
		return true
	default:
		w.broken("%s %s %v of link %d: %d %s", r.method, r.path, r.body, r.link.number, a.status, a.raw)
		r.link.loses(w.number, op)
		w.counts.lost.Add(1)
	}
	return false
}

func (w *chaosWorker) succeeded(r chaosWrite, op asked, a answer) {
	var shown struct {
		Code, Target string
		Version      int
	}
	if err := json.Unmarshal([]byte(a.raw), &shown); err != nil || shown.Code == "" || shown.Version == 0 {
		w.broken("%s %s: %d %q is no link: %v", r.method, r.path, a.status, a.raw, err)
	}
	position := a.header.Get("Hoplog-Position")
	if bucketOf(position) < 0 {
		w.broken("%s %s: the position is %q", r.method, r.path, position)
	}
	r.link.mu.Lock()
	if r.link.code == "" {
		r.link.code = shown.Code
	}
	code := r.link.code
	r.link.mu.Unlock()
	if code != shown.Code {
		w.broken("key %s has the codes %s and %s", r.op.key, code, shown.Code)
	}
	out := linkAnswer{version: shown.Version, target: shown.Target, replayed: a.header.Get("Idempotency-Replayed") == "true"}
	if r.op.kind == opCreate && (a.status == http.StatusCreated) == out.replayed {
		w.broken("a create is answered %d, replayed: %v", a.status, out.replayed)
	}
	r.link.answered(w.number, op, out, position)
	w.count(r.op.kind, false)
	if out.replayed {
		w.counts.replays.Add(1)
	}
	w.acknowledged(position)
}
