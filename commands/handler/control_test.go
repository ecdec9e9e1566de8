package handler

import (
	"testing"
	"time"

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
		e, err := l.begin().decide(t.Context(), eventlog.Record{Value: c.value, Time: now}, 0, nil, events.Head{Seq: 5})
		if err != nil || e.GetOutcome().GetError() != c.want || (len(e.GetEvents()) == 1) != (c.want == "") || e.GetStamp().GetControlSeq() != 5 {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}
