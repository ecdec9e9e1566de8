package control_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/schemas/pb"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func event(e *pb.Event) *pb.Envelope { return &pb.Envelope{Events: []*pb.Event{e}} }

func domain(namespace string, aliases ...string) *pb.Envelope {
	return event(&pb.Event{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{
		Domain: &pb.Domain{Namespace: namespace, Aliases: aliases, IsDefault: true}}}})
}

func TestFollowsTheControlLog(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	broker, log := runnertest.Broker(t, 4), runnertest.NewLog(eventlog.EventsControl, 1)
	s, err := control.Open(runner.FromLog(broker), slog.New(slog.DiscardHandler))
	must(t, err)
	defer s.Close()
	if s.Current() != nil || s.Seq() != 0 || s.Current().DefaultDomain() != nil {
		t.Error("something is there before anything happened")
	}
	life, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.Run(life) }()

	log.Append(domain("s.example", "alias.example"))
	must(t, log.Ship(ctx, broker))
	must(t, s.WaitSeq(ctx, 1))
	first := s.Current()
	if first.Seq != 1 || first.DefaultDomain().GetNamespace() != "s.example" || first.Resolve("alias.example") != first.DefaultDomain() {
		t.Errorf("got %+v", first)
	}

	hash := [32]byte{1}
	log.AppendVoid(events.ControlBucket)
	log.Append(event(&pb.Event{Kind: &pb.Event_KeyAdded{KeyAdded: &pb.KeyAdded{Key: &pb.ApiKey{Id: "k", Hash: hash[:], Owner: "acme"}}}}))
	log.Append(&pb.Envelope{Outcome: &pb.Outcome{Error: "invalid_request"}})
	must(t, log.Ship(ctx, broker))
	must(t, s.WaitSeq(ctx, 3))
	if c := s.Current(); c.Seq != 3 || s.Seq() != 3 || c.Key(hash).GetOwner() != "acme" || c.DefaultDomain() == nil {
		t.Errorf("got %+v", c)
	}
	if first.Keys() != 0 {
		t.Error("a state that was handed out has changed")
	}
	stop()
	must(t, <-ended)
}

func TestPoisonShowsNothingOfItsBatch(t *testing.T) {
	log := runnertest.NewLog(eventlog.EventsControl, 1)
	s, err := control.Open(log, slog.New(slog.DiscardHandler))
	must(t, err)
	log.Append(domain("s.example"))
	log.Append(event(&pb.Event{Kind: &pb.Event_KeyAdded{KeyAdded: &pb.KeyAdded{Key: &pb.ApiKey{Hash: []byte("short")}}}}))
	var poison *runner.Poison
	if err := s.RunToEnd(context.Background()); !errors.As(err, &poison) || poison.Seq != 2 {
		t.Errorf("got %v", err)
	}
	if s.Current() != nil {
		t.Error("a part of the batch is shown")
	}
}
