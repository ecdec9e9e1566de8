package projections_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

var ref = &pb.LinkRef{LinkId: 7, Namespace: "s.example", Code: "abc", Owner: "acme"}

func created(content *pb.LinkContent) *pb.Event {
	return &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: ref, Content: content, Fingerprint: []byte{1}}}}
}

func updated(version uint64, content *pb.LinkContent) *pb.Event {
	return &pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: ref, Version: version, Content: content}}}
}

func changed(version uint64, action pb.StatusAction, legal bool) *pb.Event {
	return &pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{Link: ref, Version: version, Action: action, Legal: legal}}}
}

func TestEvolveRedirect(t *testing.T) {
	full := &pb.LinkContent{Target: "https://a.example/", Title: "not kept", Tags: []string{"neither"}, RedirectStatus: 308,
		Query: pb.QueryPolicy_QUERY_DROP, CacheTtl: 60, NotBeforeUs: 5, ExpiresUs: 9}
	plain := &pb.LinkContent{Target: "https://b.example/"}
	for _, c := range []struct {
		name  string
		given []*pb.Event
		want  *pb.Redirect
	}{
		{"nothing", nil, &pb.Redirect{}},
		{"created", []*pb.Event{created(full)},
			&pb.Redirect{LinkId: 7, Version: 1, Target: "https://a.example/", RedirectStatus: 308, Query: pb.QueryPolicy_QUERY_DROP, CacheTtl: 60, NotBeforeUs: 5, ExpiresUs: 9}},
		{"an update takes the whole content", []*pb.Event{created(full), updated(2, plain)},
			&pb.Redirect{LinkId: 7, Version: 2, Target: "https://b.example/"}},
		{"disabled", []*pb.Event{created(plain), changed(2, pb.StatusAction_DISABLE, false)},
			&pb.Redirect{LinkId: 7, Version: 2, Target: "https://b.example/", Disabled: true}},
		{"an update keeps the status", []*pb.Event{created(full), changed(2, pb.StatusAction_DISABLE, false), updated(3, plain)},
			&pb.Redirect{LinkId: 7, Version: 3, Target: "https://b.example/", Disabled: true}},
		{"enabled again", []*pb.Event{created(plain), changed(2, pb.StatusAction_DISABLE, false), changed(3, pb.StatusAction_ENABLE, false)},
			&pb.Redirect{LinkId: 7, Version: 3, Target: "https://b.example/"}},
		{"banned by law", []*pb.Event{created(plain), changed(2, pb.StatusAction_BAN, true)},
			&pb.Redirect{LinkId: 7, Version: 2, Target: "https://b.example/", Banned: true, BannedLegal: true}},
		{"a ban for another reason follows", []*pb.Event{created(plain), changed(2, pb.StatusAction_BAN, true), changed(3, pb.StatusAction_BAN, false)},
			&pb.Redirect{LinkId: 7, Version: 3, Target: "https://b.example/", Banned: true}},
		{"unbanned", []*pb.Event{created(plain), changed(2, pb.StatusAction_BAN, true), changed(3, pb.StatusAction_UNBAN, false)},
			&pb.Redirect{LinkId: 7, Version: 3, Target: "https://b.example/"}},
		{"deleted", []*pb.Event{created(plain), changed(2, pb.StatusAction_DELETE, false)},
			&pb.Redirect{LinkId: 7, Version: 2, Target: "https://b.example/", Deleted: true}},
		{"control events change nothing", []*pb.Event{created(plain), {Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{}}}},
			&pb.Redirect{LinkId: 7, Version: 1, Target: "https://b.example/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := &pb.Redirect{}
			for _, event := range c.given {
				projections.EvolveRedirect(got, event)
			}
			if len(c.given) > 0 {
				c.want.Owner = events.OwnerHash("acme")
			}
			if !proto.Equal(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}
