package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	apiTestDomain  = "localhost:8081"
	apiTestAlias   = "127.0.0.1:8081"
	apiTestForeign = "other.example" // a domain of bob's
	apiTestAlice   = "alice-key"
	apiTestBob     = "bob-key"
	apiTestAdmin   = "admin-key"
)

// apiRig is the command API on real parts: the embedded broker, the handler, and the API's own read models.
type apiRig struct {
	server    *httptest.Server
	deps      APIDeps
	control   *handler.Control
	commands  *handler.Handler
	submitter *Submitter
	source    runner.Source
	controls  *control.Store
}

func apiTestLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func newAPIRig(t testing.TB) *apiRig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const partitions = 4
	logger := apiTestLogger()
	broker, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, logger)
	must(err)
	t.Cleanup(func() { _ = broker.Close() })
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{broker.Addr()}}, logger)
	must(err)
	t.Cleanup(log.Close)
	must(log.WaitReady(ctx, 1))
	must(log.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: partitions}))

	r := &apiRig{}
	r.commands, err = handler.Open(handler.Config{Log: log, Logger: logger, Partitions: partitions, Now: time.Now, Options: &pebble.Options{FS: vfs.NewMem()}})
	must(err)
	r.control = r.commands.Control()
	sender, err := log.NewAppender(eventlog.CommandsLink)
	must(err)
	controlSender, err := log.NewAppender(eventlog.CommandsControl)
	must(err)
	source, options := runner.FromLog(log), runner.PebbleOptions{FS: vfs.NewMem(), Logger: logger}
	controls, err := control.Open(source, logger)
	must(err)
	r.source, r.controls = source, controls
	submitter := NewControlSubmitter(controlSender)
	controls.Watch(submitter.Committed)
	r.submitter = NewSubmitter(sender, partitions)
	byName, err := links.Open(links.Config{Dir: "links", Source: source, Pebble: options, Committed: r.submitter.Committed})
	must(err)
	fresh := NewFreshness(log, eventlog.EventsLink, logger, byName)

	done := make(chan struct{})
	running := 0
	run := func(f func(context.Context) error) {
		running++
		go func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part of the rig ended: %v", err)
			}
			done <- struct{}{}
		}()
	}
	run(r.commands.Run)
	run(controls.Run)
	run(byName.Run)
	run(func(ctx context.Context) error { fresh.Run(ctx); return nil })
	t.Cleanup(func() {
		cancel()
		for range running {
			<-done
		}
		sender.Close()
		controlSender.Close()
		_ = byName.Close()
		_ = r.commands.Close()
	})
	r.settle(ctx, t)
	r.deps = APIDeps{Logger: logger, Metrics: prometheus.NewRegistry(), Control: controls, Links: byName, Submitter: r.submitter, ControlSubmitter: submitter,
		ControlAt: controls, LinksAt: byName, Freshness: fresh, Now: time.Now}
	api, err := NewAPI(r.deps)
	must(err)
	r.server = httptest.NewUnstartedServer(nil)
	r.server.Config = NewAPIServer(api, logger)
	r.server.Start()
	t.Cleanup(r.server.Close)
	apiEventually(t, "the control log is read", func() bool { return controls.Current().Keys() == 3 && fresh.Ready() == nil })
	apiEventually(t, "every partition's writer has ids", func() bool {
		for p := range partitions {
			if r.call(t, "POST", "/v1/links", `{"target":"https://example.com/"}`, "Idempotency-Key", apiKeyOf(p, partitions), "Key", apiTestBob).status >= 300 {
				return false
			}
		}
		return true
	})
	return r
}

// settle writes domains and keys to the control log.
func (r *apiRig) settle(ctx context.Context, t testing.TB) {
	t.Helper()
	hash := func(key string) []byte { sum := sha256.Sum256([]byte(key)); return sum[:] }
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, c := range []*pb.ControlCommand{
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: apiTestDomain, Aliases: []string{apiTestAlias}, IsDefault: true}}},
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: apiTestForeign, Owner: "bob"}}},
		{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}},
		{Kind: &pb.ControlCommand_AddKey{AddKey: &pb.ApiKey{Id: "a", Hash: hash(apiTestAlice), Owner: "alice"}}},
		{Kind: &pb.ControlCommand_AddKey{AddKey: &pb.ApiKey{Id: "b", Hash: hash(apiTestBob), Owner: "bob"}}},
		{Kind: &pb.ControlCommand_AddKey{AddKey: &pb.ApiKey{Id: "root", Hash: hash(apiTestAdmin), Owner: "admin", Admin: true}}},
	} {
		if e, err := r.control.Propose(ctx, c); err != nil || e.GetOutcome().GetError() != "" {
			t.Fatal(e, err)
		}
	}
}

// apiAnswer is one response, read.
type apiAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a apiAnswer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// apiInto decodes a body.
func apiInto[T any](t testing.TB, a apiAnswer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
	return v
}

// call sends one request as alice. The path goes out as it is; headers are name, value, ...; "Key" chooses another caller.
func (r *apiRig) call(t testing.TB, method, path string, body any, headers ...string) apiAnswer {
	t.Helper()
	return apiCall(t, r.server.URL, method, path, body, headers...)
}

func apiCall(t testing.TB, server, method, path string, body any, headers ...string) apiAnswer {
	t.Helper()
	var raw io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		raw = strings.NewReader(b)
	case []byte:
		raw = bytes.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		raw = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, server+path, raw)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+apiTestAlice)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Key" {
			request.Header.Set("Authorization", "Bearer "+headers[i+1])
			continue
		}
		request.Header[headers[i]] = append(request.Header[headers[i]], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return apiAnswer{response.StatusCode, response.Header, answer}
}

// create makes a link of alice's.
func (r *apiRig) create(t testing.TB, fields map[string]any, headers ...string) Link {
	t.Helper()
	a := r.call(t, "POST", "/v1/links", fields, headers...)
	if a.status != http.StatusCreated {
		t.Fatalf("create %v: %v", fields, a)
	}
	return apiInto[Link](t, a)
}

// wantProblem checks a refusal: its status, form and code, and the field if one is wanted.
func wantProblem(t testing.TB, a apiAnswer, status int, code ErrorCode, field string) Problem {
	t.Helper()
	p := apiInto[Problem](t, a)
	if a.status != status || p.Status != status || p.Code != code || p.Title == "" || p.Detail == "" || p.Type != "urn:hoplog:error:"+string(code) ||
		a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v, wanted %d %s", a, status, code)
	}
	if field != "" && orZero(p.Field) != field {
		t.Errorf("%v names field %q, wanted %q", a, orZero(p.Field), field)
	}
	return p
}

func apiPath(link Link, tail string) string {
	return "/v1/links/" + link.Domain + "/" + url.QueryEscape(link.Code) + tail
}

func apiEventually(t testing.TB, what string, probe func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if probe() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}

// apiQuietLogger is for tests in which errors are the point.
func apiQuietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testDraft is a draft of a caller on one default domain.
func testDraft() *draft {
	state := commands.EvolveControl(nil, &pb.Envelope{Seq: 1, Events: []*pb.Event{
		{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: &pb.Domain{Namespace: "s.example", IsDefault: true}}}},
	}})
	return &draft{caller: &pb.ApiKey{Id: "a", Owner: "alice"}, control: state, key: "key", now: time.Unix(1_800_000_000, 0)}
}

// apiKeyOf returns a request key of bob's whose creates go to a partition.
func apiKeyOf(partition, partitions int) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("warm-%d", i)
		if events.PartitionOf(events.BucketOfKey([]byte("bob\x00"+key)), partitions) == int32(partition) {
			return key
		}
	}
}
