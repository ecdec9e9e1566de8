package runnertest

import (
	"strings"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Create appends the envelope of a new link. The request key is "create " and the code.
func (l *Log) Create(owner, namespace, code string, content *pb.LinkContent) *events.Envelope {
	l.mu.Lock()
	ref := &pb.LinkRef{LinkId: l.nextID, Namespace: namespace, Code: code, Owner: owner}
	l.nextID++
	l.links[events.RouteKey(namespace, code)], l.version[events.RouteKey(namespace, code)] = ref, 1
	l.mu.Unlock()
	return l.event(ref, "create "+code, 1, &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: ref, Content: content}}})
}

// Update appends the envelope of a change of a link's content.
func (l *Log) Update(namespace, code string, content *pb.LinkContent) *events.Envelope {
	ref, version := l.advance(namespace, code)
	return l.event(ref, "", version, &pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: ref, Version: version, Content: content}}})
}

// Change appends the envelope of a change of a link's status.
func (l *Log) Change(namespace, code string, action pb.StatusAction) *events.Envelope {
	ref, version := l.advance(namespace, code)
	return l.event(ref, "", version, &pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{
		Link: ref, Version: version, Action: action, Reason: strings.ToLower(action.String())}}})
}

func (l *Log) advance(namespace, code string) (*pb.LinkRef, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := events.RouteKey(namespace, code)
	l.version[key]++
	return l.links[key], l.version[key]
}

func (l *Log) event(ref *pb.LinkRef, key string, version uint64, event *pb.Event) *events.Envelope {
	e := &pb.Envelope{Bucket: events.BucketOf(ref.GetNamespace(), ref.GetCode()), Events: []*pb.Event{event}, Actor: "key:test",
		Outcome: &pb.Outcome{Namespace: ref.GetNamespace(), Code: ref.GetCode(), Version: version}}
	if key != "" {
		e.Request = &pb.RequestRef{Owner: ref.GetOwner(), Key: key, BodyHash: []byte(key)}
	}
	return l.Append(e)
}
