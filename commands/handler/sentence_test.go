package handler

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Whatever stands in the log of commands is answered by one envelope, in the bucket that its record key names.
func TestSentence4EveryCommandGetsOneEnvelope(t *testing.T) {
	const number, count = 1, 2
	b := newBench(t).drawing()
	w := &writer{partition: &partition{stream: events.StreamLink, eventTopic: "events", commandTopic: "commands", number: number, count: count,
		ledger: b.linkLedger, place: newPlace("events", number, count)}}
	inside := func(n int) *pb.LinkCommand {
		for i := 0; ; i++ {
			c := create("ann", fmt.Sprint("k", n, "-", i), "")
			if events.PartitionOf(commands.BucketFor(c), count) == number {
				return c
			}
		}
	}
	first, refused := inside(1), inside(2)
	refused.GetCreate().CodeLength = 4
	refused.Request.BodyHash = commands.BodyHash(refused)
	encode := func(c *pb.LinkCommand) []byte {
		value, err := c.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	key := events.BucketKey(commands.BucketFor(first))
	list := []struct {
		name       string
		key, value []byte
		outcome    string
		badKey     bool
	}{
		{"a create", key, encode(first), "", false},
		{"its repeat", key, encode(first), "", false},
		{"a refused one", events.BucketKey(commands.BucketFor(refused)), encode(refused), "invalid_request", false},
		{"nonsense", key, []byte("nonsense"), "invalid_request", false},
		{"nothing", key, nil, "invalid_request", false},
		{"a command with nonsense after it", events.BucketKey(commands.BucketFor(inside(3))), append(encode(inside(3)), 0xff), "invalid_request", false},
		{"a payload that routes elsewhere", events.BucketKey(4095), encode(first), "invalid_request", false},
		{"no key", nil, encode(first), "invalid_request", true},
		{"a key of three bytes", []byte{8, 0, 0}, encode(first), "invalid_request", true},
		{"a key that is no bucket", events.BucketKey(5000), encode(first), "invalid_request", true},
		{"another partition's key", events.BucketKey(7), encode(first), "invalid_request", true},
	}
	var records []eventlog.Record
	for i, c := range list {
		records = append(records, eventlog.Record{Offset: int64(i), Key: c.key, Value: c.value, Time: b.clock})
	}
	o := w.ledger.begin()
	defer o.drop()
	out, err := w.decideAll(t.Context(), o, records)
	if err != nil || len(out.records) != len(list) {
		t.Fatalf("%d envelopes for %d commands: %v", len(out.records), len(list), err)
	}
	for i, c := range list {
		e, err := events.DecodeEnvelope(out.records[i].Value)
		if err != nil || e.GetCommandOffset() != int64(i) || e.GetOutcome().GetError() != c.outcome || (len(e.GetEvents()) > 0) != (i == 0) {
			t.Errorf("%s: %v, %v", c.name, e, err)
		}
		if bad := e.GetBucket() == events.BadKeyBucket(number); bad != c.badKey || e.GetOutcome().GetReplayed() != (c.name == "its repeat") {
			t.Errorf("%s: bucket %d, %v", c.name, e.GetBucket(), e.GetOutcome())
		}
	}
}

// What stands in the bucket of bad keys concerns no link and no request.
func TestSentence4BadKeysFeedNothing(t *testing.T) {
	b := newBench(t)
	request := &pb.RequestRef{Owner: "ann", Key: "k"}
	b.fold(&pb.Envelope{Bucket: events.BadKeyBucket(0), Request: request, Stamp: &pb.Stamp{}, Outcome: &pb.Outcome{}})
	if found, err := b.store.get(requestKey(events.BadKeyBucket(0), request)); err != nil || found != nil {
		t.Fatalf("%x, %v", found, err)
	}
}

// unanswered is a producer session whose answers never come.
type unanswered struct{}

func (unanswered) Append(context.Context, int32, []eventlog.Record, int64) error {
	return eventlog.ErrUnknownOutcome
}

func (unanswered) Close() {}

// An append that is not confirmed leaves the writer where it was; what became of it, its next life reads in the log.
func TestSentence7UnconfirmedAppendIsDropped(t *testing.T) {
	w := &world{}
	w.command(0)
	l := w.begin(t)
	l.session = unanswered{}
	if err := l.batch(t.Context(), w.commands); !errors.Is(err, errUnconfirmed) || final(err) {
		t.Fatalf("the life goes on, or none comes after it: %v", err)
	}
	if l.checker.Next() != 0 || len(l.covered) != 0 || len(l.ledger.(*tally).applied) != 0 {
		t.Fatalf("the writer stands at %d and holds %v", l.checker.Next(), l.ledger.(*tally).applied)
	}
}
