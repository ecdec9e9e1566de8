package effects_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/effects"
)

// cdn is what is told to purge: a real HTTP server that answers as it is told.
type cdn struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(urls []string) (status int, header map[string]string)
	asked  [][]string
	header http.Header
}

func newCDN(t *testing.T) *cdn {
	t.Helper()
	c := &cdn{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *cdn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct{ Files []string }
	if err := json.Unmarshal(body, &request); err != nil {
		request.Files = []string{r.Method + " " + r.URL.Path}
	}
	c.mu.Lock()
	c.asked, c.header = append(c.asked, request.Files), r.Header
	answer := c.answer
	c.mu.Unlock()
	if answer == nil {
		return
	}
	status, header := answer(request.Files)
	for name, value := range header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, "you said %s, %s", r.Header.Get("Authorization"), r.Header.Get("X-Key"))
}

func (c *cdn) requests() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// answers makes the CDN give these answers, one after the other; then 200.
func (c *cdn) answers(list ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = func([]string) (int, map[string]string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(list) == 0 {
			return http.StatusOK, nil
		}
		status := list[0]
		list = list[1:]
		return status, nil
	}
}

// secret is given as the token, literal is written into a header.
const secret, literal = "s3cr3t-token", "l1t3r4l-key"

func (c *cdn) config() effects.PurgeConfig {
	return effects.PurgeConfig{
		Request: effects.PurgeRequest{Method: "POST", URL: c.URL + "/purge", Body: `{"files":{{json .URLs}}}`, Headers: []string{"Authorization: Bearer {{.Token}}"},
			Token: secret, Batch: 3},
		Scheme: "https", Timeout: 5 * time.Second,
		Hosts: func(namespace string) []string { return []string{namespace, "alias.example"} },
	}
}

func purger(t *testing.T, cfg effects.PurgeConfig) *effects.Purger {
	t.Helper()
	p, err := effects.NewPurger(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func changeOf(code string) *effects.Change {
	return &effects.Change{Namespace: "s.example", Code: code, Version: 2, Position: "link/1/2", Cached: true}
}

// all purges the codes at once and returns the errors by code.
func all(t *testing.T, p *effects.Purger, codes ...string) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	var mu sync.Mutex
	var done sync.WaitGroup
	errs := map[string]error{}
	for _, code := range codes {
		done.Go(func() {
			err := p.Purge(ctx, changeOf(code))
			mu.Lock()
			defer mu.Unlock()
			errs[code] = err
		})
	}
	done.Wait()
	return errs
}

func TestPurgeBatches(t *testing.T) {
	c := newCDN(t)
	cfg := c.config()
	cfg.Gather = time.Second
	for code, err := range all(t, purger(t, cfg), "a", "é", "b+c") {
		if err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
	want := []string{"https://alias.example/%C3%A9", "https://alias.example/%C3%A9/", "https://alias.example/a", "https://alias.example/a/",
		"https://alias.example/b+c", "https://alias.example/b+c/", "https://s.example/%C3%A9", "https://s.example/%C3%A9/",
		"https://s.example/a", "https://s.example/a/", "https://s.example/b+c", "https://s.example/b+c/"}
	if asked := c.requests(); len(asked) != 1 || !slices.Equal(asked[0], want) {
		t.Errorf("asked %q, want one request for %q", asked, want)
	}
	if c.header.Get("Authorization") != "Bearer "+secret {
		t.Errorf("header %v", c.header)
	}
}

func TestPurgeAnswers(t *testing.T) {
	for status, permanent := range map[int]bool{500: false, 502: false, 408: false, 429: false, 400: true, 401: false, 403: false, 404: true, 405: true, 301: true} {
		c := newCDN(t)
		c.answers(status)
		var log strings.Builder
		cfg := c.config()
		cfg.Request.Headers = append(cfg.Request.Headers, "X-Key: "+literal)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p := purger(t, cfg)
		err := all(t, p, "a")["a"]
		if err == nil || errors.Is(err, effects.ErrPermanent) != permanent {
			t.Errorf("%d: %v", status, err)
		}
		if shown := fmt.Sprint(err) + log.String(); strings.Contains(shown, secret) || strings.Contains(shown, literal) || !strings.Contains(shown, fmt.Sprint(status)) {
			t.Errorf("%d: the error or the log shows a secret, or not the status: %s", status, shown)
		}
		if err := all(t, p, "a")["a"]; err != nil {
			t.Errorf("the next: %v", err)
		}
	}
}

// TestPurgeSplits: one link that the CDN refuses for good costs those that share its request nothing.
func TestPurgeSplits(t *testing.T) {
	c := newCDN(t)
	c.answer = func(urls []string) (int, map[string]string) {
		if slices.Contains(urls, "https://s.example/bad") {
			return http.StatusBadRequest, nil
		}
		return http.StatusOK, nil
	}
	cfg := c.config()
	cfg.Gather = time.Second
	for code, err := range all(t, purger(t, cfg), "bad", "a", "b") {
		if errors.Is(err, effects.ErrPermanent) != (code == "bad") {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestPurgeIsNotSplitForTheTokensSake: what the CDN has against the request it has against every link of it.
func TestPurgeIsNotSplitForTheTokensSake(t *testing.T) {
	for _, status := range []int{401, 403, 404, 405} {
		c := newCDN(t)
		c.answer = func([]string) (int, map[string]string) { return status, nil }
		cfg := c.config()
		cfg.Gather = time.Second
		all(t, purger(t, cfg), "a", "b", "c")
		if asked := c.requests(); len(asked) != 1 {
			t.Errorf("%d: %d requests, want 1", status, len(asked))
		}
	}
}

// TestPurgeToldInTheLog: what the CDN says is for those who ask for it, and without the token then too.
func TestPurgeToldInTheLog(t *testing.T) {
	c := newCDN(t)
	c.answers(http.StatusBadGateway)
	var log strings.Builder
	cfg := c.config()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	all(t, purger(t, cfg), "a")
	if said := log.String(); !strings.Contains(said, "you said Bearer ***") || strings.Contains(said, secret) {
		t.Errorf("logged %q", said)
	}
}

// TestPurgeOfAnImpossibleHeader: what no HTTP client sends is of no use to try again; what can be seen at the start is seen then.
func TestPurgeOfAnImpossibleHeader(t *testing.T) {
	c := newCDN(t)
	cfg := c.config()
	cfg.Request.Batch = 1
	cfg.Request.Headers = []string{"X-Code: {{.Code}}"}
	if err := all(t, purger(t, cfg), "a\nb")["a\nb"]; !errors.Is(err, effects.ErrPermanent) {
		t.Errorf("%v: want one that is of no use to try again", err)
	}
	for _, header := range []string{"X-Key: " + literal + "\x01", literal} {
		cfg.Request.Headers = []string{header}
		if p, err := effects.NewPurger(cfg); err == nil || strings.Contains(err.Error(), literal) {
			t.Errorf("%q: %v", header, err)
			if p != nil {
				p.Close()
			}
		}
	}
}

// TestPurgeWaitsWhenAsked: Retry-After holds every request back, not only that of the link that met it.
func TestPurgeWaitsWhenAsked(t *testing.T) {
	c := newCDN(t)
	first := true
	c.answer = func([]string) (int, map[string]string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if first {
			first = false
			return http.StatusTooManyRequests, map[string]string{"Retry-After": "1"}
		}
		return http.StatusOK, nil
	}
	p := purger(t, c.config())
	if err := all(t, p, "a")["a"]; err == nil {
		t.Fatal("429 is no success")
	}
	began := time.Now()
	if err := all(t, p, "b")["b"]; err != nil || time.Since(began) < 900*time.Millisecond {
		t.Errorf("%v after %s, want success after the second that the CDN asked for", err, time.Since(began))
	}
}

func TestPurgeOfNobody(t *testing.T) {
	c := newCDN(t)
	cfg := c.config()
	cfg.Request.URL += "?token={{.Token}}"
	c.Close()
	err := all(t, purger(t, cfg), "a")["a"]
	if err == nil || errors.Is(err, effects.ErrPermanent) || strings.Contains(err.Error(), secret) {
		t.Errorf("%v: want an error that is worth another try and shows no secret", err)
	}
	slow := newCDN(t)
	release := make(chan struct{})
	slow.answer = func([]string) (int, map[string]string) { <-release; return http.StatusOK, nil }
	defer close(release)
	cfg = slow.config()
	cfg.Timeout = 50 * time.Millisecond
	if err := all(t, purger(t, cfg), "a")["a"]; err == nil || errors.Is(err, effects.ErrPermanent) {
		t.Errorf("%v: want an error that is worth another try", err)
	}
}

func TestPurgeTemplates(t *testing.T) {
	c := newCDN(t)
	cfg := c.config()
	cfg.Request = effects.PurgeRequest{Method: "PURGE", URL: c.URL + "/{{.Namespace}}/{{urlquery .Code}}?v={{.Version}}", Headers: []string{"Host: {{.Namespace}}"}, Batch: 1}
	if err := all(t, purger(t, cfg), "a b")["a b"]; err != nil {
		t.Fatal(err)
	}
	if asked := c.requests(); len(asked) != 1 || asked[0][0] != "PURGE /s.example/a+b" {
		t.Errorf("asked %q", asked)
	}
	for name, broken := range map[string]func(r *effects.PurgeRequest){
		"one link's fields in a batch": func(r *effects.PurgeRequest) { r.Batch = 2 },
		"no template":                  func(r *effects.PurgeRequest) { r.Body = "{{" },
		"no such field":                func(r *effects.PurgeRequest) { r.Body = "{{.Nothing}}" },
		"no URL":                       func(r *effects.PurgeRequest) { r.URL = "cdn.example/purge" },
		"no header":                    func(r *effects.PurgeRequest) { r.Headers = []string{"X"} },
		"no method":                    func(r *effects.PurgeRequest) { r.Method = "a b" },
		"no batch":                     func(r *effects.PurgeRequest) { r.Batch = 0 },
	} {
		wrong := cfg
		broken(&wrong.Request)
		if p, err := effects.NewPurger(wrong); err == nil {
			p.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
