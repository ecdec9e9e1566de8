package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// chaosServer is a process under chaos as users see it: an address that is sometimes not there.
type chaosServer struct {
	*process
	name   string
	lives  atomic.Int64
	client *http.Client
}

func newChaosServer(p *process, name string) *chaosServer {
	s := &chaosServer{process: p, name: name, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2 * chaosWorkers, DisableCompression: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.lives.Store(1)
	return s
}

func (s *chaosServer) life() life { return life{s, s.lives.Load()} }

// relaunch starts the process again on its data; it may not be ready for a while.
func (s *chaosServer) relaunch() {
	s.lives.Add(1)
	s.launch()
}

// errNotDialled: there was no connection, so nothing was sent.
var errNotDialled = errors.New("no connection")

// call makes one request, and only one: the client would repeat one with an Idempotency-Key by itself if it could read the
// body again.
func (s *chaosServer) call(patience time.Duration, method, path string, body fields, headers ...string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var raw []byte
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return a, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.ports["api"]+path, bytes.NewReader(raw))
	if err != nil {
		return a, err
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+adminKey)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err == nil {
		a, err = answerOf(resp)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = errNotDialled
	}
	return a, err
}

// visit asks the redirects for a code.
func (s *chaosServer) visit(patience time.Duration, method, domain, code string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := &http.Request{Method: method, URL: &url.URL{Scheme: "http", Host: s.ports["redirect"], Opaque: "/" + code},
		Header: http.Header{"User-Agent": {browser}}, Host: domain}
	resp, err := s.client.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return a, err
	}
	return answerOf(resp)
}

func answerOf(resp *http.Response) (a answer, err error) {
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a = answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // what is no object stays in raw
	return a, err
}

// readAnswerOf reads the answer to a read, and the position of a history's end.
func readAnswerOf(kind string, a answer) (out linkAnswer, last string, ok bool) {
	switch {
	case a.status == http.StatusNotFound && a.str("code") == "not_found":
		return out, "", true
	case a.status != http.StatusOK:
		return out, "", false
	case kind == opRead:
		var shown struct {
			Target  string
			Version int
		}
		ok = json.Unmarshal([]byte(a.raw), &shown) == nil
		return linkAnswer{version: shown.Version, target: shown.Target}, "", ok
	}
	events, ok := eventsOf(a)
	for i, e := range events {
		ok = ok && e.Version == i+1
		out.targets, last = append(out.targets, e.target()), e.Position
	}
	out.version = len(events)
	return out, last, ok
}

// chaosEvent is an event of a link's history.
type chaosEvent struct {
	Version              int
	Type, Position, Hash string
	Changes              map[string]struct{ To any }
}

func (e chaosEvent) target() string { s, _ := e.Changes["target"].To.(string); return s }

func eventsOf(a answer) ([]chaosEvent, bool) {
	var history struct{ Events []chaosEvent }
	err := json.Unmarshal([]byte(a.raw), &history)
	return history.Events, err == nil && a.status == http.StatusOK
}
