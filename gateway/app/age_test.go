package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway"
)

// oneLog is a log that ends at 1, unless it is away, and a follower of it.
type oneLog struct {
	away bool
	at   int64
}

func (l *oneLog) Ends(context.Context, string) ([]int64, error) {
	if l.away {
		return nil, errors.New("away")
	}
	return []int64{1}, nil
}

func (l *oneLog) Positions() []int64 { return []int64{l.at} }

func (l *oneLog) Err() error { return nil }

// aged is the age of a read model that was whole so long ago when the process started; 0: never.
func aged(t *testing.T, log *oneLog, stored time.Duration) *dataAge {
	f := gateway.NewFreshness(log, "topic", slog.New(slog.DiscardHandler), log)
	f.Every = time.Millisecond
	part := agePart{of: log, measured: f, mark: func(time.Time) error { return nil }}
	if stored > 0 {
		part.stored = time.Now().Add(-stored)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if !log.away {
		for end := time.Now().Add(2 * time.Minute); f.Asked().IsZero() || log.at == 1 && f.AsOf().IsZero(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the log is not asked")
			}
		}
	}
	return &dataAge{parts: []agePart{part}}
}

func TestAgeOfANode(t *testing.T) {
	for _, c := range []struct {
		name        string
		log         oneLog
		stored      time.Duration
		since       time.Duration // the start
		state, says string
		tells       string // why it cannot tell what is missing; empty: it can
	}{
		{"new, reading", oneLog{at: 0}, 0, time.Hour, stateNot, "first time", "to its end"},
		{"new, without the log", oneLog{away: true}, 0, time.Hour, stateNot, "first time", "to its end"},
		{"new, at the end", oneLog{at: 1}, 0, time.Hour, stateReady, "", ""},
		{"started again, behind", oneLog{at: 0}, time.Hour, time.Hour, stateNot, "since this node stopped", "to its end"},
		{"started again, at the end", oneLog{at: 1}, time.Hour, time.Hour, stateReady, "", ""},
		{"started without the log a moment ago", oneLog{away: true}, time.Hour, 0, stateNot, "since this node stopped", "to its end"},
		{"started without the log", oneLog{away: true}, time.Hour, time.Minute, stateDegraded, "as of 1h0m", "to its end"},
		{"stopped and started in a moment, without the log", oneLog{away: true}, 10 * time.Second, time.Minute, stateDegraded, "as of 10s", "to its end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := aged(t, &c.log, c.stored)
			if h := a.health(time.Now().Add(-c.since)); h.State != c.state || !strings.Contains(h.Reason, c.says) {
				t.Errorf("%+v, want %s %q", h, c.state, c.says)
			}
			err := a.tell()
			if (err == nil) != (c.tells == "") || err != nil && !strings.Contains(err.Error(), c.tells) {
				t.Errorf("of what is missing it says %v, want %q", err, c.tells)
			}
		})
	}
}

func TestReportOfHealth(t *testing.T) {
	h := newHealth()
	h.add("redirect", func() roleHealth { return degraded("no pulse") })
	h.addAge(func() (time.Duration, bool) { return 1500 * time.Millisecond, true })
	if r := h.report(); r.State != stateNot || r.Ready || len(r.Reasons) != 2 {
		t.Errorf("starting: %+v", r)
	}
	h.started()
	if r := h.report(); r.State != stateDegraded || !r.Ready || len(r.Reasons) != 1 || r.Reasons[0] != "redirect: no pulse" || *r.DataAge != 1.5 {
		t.Errorf("%+v", r)
	}
	h.addAge(func() (time.Duration, bool) { return 0, false })
	if r := h.report(); r.DataAge != nil {
		t.Errorf("an age that nobody knows: %v", *r.DataAge)
	}
	h.drain()
	if r := h.report(); r.State != stateNot || r.Ready || !r.Draining {
		t.Errorf("draining: %+v", r)
	}
}
