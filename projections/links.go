package projections

import (
	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// HistoryEntry is what a link's history keeps of one event of an envelope.
func HistoryEntry(e *events.Envelope, event *pb.Event) *pb.HistoryEntry {
	return &pb.HistoryEntry{Event: event, TimeUs: e.GetStamp().GetTimeUs(), Actor: e.GetActor(),
		Bucket: e.GetBucket(), Seq: e.GetSeq(), Hash: e.Hash[:]}
}

// EvolveLink folds one entry of a link's history into its record and returns the new record; nil is a link that does not
// exist yet.
func EvolveLink(link *pb.Link, entry *pb.HistoryEntry) *pb.Link {
	return commands.EvolveLink(link, entry.GetEvent(), entry.GetTimeUs())
}

// StoredRequest is what an envelope leaves under its request key; nil when it leaves what is there.
func StoredRequest(e *pb.Envelope) *pb.StoredRequest {
	if !commands.Stores(e) {
		return nil
	}
	return &pb.StoredRequest{BodyHash: e.GetRequest().GetBodyHash(), TimeUs: e.GetStamp().GetTimeUs(), Outcome: e.GetOutcome()}
}
