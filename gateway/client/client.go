// Package client talks to the command API of Hoplog from Go: typed errors, one idempotency key per write, and repeats with
// that key until the outcome is known. The types and the requests are generated from schemas/openapi.yaml.
//
// Invariant: a write that returns without ErrUndecided was decided, once, however often it was sent. The package must not
// import anything of the project.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Errors of this package, to be matched with errors.Is. Refusals are *Error.
var (
	// ErrUndecided: the write was sent and its outcome is not known; the *UndecidedError has the key to repeat it with.
	ErrUndecided = errors.New("outcome not known")
	// ErrAnswer: the server answered something that is not of this API.
	ErrAnswer = errors.New("unexpected answer")
)

// Error is a refusal that the server answered.
type Error struct{ Problem }

func (e *Error) Error() string {
	if e.Field != nil {
		return fmt.Sprintf("%s: %s: %s", e.Code, *e.Field, e.Detail)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

// UndecidedError is an ErrUndecided with the key of the write and why the last try failed.
type UndecidedError struct {
	Key   string
	Cause error
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("%v (idempotency key %s): %v", ErrUndecided, e.Key, e.Cause)
}

// Unwrap names both the kind and the cause.
func (e *UndecidedError) Unwrap() []error { return []error{ErrUndecided, e.Cause} }

// Config says how to reach the API.
type Config struct {
	Server string // such as http://127.0.0.1:8080
	Key    string
	// HTTP is the transport; default a client of its own with a time-out of 30 s.
	HTTP *http.Client
	// Attempts bounds how often a call is sent; default 5.
	Attempts int
	// Pause between attempts, doubled each time, unless the server says how long; default 100 ms.
	Pause time.Duration
}

const (
	defaultAttempts = 5
	defaultPause    = 100 * time.Millisecond
	defaultTimeout  = 30 * time.Second
	maxIdle         = 256
	maxAnswer       = 64 << 20
)

// API is a client of one server. Safe for concurrent use.
type API struct {
	raw *Client
	cfg Config
}

// New makes a client. It sends nothing yet.
func New(cfg Config) (*API, error) {
	if cfg.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = maxIdle
		cfg.HTTP = &http.Client{Transport: transport, Timeout: defaultTimeout}
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = defaultAttempts
	}
	if cfg.Pause == 0 {
		cfg.Pause = defaultPause
	}
	raw, err := NewClient(strings.TrimRight(cfg.Server, "/"), WithHTTPClient(cfg.HTTP), WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+cfg.Key)
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("making API client: %w", err)
	}
	return &API{raw: raw, cfg: cfg}, nil
}

// Raw returns the generated client, which sends once and decodes nothing.
func (a *API) Raw() *Client { return a.raw }

// answer is one response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends until the answer is final, decodes it into v, and returns it. Not final are 202, 429, 503 and a broken
// connection: the caller makes sure that sending again is harmless.
func (a *API) call(ctx context.Context, v any, send func() (*http.Response, error)) (*answer, error) {
	pause := a.cfg.Pause
	var last error
	for attempt := 1; ; attempt++ {
		got, err := read(send)
		if err == nil && !got.passing() {
			return got, got.decode(v)
		}
		if last = err; err == nil {
			last = got.problem()
		}
		if attempt == a.cfg.Attempts || !wait(ctx, max(pause, got.retryAfter())) {
			return got, last
		}
		pause *= 2
	}
}

// write is call for a write: its error says whether the outcome is known.
func (a *API) write(ctx context.Context, key string, v any, send func() (*http.Response, error)) (*answer, error) {
	got, err := a.call(ctx, v, send)
	if err != nil && (got == nil || got.passing()) {
		return got, &UndecidedError{key, err}
	}
	return got, err
}

func read(send func() (*http.Response, error)) (*answer, error) {
	response, err := send()
	if err != nil {
		return nil, fmt.Errorf("calling the API: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the API's answer: %w", err)
	}
	return &answer{response.StatusCode, response.Header, body}, nil
}

func (a *answer) passing() bool {
	switch a.status {
	case http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// retryAfter is how long the server asks to wait; 0 if it does not.
func (a *answer) retryAfter() time.Duration {
	if a == nil {
		return 0
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func (a *answer) decode(v any) error {
	if a.status < 200 || a.status > 299 {
		return a.problem()
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("%w: status %d: %w", ErrAnswer, a.status, err)
	}
	return nil
}

// problem returns the refusal that the answer is.
func (a *answer) problem() error {
	refusal := &Error{}
	if a.status == http.StatusAccepted {
		return fmt.Errorf("the log has the request, and nobody has decided it yet")
	}
	if err := json.Unmarshal(a.body, &refusal.Problem); err != nil || refusal.Code == "" {
		return fmt.Errorf("%w: status %d: %.200q", ErrAnswer, a.status, a.body)
	}
	return refusal
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func keyOr(key string) string {
	if key == "" {
		return uuid.NewString()
	}
	return key
}

// requestBody is a body that can be sent again.
type requestBody = bytes.Reader

func jsonBody(v any) (*requestBody, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	return bytes.NewReader(body), nil
}

// rewound returns a reader of the same bytes from their beginning: the transport may still hold the one before.
func rewound(body *requestBody) *requestBody {
	again := *body
	_, _ = again.Seek(0, io.SeekStart) // cannot fail: the offset is not negative
	return &again
}
