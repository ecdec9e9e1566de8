package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/client"
)

const linkJSON = `{"domain":"s.example","code":"x","short_url":"https://s.example/x","target":"https://example.com/","title":"","tags":[],"owner":"alice","status":"active",` +
	`"version":1,"redirect_status":302,"query":"keep","cache_ttl":0,"not_before":null,"expires_at":null,"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}`

func problemJSON(status int, code string) string {
	return fmt.Sprintf(`{"type":"urn:hoplog:error:%s","title":"t","status":%d,"detail":"d","code":%q,"field":"f"}`, code, status, code)
}

// step is one scripted answer; status 0 cuts the connection.
type step struct {
	status int
	body   string
	header map[string]string
}

// script stands in for a server in trouble: it answers its steps in order, then the last one again.
type script struct {
	mu    sync.Mutex
	steps []step
	seen  []string // method, path, key, If-Match, body
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	next := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	s.seen = append(s.seen, strings.Join([]string{r.Method, r.URL.EscapedPath(), r.Header.Get("Idempotency-Key"), r.Header.Get("If-Match"), string(body)}, " "))
	s.mu.Unlock()
	if next.status == 0 {
		panic(http.ErrAbortHandler)
	}
	for name, value := range next.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body)
}

// requests is what was seen. A connection may be cut before its request's handler has ended.
func (s *script) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func start(t *testing.T, steps ...step) (*client.API, *script) {
	t.Helper()
	s := &script{steps: steps}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	api, err := client.New(client.Config{Server: server.URL + "/", Key: "k", Attempts: 4, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return api, s
}

func TestWriteRepeatsWithTheSameKeyUntilItIsDecided(t *testing.T) {
	api, s := start(t, step{status: 0}, step{status: 503, body: problemJSON(503, "outcome_unknown")}, step{status: 202, body: `{"key":"x","state":"RECEIVED"}`},
		step{status: 200, body: linkJSON, header: map[string]string{"Idempotency-Replayed": "true", "Hoplog-Position": "link/1/2"}})
	w, err := api.Create(t.Context(), client.LinkCreate{Target: "https://example.com/"}, client.Options{})
	if err != nil || w.Link.Code != "x" || !w.Replayed || w.Created || w.Position != "link/1/2" || w.Key == "" {
		t.Fatalf("%+v, %v", w, err)
	}
	for _, seen := range s.requests() {
		if want := "POST /v1/links " + w.Key + `  {"target":"https://example.com/"}`; seen != want {
			t.Errorf("sent %q, wanted %q", seen, want)
		}
	}
	if len(s.requests()) != 4 {
		t.Errorf("%d tries", len(s.requests()))
	}
}

func TestUndecidedWriteNamesItsKey(t *testing.T) {
	for _, steps := range [][]step{{{status: 0}}, {{status: 503, body: problemJSON(503, "unavailable")}}, {{status: 202, body: `{}`}}} {
		api, s := start(t, steps...)
		_, err := api.Create(t.Context(), client.LinkCreate{}, client.Options{Key: "mine"})
		var undecided *client.UndecidedError
		if !errors.Is(err, client.ErrUndecided) || !errors.As(err, &undecided) || undecided.Key != "mine" || len(s.requests()) != 4 {
			t.Errorf("%v after %d tries", err, len(s.requests()))
		}
	}
}

func TestRefusalIsTypedAndFinal(t *testing.T) {
	api, s := start(t, step{status: 412, body: problemJSON(412, "version_mismatch")})
	_, err := api.Update(t.Context(), "localhost:8081", "a+b/ä", map[string]any{"title": nil}, client.Options{Key: "k", IfVersion: 3, Reason: "why"})
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.ErrorCodeVersionMismatch || errors.Is(err, client.ErrUndecided) {
		t.Errorf("%v", err)
	}
	if want := `PATCH /v1/links/localhost:8081/a+b%2F%C3%A4 k "3" {"reason":"why","title":null}`; len(s.requests()) != 1 || s.requests()[0] != want {
		t.Errorf("sent %q, wanted %q", s.requests(), want)
	}
}

func TestBatchRepeatsForOpenRows(t *testing.T) {
	open := `{"results":[{"status":503,"error":` + problemJSON(503, "outcome_unknown") + `},{"status":400,"error":` + problemJSON(400, "invalid_target") + `}]}`
	api, s := start(t, step{status: 200, body: open}, step{status: 200, body: strings.Replace(open, `{"status":503,"error":`+problemJSON(503, "outcome_unknown"), `{"status":200,"link":`+linkJSON, 1)})
	results, key, err := api.CreateBatch(t.Context(), make([]client.LinkCreate, 2), client.Options{})
	if err != nil || results[0].Link == nil || results[1].Error.Code != client.ErrorCodeInvalidTarget || len(s.requests()) != 2 || key == "" || s.requests()[0] != s.requests()[1] {
		t.Errorf("%+v, %v, %q", results, err, s.requests())
	}
	api, _ = start(t, step{status: 200, body: `{"results":[]}`})
	if _, _, err := api.CreateBatch(t.Context(), make([]client.LinkCreate, 2), client.Options{}); !errors.Is(err, client.ErrAnswer) {
		t.Errorf("%v", err)
	}
}

func TestForeignAnswers(t *testing.T) {
	for _, foreign := range []step{{status: 200, body: "<html>"}, {status: 404, body: "404 page not found"}, {status: 500, body: "{}"}} {
		api, _ := start(t, foreign)
		if _, err := api.Get(t.Context(), "s.example", "x", ""); !errors.Is(err, client.ErrAnswer) {
			t.Errorf("%+v: %v", foreign, err)
		}
	}
}

func TestContextEndsTheWait(t *testing.T) {
	api, s := start(t, step{status: 503, body: problemJSON(503, "unavailable"), header: map[string]string{"Retry-After": "60"}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := api.Delete(ctx, "s.example", "x", client.Options{}); !errors.Is(err, client.ErrUndecided) || len(s.requests()) != 1 {
		t.Errorf("%v after %d tries", err, len(s.requests()))
	}
}
