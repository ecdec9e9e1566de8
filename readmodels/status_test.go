package readmodels_test

import (
	"testing"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/schemas/pb"
)

// TestStatusAndAnswer holds what the API says of a link against what its visitors meet, at the edges of its times.
func TestStatusAndAnswer(t *testing.T) {
	times := &pb.LinkContent{NotBeforeUs: 100, ExpiresUs: 200}
	do := func(actions ...*pb.LinkStatusChanged) []*pb.LinkStatusChanged { return actions }
	ban, legal := &pb.LinkStatusChanged{Action: pb.StatusAction_BAN}, &pb.LinkStatusChanged{Action: pb.StatusAction_BAN, Legal: true}
	disable, remove := &pb.LinkStatusChanged{Action: pb.StatusAction_DISABLE}, &pb.LinkStatusChanged{Action: pb.StatusAction_DELETE}
	for _, c := range []struct {
		name    string
		content *pb.LinkContent
		events  []*pb.LinkStatusChanged
		now     int64
		status  string
		answer  readmodels.Answer
	}{
		{"always", &pb.LinkContent{}, nil, 150, readmodels.StatusActive, readmodels.Serve},
		{"before its time", times, nil, 99, readmodels.StatusScheduled, readmodels.NotFound},
		{"from its first moment", times, nil, 100, readmodels.StatusActive, readmodels.Serve},
		{"to its last moment", times, nil, 199, readmodels.StatusActive, readmodels.Serve},
		{"expired to the instant", times, nil, 200, readmodels.StatusExpired, readmodels.Gone},
		{"disabled", times, do(disable), 150, readmodels.StatusDisabled, readmodels.Gone},
		{"disabled before its time", times, do(disable), 99, readmodels.StatusDisabled, readmodels.Gone},
		{"banned", times, do(ban), 150, readmodels.StatusBanned, readmodels.Forbidden},
		{"banned by law", times, do(legal), 150, readmodels.StatusBanned, readmodels.Legal},
		{"banned and expired", times, do(ban), 200, readmodels.StatusBanned, readmodels.Forbidden},
		{"banned and disabled", times, do(disable, ban), 150, readmodels.StatusBanned, readmodels.Forbidden},
		{"deleted", times, do(remove), 150, readmodels.StatusDeleted, readmodels.Gone},
		{"deleted after a ban", times, do(legal, remove), 150, readmodels.StatusDeleted, readmodels.Gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			var link *pb.Link
			record := &pb.Redirect{}
			for i := -1; i < len(c.events); i++ {
				event := &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Content: c.content}}}
				if i >= 0 {
					event = &pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: c.events[i]}}
				}
				link = projections.EvolveLink(link, &pb.HistoryEntry{Event: event})
				projections.EvolveRedirect(record, event)
			}
			if got := readmodels.StatusAt(link, c.now); got != c.status || !readmodels.ValidStatus(got) {
				t.Errorf("status %s, want %s", got, c.status)
			}
			if got := readmodels.AnswerAt(record, c.now); got != c.answer {
				t.Errorf("answer %d, want %d", got, c.answer)
			}
		})
	}
	if readmodels.AnswerAt(nil, 1) != readmodels.NotFound || readmodels.ValidStatus("") || readmodels.ValidStatus("Active") {
		t.Error("an unknown link is answered, or an unknown status is valid")
	}
	if readmodels.RedirectStatus(0) != 302 || readmodels.RedirectStatus(308) != 308 {
		t.Error("redirect status")
	}
}
