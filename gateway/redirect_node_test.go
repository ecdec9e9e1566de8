package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

// redirectTestStore is the redirects read model as far as the data plane sees it.
type redirectTestStore struct {
	mu      sync.Mutex
	entries map[string]*redirects.Record
	err     error
	cold    bool // nothing is in memory
	loads   int
}

func (s *redirectTestStore) Load(routeKey []byte) (*redirects.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	return s.entries[string(routeKey)], s.err
}

// loaded returns how often the store was asked.
func (s *redirectTestStore) loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

func (s *redirectTestStore) Find(routeKey []byte) (*redirects.Record, redirects.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	link := s.entries[string(routeKey)]
	switch {
	case s.err != nil || s.cold:
		return nil, redirects.NeedsStore
	case link == nil:
		return nil, redirects.Unknown
	}
	return link, redirects.Hit
}

func (s *redirectTestStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *redirectTestStore) setCold(cold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cold = cold
}

// redirectTestDomains maps normalised hosts to namespaces.
type redirectTestDomains map[string]string

func (d redirectTestDomains) Resolve(host []byte) (string, bool) {
	namespace, ok := d[string(host)]
	return namespace, ok
}

func (d redirectTestDomains) NotFoundURL(string) string { return "" }

// redirectTestNotFound are the same domains, of which some send visitors of unknown codes elsewhere.
type redirectTestNotFound struct {
	RedirectDomains
	urls map[string]string
}

func (d redirectTestNotFound) NotFoundURL(namespace string) string { return d.urls[namespace] }

// clickTestAppender keeps the blocks that it was given. Its answers can be scripted.
type clickTestAppender struct {
	mu     sync.Mutex
	keep   bool
	blocks []*pb.ClickBlock
	fail   func(partition int32) error // nil: all is well
	lost   bool                        // a failed append is not in the log either
	hold   chan struct{}               // answers wait until it is closed
}

func (a *clickTestAppender) AppendAsync(_ context.Context, partition int32, rec eventlog.Record, answer func(int64, error)) {
	a.mu.Lock()
	var err error
	if a.fail != nil {
		err = a.fail(partition)
	}
	if a.keep && (err == nil || !a.lost) {
		block := &pb.ClickBlock{}
		if e := block.UnmarshalVT(bytes.Clone(rec.Value)); e != nil {
			panic(e)
		}
		a.blocks = append(a.blocks, block)
	}
	hold := a.hold
	a.mu.Unlock()
	go func() {
		if hold != nil {
			<-hold
		}
		answer(1, err)
	}()
}

func (a *clickTestAppender) clicks() (all []*pb.Click) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, block := range a.blocks {
		all = append(all, block.GetClicks()...)
	}
	return all
}

func newClickTestRecorder(t testing.TB, appender ClickAppender, config ClickConfig) *ClickRecorder {
	t.Helper()
	recorder, err := NewClickRecorder(appender, config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = recorder.Close(ctx)
	})
	return recorder
}

const redirectTestNow = int64(1_700_000_000_000_000)

// redirectNode is a data plane on a socket.
type redirectNode struct {
	t        testing.TB
	host     string
	address  string
	store    *redirectTestStore
	appender *clickTestAppender
	recorder *ClickRecorder
	redirect *Redirect
}

func newRedirectNode(t testing.TB, change ...func(*RedirectDeps)) *redirectNode {
	t.Helper()
	n := &redirectNode{t: t, host: "s.example", store: &redirectTestStore{entries: map[string]*redirects.Record{}}}
	_, bench := t.(*testing.B)
	n.appender = &clickTestAppender{keep: !bench}
	n.recorder = newClickTestRecorder(t, n.appender, ClickConfig{Node: "node-1", Region: "eu", Partitions: 2, FlushEvery: 5 * time.Millisecond,
		VisitorSecret: []byte("secret")})
	deps := RedirectDeps{Store: n.store, Recorder: n.recorder, Clock: func() int64 { return redirectTestNow }, Logger: slog.New(slog.DiscardHandler),
		Domains: redirectTestDomains{"s.example": "s.example", "alias.example:8081": "s.example", "b.example": "b.example", "xn--bcher-kva.example": "xn--bcher-kva.example"}}
	for _, f := range change {
		f(&deps)
	}
	var err error
	if n.redirect, err = NewRedirect(deps); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- n.redirect.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.redirect.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return n
}

// on returns the same node for a sub-test.
func (n *redirectNode) on(t testing.TB) *redirectNode {
	same := *n
	same.t = t
	return &same
}

// add puts a link on s.example.
func (n *redirectNode) add(code string, record *pb.Redirect) { n.addTo("s.example", code, record) }

func (n *redirectNode) addTo(namespace, code string, record *pb.Redirect) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if record.LinkId == 0 {
		record.LinkId = uint64(len(n.store.entries) + 1)
	}
	if record.Version == 0 {
		record.Version = 1
	}
	key := events.RouteKey(namespace, code)
	n.store.entries[key] = redirects.NewRecord([]byte(key), events.BucketOfKey([]byte(key)), record)
}

// clicks returns what was recorded by now.
func (n *redirectNode) clicks() []*pb.Click {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.recorder.Close(ctx); err != nil {
		n.t.Fatal(err)
	}
	return n.appender.clicks()
}

// redirectAnswer is a response in the bytes that came.
type redirectAnswer struct {
	status int
	header http.Header
	body   string
}

func (a redirectAnswer) location() string { return a.header.Get("Location") }

// send writes raw bytes on a new connection and reads all that comes back until the node closes it.
func (n *redirectNode) send(raw string) string {
	n.t.Helper()
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, raw); err != nil {
		n.t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	data, err := io.ReadAll(c)
	var network net.Error
	if err != nil && errors.As(err, &network) && network.Timeout() {
		n.t.Fatalf("no end of the answer to %.100q: %q", raw, data)
	}
	return string(data)
}

// ask sends one raw request and returns its one answer.
func (n *redirectNode) ask(raw string) redirectAnswer {
	n.t.Helper()
	method, _, _ := strings.Cut(raw, " ")
	all := n.send(raw)
	answers := redirectParseAnswers(n.t, all, method)
	if len(answers) != 1 {
		n.t.Fatalf("%d answers to %.200q: %q", len(answers), raw, all)
	}
	return answers[0]
}

// get asks for a path, byte for byte.
func (n *redirectNode) get(path string, headers ...string) redirectAnswer {
	n.t.Helper()
	return n.visit("GET", n.host, path, headers...)
}

func (n *redirectNode) visit(method, host, path string, headers ...string) redirectAnswer {
	n.t.Helper()
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: " + host, "Connection: close"}, headers...)
	return n.ask(strings.Join(lines, "\r\n") + "\r\n\r\n")
}

// redirectParseAnswers reads responses strictly to requests of this method; with "" each has the body that follows it.
func redirectParseAnswers(t testing.TB, data, method string) (all []redirectAnswer) {
	t.Helper()
	r := bufio.NewReaderSize(strings.NewReader(data), len(data)+16)
	for {
		if _, err := r.Peek(1); err != nil {
			return all
		}
		response, err := http.ReadResponse(r, &http.Request{Method: cmp.Or(method, "HEAD")})
		if err != nil {
			t.Fatalf("answer %d: %v in %q", len(all), err, data)
		}
		body, err := io.ReadAll(response.Body)
		if start, _ := r.Peek(5); method == "" && len(start) > 0 && string(start) != "HTTP/" {
			body, err = io.ReadAll(io.LimitReader(r, response.ContentLength))
		}
		if err != nil {
			t.Fatalf("body of answer %d: %v in %q", len(all), err, data)
		}
		all = append(all, redirectAnswer{status: response.StatusCode, header: response.Header, body: string(body)})
	}
}
