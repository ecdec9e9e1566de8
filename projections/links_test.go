package projections_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

func TestHistoryEntryFoldsToTheLink(t *testing.T) {
	content := &pb.LinkContent{Target: "https://a.example/", Tags: []string{"x"}}
	var link *pb.Link
	for i, event := range []*pb.Event{created(content), changed(2, pb.StatusAction_BAN, true)} {
		e := &events.Envelope{Envelope: &pb.Envelope{Bucket: 3, Seq: uint64(i + 10), Actor: "key:1", Stamp: &pb.Stamp{TimeUs: int64(100 + i)}}}
		e.Hash[0] = byte(i + 1)
		entry := projections.HistoryEntry(e, event)
		if entry.GetSeq() != uint64(i+10) || entry.GetBucket() != 3 || entry.GetActor() != "key:1" || entry.GetHash()[0] != byte(i+1) {
			t.Errorf("entry %v", entry)
		}
		link = projections.EvolveLink(link, entry)
	}
	want := &pb.Link{Ref: ref, Content: content, Version: 2, Banned: true, BannedLegal: true, CreatedUs: 100, UpdatedUs: 101, Fingerprint: []byte{1}}
	if !proto.Equal(link, want) {
		t.Errorf("got  %v\nwant %v", link, want)
	}
}

func TestStoredRequest(t *testing.T) {
	request := &pb.RequestRef{Owner: "acme", Key: "k", BodyHash: []byte("hash")}
	envelope := func(request *pb.RequestRef, outcome *pb.Outcome) *pb.Envelope {
		return &pb.Envelope{Request: request, Outcome: outcome, Stamp: &pb.Stamp{TimeUs: 5}}
	}
	for _, c := range []struct {
		name   string
		given  *pb.Envelope
		stored bool
	}{
		{"success", envelope(request, &pb.Outcome{Code: "abc"}), true},
		{"a refusal is an outcome", envelope(request, &pb.Outcome{Error: "code_taken"}), true},
		{"no request", envelope(nil, &pb.Outcome{}), false},
		{"a repeat", envelope(request, &pb.Outcome{Replayed: true}), false},
		{"the key of another body", envelope(request, &pb.Outcome{Error: "idempotency_key_reused"}), false},
		{"unavailable", envelope(request, &pb.Outcome{Error: "unavailable"}), false},
		{"quota exceeded", envelope(request, &pb.Outcome{Error: "quota_exceeded"}), false},
		{"command expired", envelope(request, &pb.Outcome{Error: "command_expired"}), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := projections.StoredRequest(c.given)
			var want *pb.StoredRequest
			if c.stored {
				want = &pb.StoredRequest{BodyHash: []byte("hash"), TimeUs: 5, Outcome: c.given.GetOutcome()}
			}
			if !proto.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
