package handler

import (
	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	// maxEnvelope leaves room for the record's headers below the topic's limit.
	maxEnvelope = eventlog.MaxEventBytes - 64<<10
	// maxRequest is what a request key may take of an envelope that is too large otherwise.
	maxRequest = 16 << 10
)

// seal gives an envelope its place in the chain and makes it a record. An envelope that would be too large is replaced by
// one that says so.
func seal(stream string, e *pb.Envelope, bucket uint32, head events.Head, commandOffset, low int64) (eventlog.Record, events.Head, error) {
	e.SchemaVersion = events.SchemaVersion
	e.Bucket, e.Seq, e.PrevHash = bucket, head.Seq+1, head.Hash[:]
	e.CommandOffset, e.LowWatermark = commandOffset, low
	value, hash, err := events.EncodeEnvelope(e)
	if err == nil && len(value) > maxEnvelope {
		shrink(e, head)
		value, hash, err = events.EncodeEnvelope(e)
	}
	if err != nil {
		return eventlog.Record{}, events.Head{}, err
	}
	record := eventlog.Record{Key: events.BucketKey(bucket), Value: value,
		Headers: events.CloudEvent(stream, &events.Envelope{Envelope: e, Hash: hash})}
	next := events.Head{Seq: e.GetSeq(), Hash: hash, CommandOffset: commandOffset,
		TimeUS: head.TimeUS, ControlSeq: max(head.ControlSeq, e.GetStamp().GetControlSeq())}
	if e.GetOutcome().GetError() != events.ErrorCommandExpired {
		next.TimeUS = max(head.TimeUS, e.GetStamp().GetTimeUs())
	}
	return record, next, nil
}

// shrink turns an envelope into the refusal of a command whose envelope would be too large. A repeat meets it again.
func shrink(e *pb.Envelope, head events.Head) {
	if e.GetRequest().SizeVT() > maxRequest {
		e.Request = nil
	}
	timeUS := e.GetStamp().GetTimeUs()
	if e.GetOutcome().GetError() == events.ErrorCommandExpired {
		timeUS = head.TimeUS
	}
	e.Events, e.Actor = nil, ""
	e.Stamp = &pb.Stamp{TimeUs: timeUS, ControlSeq: e.GetStamp().GetControlSeq()}
	e.Outcome = &pb.Outcome{Error: commands.CodeTooLarge, Detail: "the change is too large for one envelope"}
}

// idOf returns the id of the command in a record.
func idOf(value []byte) commandID { return commands.RecordID(value) }
