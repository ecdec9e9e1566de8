package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// muteLog is a stand-in for a log in trouble: it answers as told, and nobody decides what it was given.
type muteLog struct {
	err     error         // of every append
	silent  bool          // no append is ever answered
	delayed time.Duration // the answer comes later

	mu   sync.Mutex
	sent [][]byte
}

func (m *muteLog) AppendAsync(_ context.Context, _ int32, rec eventlog.Record, answer func(int64, error)) {
	m.mu.Lock()
	m.sent = append(m.sent, rec.Value)
	m.mu.Unlock()
	if !m.silent {
		time.AfterFunc(m.delayed, func() { answer(1, m.err) })
	}
}

// TestAPIWithoutAnswers: what a caller is told when the log or its writer is in trouble.
func TestAPIWithoutAnswers(t *testing.T) {
	r := newAPIRig(t)
	link := r.create(t, map[string]any{"target": "https://example.com/"})
	create := func(server string) apiAnswer {
		return apiCall(t, server, "POST", "/v1/links", `{"target":"https://example.com/"}`, "Idempotency-Key", "w/1")
	}
	patch := func(server string) apiAnswer {
		return apiCall(t, server, "PATCH", apiPath(link, ""), `{"title":"x"}`, "Idempotency-Key", "w-2")
	}
	with := func(log CommandLog, change func(*APIDeps)) string {
		deps := r.deps
		deps.Metrics = prometheus.NewRegistry()
		deps.Submitter = NewSubmitter(log, 4)
		if change != nil {
			change(&deps)
		}
		api, err := NewAPI(deps)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(api)
		t.Cleanup(server.Close)
		return server.URL
	}
	for name, c := range map[string]struct {
		log  *muteLog
		code ErrorCode
	}{
		"no room":    {&muteLog{err: fmt.Errorf("x: %w", eventlog.ErrNotSent)}, ErrorCodeUnavailable},
		"closed":     {&muteLog{err: eventlog.ErrClosed}, ErrorCodeUnavailable},
		"dead":       {&muteLog{err: eventlog.ErrAppenderDead}, ErrorCodeUnavailable},
		"unknown":    {&muteLog{err: eventlog.ErrUnknownOutcome}, ErrorCodeOutcomeUnknown},
		"unexpected": {&muteLog{err: errors.New("x")}, ErrorCodeOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := with(c.log, nil)
			for _, a := range []apiAnswer{create(server), patch(server)} {
				if wantProblem(t, a, 503, c.code, ""); a.header.Get("Retry-After") == "" || a.header.Get("Idempotency-Key") == "" {
					t.Errorf("%v", a.header)
				}
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		wantProblem(t, create(with(&muteLog{err: eventlog.ErrTooLarge}, nil)), 413, ErrorCodeTooLarge, "")
	})
	t.Run("acknowledged and not decided", func(t *testing.T) {
		t.Parallel()
		server := with(&muteLog{}, nil)
		began := time.Now()
		a := create(server)
		report := apiInto[RequestReport](t, a)
		if took := time.Since(began); a.status != http.StatusAccepted || report.Key != "w/1" || report.State != RequestStateRECEIVED || a.header.Get("Location") != "/v1/requests/w%2F1" || took < writeWait || took > writeWait+time.Second {
			t.Errorf("%v %v after %v", a, a.header, time.Since(began))
		}
		wantProblem(t, patch(server), 503, ErrorCodeOutcomeUnknown, "")
		if unknown := apiInto[RequestReport](t, r.call(t, "GET", a.header.Get("Location"), nil)); unknown.State != RequestStateUnknown {
			t.Errorf("%+v", unknown)
		}
	})
	t.Run("never acknowledged", func(t *testing.T) {
		t.Parallel()
		wantProblem(t, create(with(&muteLog{silent: true}, nil)), 503, ErrorCodeOutcomeUnknown, "")
	})
	t.Run("a stopped tail", func(t *testing.T) {
		t.Parallel()
		log := &muteLog{}
		stale := NewFreshness(nil, "topic", apiTestLogger(), stoppedFollower{})
		server := with(log, func(d *APIDeps) { d.Freshness = stale })
		wantProblem(t, create(server), 503, ErrorCodeUnavailable, "")
		wantProblem(t, apiCall(t, server, "POST", "/v1/links:batch", `{"links":[{"target":"https://example.com/"}]}`), 503, ErrorCodeUnavailable, "")
		if len(log.sent) != 0 {
			t.Errorf("%d commands were sent all the same", len(log.sent))
		}
	})
	t.Run("a panic", func(t *testing.T) {
		t.Parallel()
		server := with(&muteLog{}, func(d *APIDeps) {
			d.Submitter = nil
			d.Logger = apiQuietLogger()
		})
		wantProblem(t, create(server), 500, ErrorCodeInternal, "")
		if a := apiCall(t, server, "GET", apiPath(link, ""), nil); a.status != 200 {
			t.Errorf("after the panic: %v", a)
		}
	})
}

type stoppedFollower struct{}

func (stoppedFollower) Positions() []int64 { return nil }
func (stoppedFollower) Err() error         { return errors.New("stopped at an alarm") }

func commandsFor(n int) []*pb.LinkCommand {
	list := make([]*pb.LinkCommand, n)
	for i := range list {
		list[i] = &pb.LinkCommand{CommandId: newCommandID(), Namespace: "s.example", Code: fmt.Sprint(i)}
	}
	return list
}

func answerTo(c *pb.LinkCommand) runner.Accepted {
	return runner.Accepted{Envelope: &events.Envelope{Envelope: &pb.Envelope{CommandId: c.GetCommandId(), Seq: 1, Outcome: &pb.Outcome{Code: c.GetCode()}}}}
}

// Each sender gets the envelopes of its own commands, in its own order, whether the acknowledgement or the envelope comes
// first, and what is not its business is ignored.
func TestSubmitterAnswersByCommand(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		s := NewSubmitter(&muteLog{delayed: delay}, 4)
		list := commandsFor(3)
		done := make(chan []Answer)
		go func() { done <- s.Submit(t.Context(), list, 5*time.Second) }()
		apiEventually(t, "three wait", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waiting) == 3 })
		s.Committed([]runner.Accepted{answerTo(commandsFor(1)[0]), answerTo(list[2]), answerTo(list[0])})
		s.Committed([]runner.Accepted{answerTo(list[0]), {Envelope: &events.Envelope{Envelope: &pb.Envelope{}}}, answerTo(list[1])})
		for i, answer := range <-done {
			if answer.Envelope.GetOutcome().GetCode() != fmt.Sprint(i) || answer.Err != nil {
				t.Errorf("answer %d: %+v", i, answer)
			}
		}
		if len(s.waiting) != 0 {
			t.Errorf("%d are still waited for", len(s.waiting))
		}
	}
}

// A sender that went away, or waited long enough, leaves nothing behind; late answers are harmless.
func TestSubmitterForgets(t *testing.T) {
	s := NewSubmitter(&muteLog{delayed: 50 * time.Millisecond}, 4)
	ctx, cancel := context.WithCancel(t.Context())
	list := commandsFor(2)
	time.AfterFunc(10*time.Millisecond, cancel)
	if answers := s.Submit(ctx, list, time.Minute); answers[0].Envelope != nil || answers[0].Acknowledged {
		t.Errorf("%+v", answers)
	}
	if len(s.waiting) != 0 {
		t.Errorf("%d are still waited for", len(s.waiting))
	}
	s.Committed([]runner.Accepted{answerTo(list[0])})
	time.Sleep(60 * time.Millisecond)
	if answers := s.Submit(t.Context(), nil, time.Minute); len(answers) != 0 {
		t.Errorf("%+v", answers)
	}
}
