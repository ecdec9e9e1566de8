package effects

import (
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

const testNow = 1_000_000_000

func added(list pb.ListName, kind pb.ListKind, value string, change ...func(*pb.ListEntry)) *pb.Event {
	entry := &pb.ListEntry{List: list, Kind: kind, Value: value}
	for _, f := range change {
		f(entry)
	}
	return &pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: entry}}}
}

func removed(list pb.ListName, kind pb.ListKind, value string) *pb.Event {
	return &pb.Event{Kind: &pb.Event_ListEntryRemoved{ListEntryRemoved: &pb.ListEntryRemoved{Entry: &pb.ListEntry{List: list, Kind: kind, Value: value}}}}
}

func turned(tier pb.TrustTier, closed bool, step pb.SwitchStep) *pb.Event {
	return &pb.Event{Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{Tier: tier, Closed: closed, Step: step}}}
}

func low(e *pb.ListEntry)       { e.Tier = pb.TrustTier_TRUST_LOW }
func high(e *pb.ListEntry)      { e.Tier = pb.TrustTier_TRUST_HIGH }
func ends(e *pb.ListEntry)      { e.ExpiresUs = testNow + 1 }
func ended(e *pb.ListEntry)     { e.ExpiresUs = testNow }
func denied(v string) *pb.Event { return added(pb.ListName_DENYLIST, pb.ListKind_LIST_HOST, v) }
func below(v string) *pb.Event {
	return added(pb.ListName_DENYLIST, pb.ListKind_LIST_HOST_SUFFIX, v)
}

func allowed(v string, change ...func(*pb.ListEntry)) *pb.Event {
	return added(pb.ListName_ALLOWLIST, pb.ListKind_LIST_HOST, v, change...)
}

func trusted(owner string, change ...func(*pb.ListEntry)) *pb.Event {
	return added(pb.ListName_TRUST, pb.ListKind_LIST_OWNER, owner, change...)
}

const turn, propose = pb.SwitchStep_SWITCH_TURNED, pb.SwitchStep_SWITCH_PROPOSED

// TestConcerns: what each event makes of ann's link s.example/abc to a.evil.example, after what came before it.
func TestConcerns(t *testing.T) {
	const denylist, trust = pb.ListName_DENYLIST, pb.ListName_TRUST
	code := added(denylist, pb.ListKind_LIST_CODE, "s.example/abc")
	for name, c := range map[string]struct {
		before []*pb.Event
		event  *pb.Event
		later  []*pb.Event // before anybody looks
		want   string      // because of which the link is purged; "": it is not
	}{
		"its host":                       {event: denied("a.evil.example"), want: "denylist: host a.evil.example"},
		"another host":                   {event: denied("evil.example")},
		"a suffix":                       {event: below("evil.example"), want: "denylist: host_suffix evil.example"},
		"the host as suffix":             {event: below("a.evil.example"), want: "denylist: host_suffix a.evil.example"},
		"a suffix that ends alike":       {event: below("vil.example")},
		"a suffix, but allowed":          {before: []*pb.Event{allowed("a.evil.example")}, event: below("evil.example")},
		"a suffix, and allowed a while":  {before: []*pb.Event{allowed("a.evil.example", ends)}, event: below("evil.example"), want: "denylist: host_suffix evil.example"},
		"a suffix, and allowed once":     {before: []*pb.Event{allowed("a.evil.example", ended)}, event: below("evil.example"), want: "denylist: host_suffix evil.example"},
		"no longer allowed":              {before: []*pb.Event{below("evil.example"), allowed("a.evil.example")}, event: removed(pb.ListName_ALLOWLIST, pb.ListKind_LIST_HOST, "a.evil.example"), want: "allowlist: host a.evil.example"},
		"no longer allowed, nor denied":  {before: []*pb.Event{allowed("a.evil.example")}, event: removed(pb.ListName_ALLOWLIST, pb.ListKind_LIST_HOST, "a.evil.example")},
		"allowed":                        {before: []*pb.Event{below("evil.example")}, event: allowed("a.evil.example")},
		"allowed for a shorter time":     {before: []*pb.Event{below("evil.example"), allowed("a.evil.example")}, event: allowed("a.evil.example", ends), want: "allowlist: host a.evil.example"},
		"denied and let go":              {event: denied("a.evil.example"), later: []*pb.Event{removed(denylist, pb.ListKind_LIST_HOST, "a.evil.example")}},
		"a denial that ended":            {event: added(denylist, pb.ListKind_LIST_HOST, "a.evil.example", ended)},
		"no longer denied":               {before: []*pb.Event{denied("a.evil.example")}, event: removed(denylist, pb.ListKind_LIST_HOST, "a.evil.example")},
		"its code":                       {event: code, want: "denylist: code s.example/abc"},
		"its code, let go":               {event: code, later: []*pb.Event{removed(denylist, pb.ListKind_LIST_CODE, "s.example/abc")}},
		"a network":                      {event: added(denylist, pb.ListKind_LIST_NETWORK, "192.0.2.0/24")},
		"its owner, low":                 {event: trusted("ann", low), want: "trust: owner ann"},
		"another owner, low":             {event: trusted("bob", low)},
		"its owner, high":                {event: trusted("ann", high)},
		"its owner, high for a while":    {event: trusted("ann", high, ends), want: "trust: owner ann"},
		"itself, low":                    {event: added(trust, pb.ListKind_LIST_CODE, "s.example/abc", low), want: "trust: code s.example/abc"},
		"itself, standard":               {before: []*pb.Event{trusted("ann", low)}, event: added(trust, pb.ListKind_LIST_CODE, "s.example/abc")},
		"as low as its owner again":      {before: []*pb.Event{trusted("ann", low), added(trust, pb.ListKind_LIST_CODE, "s.example/abc")}, event: removed(trust, pb.ListKind_LIST_CODE, "s.example/abc"), want: "trust: code s.example/abc"},
		"no longer low":                  {before: []*pb.Event{trusted("ann", low)}, event: removed(trust, pb.ListKind_LIST_OWNER, "ann")},
		"its tier closed":                {event: turned(pb.TrustTier_TRUST_STANDARD, true, turn), want: "switch: tier standard"},
		"its tier proposed to be closed": {event: turned(pb.TrustTier_TRUST_STANDARD, true, propose)},
		"its tier opened":                {before: []*pb.Event{turned(pb.TrustTier_TRUST_STANDARD, true, turn)}, event: turned(pb.TrustTier_TRUST_STANDARD, false, turn)},
		"another tier closed":            {event: turned(pb.TrustTier_TRUST_HIGH, true, turn)},
		"into a closed tier":             {before: []*pb.Event{turned(pb.TrustTier_TRUST_HIGH, true, turn)}, event: trusted("ann", high), want: "trust: owner ann"},
		"the low tier closed":            {before: []*pb.Event{trusted("ann", low)}, event: turned(pb.TrustTier_TRUST_LOW, true, turn)},
		"a domain's settings":            {event: &pb.Event{Kind: &pb.Event_DomainUpdated{DomainUpdated: &pb.DomainUpdated{Domain: &pb.Domain{Namespace: "s.example", NotFoundUrl: "https://x.example/"}}}}},
	} {
		concerns := concernsOf(&events.Envelope{Envelope: &pb.Envelope{Events: []*pb.Event{c.event}}})
		state := commands.EvolveControl(nil, &pb.Envelope{Seq: 1, Events: append(append(c.before[:len(c.before):len(c.before)], c.event), c.later...)})
		if got := foundFor(concerns, state.Lists()); got != c.want {
			t.Errorf("%s: purged because of %q, want %q", name, got, c.want)
		}
	}
}

// foundFor is because of what ann's link is purged.
func foundFor(concerns []Concern, lists *commands.Lists) string {
	key, link := []byte(events.RouteKey("s.example", "abc")), &pb.Redirect{Target: "https://A.evil.example:8443/x", Owner: events.OwnerHash("ann"), CacheTtl: 60}
	what := searchFor([]*Change{{Lists: concerns}})
	for _, c := range what.codes {
		if c.Value == "s.example/abc" && !lasting(key, link, lists, testNow) {
			return c.String()
		}
	}
	if c := what.causeOf(key, link, lists, testNow); c != nil {
		return c.String()
	}
	return ""
}

// TestSearchPassesOverWhatItDoesNotKnow: a letter of a newer release stops nobody.
func TestSearchPassesOverWhatItDoesNotKnow(t *testing.T) {
	what := searchFor([]*Change{{Lists: []Concern{{"denylist", "shape", "round"}, {"switch", "tier", "utmost"}}}})
	if what.reads() || len(what.codes) > 0 {
		t.Errorf("%+v", what)
	}
}
