package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/viper"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// awayAtFirst is a log that cannot be asked a few times.
type awayAtFirst struct {
	runner.Source
	fails atomic.Int32
}

func (s *awayAtFirst) Ends(ctx context.Context, topic string) ([]int64, error) {
	if s.fails.Add(-1) >= 0 {
		return nil, errors.New("nobody leads the partition")
	}
	return s.Source.Ends(ctx, topic)
}

// A release that adds topics of one role is rolled out in any order: the other roles do not wait for them.
func TestOnlyEffectsWaitForTheirTopics(t *testing.T) {
	for role, wants := range map[string]bool{roleAPI: false, roleRedirect: false, roleAnalytics: false, roleEffects: true} {
		awaited := (&node{roles: []string{role}}).awaited()
		if !slices.Contains(awaited, eventlog.EventsLink) {
			t.Errorf("%s does not wait for the links", role)
		}
		for _, topic := range []string{eventlog.EffectsDead, eventlog.EffectsRetry} {
			if slices.Contains(awaited, topic) != wants {
				t.Errorf("%s waits for %s: %v, want %v", role, topic, !wants, wants)
			}
		}
	}
}

// No server starts before it knows the domains and keys of the control log, also when that cannot be read at once.
func TestControlIsReadBeforeServersStart(t *testing.T) {
	log := runnertest.NewLog(eventlog.EventsControl, 1)
	log.Append(&pb.Envelope{Events: []*pb.Event{{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{
		Domain: &pb.Domain{Namespace: "s.example", IsDefault: true}}}}}})
	source := &awayAtFirst{Source: log}
	source.fails.Store(3)
	v := viper.New()
	v.Set("data", t.TempDir())
	n := &node{settings: settings{v}, roles: []string{roleAPI}, logger: slog.New(slog.DiscardHandler), source: source, health: newHealth(),
		registry: prometheus.NewRegistry()}
	n.life, n.end = context.WithCancel(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := n.watchDisk(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.startControl(ctx); err != nil {
		t.Fatal(err)
	}
	if n.control.Current().DefaultDomain().GetNamespace() != "s.example" {
		t.Errorf("servers would start with %v", n.control.Current())
	}
}
