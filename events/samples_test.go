package events_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// freeze writes the samples that are missing. What is there is never written again: it is what old logs hold.
var freeze = flag.Bool("freeze", false, "write missing samples of schemas/samples")

const samplesDir = "../schemas/samples"

// samples has one envelope for every type of event of the present schema version, and one without an event.
func samples() map[string]*pb.Envelope {
	ref := &pb.LinkRef{LinkId: 7<<56 | 42, Namespace: "s.example", Code: "7Fk3aQz", Owner: "ann"}
	content := &pb.LinkContent{Target: "https://example.com/?q=%2f#top", Title: "One", Tags: []string{"a", "日本"}, RedirectStatus: 301,
		Query: pb.QueryPolicy_QUERY_OVERRIDE, CacheTtl: 60, NotBeforeUs: 1_700_000_000_000_000, ExpiresUs: 1_900_000_000_000_000}
	hash := make([]byte, 32)
	for i := range hash {
		hash[i] = byte(i)
	}
	status := func(action pb.StatusAction) *pb.Event {
		return &pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{Link: ref, Version: 3, Action: action, Reason: "legal", Legal: action == pb.StatusAction_BAN}}}
	}
	deny := &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST_SUFFIX, Value: "evil.example", Legal: true, ExpiresUs: 1_900_000_000_000_000, Note: "court order 5"}
	redirected := &pb.LinkContent{Target: content.GetTarget(), ExpiresUs: content.GetExpiresUs(), ExpiredUrl: "https://example.com/over?q=%2f"}
	list := map[string]*pb.Event{
		"link.updated.expired_url": {Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: ref, Version: 2, Content: redirected, Changed: []string{"expired_url"}}}},
		"link.created":             {Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: ref, Content: content, Fingerprint: hash}}},
		"link.updated":             {Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: ref, Version: 2, Content: content, Changed: []string{"target", "expires_at"}, Reason: "moved"}}},

		"link.disabled": status(pb.StatusAction_DISABLE), "link.enabled": status(pb.StatusAction_ENABLE),
		"link.banned": status(pb.StatusAction_BAN), "link.unbanned": status(pb.StatusAction_UNBAN), "link.deleted": status(pb.StatusAction_DELETE),

		"domain.added":          {Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: &pb.Domain{Namespace: "s.example", Aliases: []string{"t.example"}, Owner: "ann", IsDefault: true}}}},
		"domain.updated":        {Kind: &pb.Event_DomainUpdated{DomainUpdated: &pb.DomainUpdated{Domain: &pb.Domain{Namespace: "s.example", Aliases: []string{"t.example"}, Owner: "ann", IsDefault: true, NotFoundUrl: "https://example.com/none?q=%2f"}, Changed: []string{"not_found_url"}}}},
		"key.added":             {Kind: &pb.Event_KeyAdded{KeyAdded: &pb.KeyAdded{Key: &pb.ApiKey{Id: "0f3a", Hash: hash, Owner: "ann", Admin: true}}}},
		"key.revoked":           {Kind: &pb.Event_KeyRevoked{KeyRevoked: &pb.KeyRevoked{Key: &pb.ApiKey{Id: "0f3a", Hash: hash, Owner: "ann", Admin: true, Note: "CI"}, Note: "leaked"}}},
		"segment.leased":        {Kind: &pb.Event_SegmentLeased{SegmentLeased: &pb.SegmentLeased{Segment: &pb.Segment{Space: 7, From: 1, To: 65537, Holder: "life"}}}},
		"permutation_key.added": {Kind: &pb.Event_PermutationKeyAdded{PermutationKeyAdded: &pb.PermutationKeyAdded{Key: &pb.PermutationKey{Version: 1, Key: hash[:16]}}}},
		"reserved_words.set":    {Kind: &pb.Event_ReservedWordsSet{ReservedWordsSet: &pb.ReservedWordsSet{Words: &pb.ReservedWords{Words: []string{"admin", "café"}}}}},
		"denylist.added":        {Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: deny}}},
		"denylist.removed":      {Kind: &pb.Event_ListEntryRemoved{ListEntryRemoved: &pb.ListEntryRemoved{Entry: deny, Note: "lifted"}}},
		"allowlist.added":       {Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: &pb.ListEntry{List: pb.ListName_ALLOWLIST, Kind: pb.ListKind_LIST_HOST, Value: "good.evil.example"}}}},
		"trust.added":           {Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: &pb.ListEntry{List: pb.ListName_TRUST, Kind: pb.ListKind_LIST_OWNER, Value: "ann", Tier: pb.TrustTier_TRUST_LOW}}}},
		"switch.turned":         {Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{Tier: pb.TrustTier_TRUST_LOW, Closed: true, Step: pb.SwitchStep_SWITCH_TURNED, Note: "incident 7"}}},
		"refused":               nil,
	}
	out := map[string]*pb.Envelope{}
	for name, event := range list {
		e := &pb.Envelope{SchemaVersion: events.SchemaVersion, Bucket: 1731, Seq: 42, PrevHash: hash, CommandOffset: 9, CommandId: hash[:16], LowWatermark: 8,
			Actor: "key:0f3a", Request: &pb.RequestRef{Owner: "ann", Key: "k-1", BodyHash: hash}, Outcome: &pb.Outcome{Namespace: "s.example", Code: "7Fk3aQz", Version: 3},
			Stamp: &pb.Stamp{TimeUs: 1_764_500_000_000_000, ControlSeq: 5, DomainKnown: true, DomainOwner: "ann", CandidateId: 7<<56 | 42, CandidateCode: "7Fk3aQz"}}
		if event != nil {
			e.Events = []*pb.Event{event}
		} else {
			e.Outcome = &pb.Outcome{Error: "code_taken", Detail: "taken", Field: "code", Replayed: true, Existing: true}
		}
		out[name] = e
	}
	return out
}

// Every event that any version ever wrote is decoded for ever, to the same content.
func TestFrozenSamples(t *testing.T) {
	if *freeze {
		writeMissing(t)
	}
	files, err := filepath.Glob(filepath.Join(samplesDir, "*.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := &pb.Envelope{}
		text, err := os.ReadFile(strings.TrimSuffix(file, ".bin") + ".json")
		if err != nil || protojson.Unmarshal(text, want) != nil {
			t.Fatalf("%s: what it means cannot be read: %v", file, err)
		}
		got, err := events.DecodeEnvelope(raw)
		if err != nil || !proto.Equal(got.Envelope, want) {
			t.Errorf("%s decodes to\n%v\nwanted\n%v\n%v", file, got, want, err)
		}
	}
}

// A type of event without a frozen sample would be free to change.
func TestEveryEventHasASample(t *testing.T) {
	for name, e := range samples() {
		if _, err := os.Stat(samplePath(name, e, "bin")); err != nil {
			t.Errorf("%v: write it with `go test ./events -run Frozen -freeze`, once", err)
		}
	}
	kinds := (&pb.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	seen := map[string]bool{}
	for _, e := range samples() {
		for _, event := range e.GetEvents() {
			seen[string(event.ProtoReflect().WhichOneof(event.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Name())] = true
			if events.EventType(event) == "" {
				t.Errorf("%v has no type", event)
			}
		}
	}
	if len(seen) != kinds.Len() {
		t.Errorf("samples of %d kinds of events, there are %d", len(seen), kinds.Len())
	}
}

func samplePath(name string, e *pb.Envelope, suffix string) string {
	return filepath.Join(samplesDir, name+".v"+string(rune('0'+e.GetSchemaVersion()))+"."+suffix)
}

func writeMissing(t *testing.T) {
	for name, e := range samples() {
		if _, err := os.Stat(samplePath(name, e, "bin")); err == nil {
			continue
		}
		raw, _, err := events.EncodeEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		text := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Format(e)
		for suffix, content := range map[string]string{"bin": string(raw), "json": text + "\n"} {
			if err := os.WriteFile(samplePath(name, e, suffix), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
