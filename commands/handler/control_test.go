package handler

import (
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

func TestControlCommands(t *testing.T) {
	now := time.Now()
	domain := func(change func(*pb.ControlCommand)) []byte {
		c := &pb.ControlCommand{SchemaVersion: 1, CommandId: make([]byte, 16), TimeUs: now.UnixMicro(), Actor: "test",
			Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: site}}}
		change(c)
		value, err := c.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, c := range map[string]struct {
		value []byte
		want  string
	}{
		"good":            {domain(func(*pb.ControlCommand) {}), ""},
		"nonsense":        {[]byte("nonsense"), "invalid_request"},
		"newer":           {domain(func(c *pb.ControlCommand) { c.SchemaVersion = 99 }), "invalid_request"},
		"actor not UTF-8": {domain(func(c *pb.ControlCommand) { c.Actor = "\xff" }), "invalid_request"},
		"too old":         {domain(func(c *pb.ControlCommand) { c.TimeUs -= (maxAge + time.Second).Microseconds() }), "command_expired"},
		"from the future": {domain(func(c *pb.ControlCommand) { c.TimeUs += (maxLead + time.Second).Microseconds() }), "command_expired"},
	} {
		l := &controlLedger{now: func() time.Time { return now }}
		e, err := propose(t.Context(), l.begin(), eventlog.Record{Value: c.value, Time: now}, 0, nil, events.Head{Seq: 5})
		if err != nil || e.GetOutcome().GetError() != c.want || (len(e.GetEvents()) == 1) != (c.want == "") || e.GetStamp().GetControlSeq() != 5 {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

// The control stream has one bucket; what came under another key is answered and changes nothing.
func TestControlHasOneBucket(t *testing.T) {
	p := (&Handler{}).controlWorker().partition
	if bucket, err := p.parseKey(events.BucketKey(events.ControlBucket)); bucket != events.ControlBucket || err != nil {
		t.Errorf("its own key: bucket %d, %v", bucket, err)
	}
	bucket, misplaced := p.parseKey(events.BucketKey(5))
	if bucket != events.BadKeyBucket(0) || misplaced == nil {
		t.Errorf("another key: bucket %d, %v", bucket, misplaced)
	}
	now := time.Now()
	good := &pb.ControlCommand{SchemaVersion: 1, CommandId: make([]byte, 16), TimeUs: now.UnixMicro(),
		Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: site}}}
	value, err := good.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	o := (&controlLedger{now: func() time.Time { return now }}).begin().(*controlOverlay)
	e, err := propose(t.Context(), o, eventlog.Record{Value: value, Time: now}, bucket, misplaced, events.Head{})
	if err != nil || e.GetOutcome().GetError() != "invalid_request" || len(e.GetEvents()) != 0 {
		t.Errorf("%v, %v", e, err)
	}
	if err := o.apply(&pb.Envelope{Bucket: bucket, Seq: 9}); err != nil || o.state != nil {
		t.Errorf("the state moved to %v, %v", o.state, err)
	}
}

// A control command with a request key is in its envelope, and a repeat meets the stored outcome.
func TestControlKeepsRequestKeys(t *testing.T) {
	now := time.Now()
	send := func(o overlay, id byte, host string) *pb.Envelope {
		t.Helper()
		c := &pb.ControlCommand{SchemaVersion: 1, CommandId: append(make([]byte, 15), id), TimeUs: now.UnixMicro(), Actor: "key:a",
			Kind: &pb.ControlCommand_AddListEntry{AddListEntry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST, Value: host}}}
		c.Request = &pb.RequestRef{Owner: "ann", Key: "k", BodyHash: commands.ControlBodyHash(c)}
		value, err := c.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		e, err := propose(t.Context(), o, eventlog.Record{Value: value, Time: now}, 0, nil, events.Head{})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.apply(e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	o := (&controlLedger{now: func() time.Time { return now }}).begin()
	first := send(o, 1, "evil.example")
	if first.GetRequest().GetKey() != "k" || len(first.GetEvents()) != 1 || first.GetOutcome().GetReplayed() {
		t.Errorf("the first: %v", first)
	}
	if again := send(o, 2, "evil.example"); len(again.GetEvents()) != 0 || !again.GetOutcome().GetReplayed() {
		t.Errorf("a repeat: %v", again)
	}
	if other := send(o, 3, "other.example"); other.GetOutcome().GetError() != "idempotency_key_reused" {
		t.Errorf("another body: %v", other)
	}
}
