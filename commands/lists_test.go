package commands_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

const second = 1_000_000

// plane is a control plane in a test: commands in, state out.
type plane struct {
	t     *testing.T
	state *commands.Control
	nowUS int64
	actor string
}

func newPlane(t *testing.T) *plane {
	p := &plane{t: t, nowUS: 1_000 * second, actor: "key:a"}
	p.want("", 1, addDomain(&pb.Domain{Namespace: "s.example", Aliases: []string{"t.example"}, IsDefault: true}))
	return p
}

// do decides a command and folds what comes out.
func (p *plane) do(c *pb.ControlCommand) commands.Decision {
	c.Actor = p.actor
	d := commands.DecideControl(p.state, c, p.nowUS)
	seq := uint64(1)
	if p.state != nil {
		seq = p.state.Seq + 1
	}
	p.state = commands.EvolveControl(p.state, &pb.Envelope{Seq: seq, Events: d.Events, Outcome: d.Outcome, Actor: c.GetActor(), Request: c.GetRequest(),
		Stamp: &pb.Stamp{TimeUs: p.nowUS}})
	return d
}

// want does commands that must end with this error code and number of events.
func (p *plane) want(code string, events int, list ...*pb.ControlCommand) {
	p.t.Helper()
	for i, c := range list {
		if d := p.do(c); d.Outcome.GetError() != code || len(d.Events) != events || code != "" && d.Outcome.GetDetail() == "" {
			p.t.Errorf("command %d, %v: %v, want %q and %d events", i, c, d, code, events)
		}
	}
}

func listed(e *pb.ListEntry) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_AddListEntry{AddListEntry: e}}
}

func denied(kind pb.ListKind, value string) *pb.ControlCommand {
	return listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: kind, Value: value})
}

func allowed(host string) *pb.ControlCommand {
	return listed(&pb.ListEntry{List: pb.ListName_ALLOWLIST, Kind: pb.ListKind_LIST_HOST, Value: host})
}

func trusted(kind pb.ListKind, value string, tier pb.TrustTier) *pb.ControlCommand {
	return listed(&pb.ListEntry{List: pb.ListName_TRUST, Kind: kind, Value: value, Tier: tier})
}

func unlisted(list pb.ListName, kind pb.ListKind, value string) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_RemoveListEntry{RemoveListEntry: &pb.RemoveListEntry{List: list, Kind: kind, Value: value, Note: "why"}}}
}

const (
	code    = pb.ListKind_LIST_CODE
	host    = pb.ListKind_LIST_HOST
	suffix  = pb.ListKind_LIST_HOST_SUFFIX
	network = pb.ListKind_LIST_NETWORK
	owner   = pb.ListKind_LIST_OWNER
)

func TestListsRefuse(t *testing.T) {
	long := strings.Repeat("x", commands.MaxReason+1)
	for name, c := range map[string]*pb.ControlCommand{
		"no list":                 listed(&pb.ListEntry{Kind: host, Value: "evil.example"}),
		"unknown list":            listed(&pb.ListEntry{List: 99, Kind: host, Value: "evil.example"}),
		"unknown kind":            denied(99, "evil.example"),
		"owner on the denylist":   denied(owner, "ann"),
		"suffix that is allowed":  listed(&pb.ListEntry{List: pb.ListName_ALLOWLIST, Kind: suffix, Value: "evil.example"}),
		"host not in normal form": denied(host, "Evil.example"),
		"host with port":          denied(host, "evil.example:8080"),
		"host that is a URL":      denied(host, "https://evil.example/"),
		"empty host":              denied(host, ""),
		"IPv6 in brackets":        denied(host, "[2001:db8::1]"),
		"suffix that is IPv4":     denied(suffix, "192.0.2.1"),
		"suffix with a dot":       denied(suffix, ".evil.example"),
		"network not masked":      denied(network, "192.0.2.1/24"),
		"a whole continent":       denied(network, "64.0.0.0/7"),
		"all of IPv6":             denied(network, "2000::/3"),
		"not a network":           denied(network, "evil.example"),
		"network with a zone":     denied(network, "fe80::1%eth0/64"),
		"code of no domain here":  denied(code, "other.example/abc"),
		"code of an alias":        denied(code, "t.example/abc"),
		"code alone":              denied(code, "abc"),
		"no code":                 denied(code, "s.example/"),
		"code that cannot be":     denied(code, "s.example/a b"),
		"tier of a denial":        listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: host, Value: "evil.example", Tier: pb.TrustTier_TRUST_LOW}),
		"legal trust":             listed(&pb.ListEntry{List: pb.ListName_TRUST, Kind: owner, Value: "ann", Legal: true}),
		"unknown tier":            trusted(owner, "ann", 99),
		"nobody":                  trusted(owner, "", pb.TrustTier_TRUST_LOW),
		"owner with NUL":          trusted(owner, "ann\x00", pb.TrustTier_TRUST_LOW),
		"expired already":         listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: host, Value: "evil.example", ExpiresUs: 1_000 * second}),
		"expires before 1970":     listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: host, Value: "evil.example", ExpiresUs: -1}),
		"a long note":             listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: host, Value: "evil.example", Note: long}),
		"no tier to close":        {Kind: &pb.ControlCommand_ChangeSwitch{ChangeSwitch: &pb.ChangeSwitch{Tier: 99, Closed: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.want("invalid_request", 0, c)
		})
	}
	p := newPlane(t)
	p.want("not_found", 0, unlisted(pb.ListName_DENYLIST, host, "evil.example"))
}

func TestListValuesInNormalForm(t *testing.T) {
	p := newPlane(t)
	for _, c := range []struct {
		kind      pb.ListKind
		typed, is string
	}{
		{host, "EVIL.example.", "evil.example"}, {host, "bücher.example", "xn--bcher-kva.example"}, {host, "192.0.2.1", "192.0.2.1"},
		{host, "[2001:DB8:0::1]", "2001:db8::1"}, {host, "2001:db8::1", "2001:db8::1"}, {host, "::ffff:192.0.2.1", "192.0.2.1"},
		{suffix, "*.Evil.example", "evil.example"}, {suffix, ".evil.example", "evil.example"}, {suffix, "zip", "zip"},
		{network, "192.0.2.77/24", "192.0.2.0/24"}, {network, "192.0.2.7", "192.0.2.7/32"}, {network, "2001:db8::1", "2001:db8::1/128"},
		{network, "::ffff:192.0.2.7/120", "192.0.2.0/24"}, {network, "::ffff:192.0.2.7", "192.0.2.7/32"},
		{code, "abc", "s.example/abc"}, {code, "T.example/Abc", "s.example/Abc"}, {code, "s.example:443/abc", "s.example/abc"},
		{code, "cafe\u0301", "s.example/caf\u00e9"}, {owner, "Ann", "Ann"},
	} {
		got, err := commands.NormalizeListValue(c.kind, c.typed, p.state)
		if err != nil || got != c.is {
			t.Errorf("%v %q: %q, %v, want %q", c.kind, c.typed, got, err, c.is)
		}
		if again, err := commands.NormalizeListValue(c.kind, got, p.state); err != nil || again != got {
			t.Errorf("%v %q again: %q, %v", c.kind, got, again, err)
		}
	}
}

// What is asked of lists, and the name of the entry that answers.
func TestLookUps(t *testing.T) {
	p := newPlane(t)
	p.want("", 1, denied(code, "s.example/abc"), denied(host, "evil.example"), denied(host, "2001:db8::1"), denied(host, "192.0.2.1"),
		denied(suffix, "bad.example"), denied(suffix, "worse.bad.example"), denied(suffix, "zip"),
		denied(network, "198.51.100.0/24"), denied(network, "198.51.100.128/25"), denied(network, "2001:db8::/32"),
		allowed("good.bad.example"), allowed("evil.example"))
	lists := p.state.Lists()
	for target, want := range map[string]string{
		"https://evil.example/":                  "host evil.example", // allowed, but denied as the very host
		"http://EVIL.example.:8080/x?y#z":        "host evil.example",
		"https://evil.example":                   "host evil.example",
		"https://evil.example?q=/":               "host evil.example",
		"https://a.evil.example/":                "",
		"https://notevil.example/":               "",
		"https://good.example/?u=//evil.example": "",
		"https://bad.example/":                   "host_suffix bad.example",
		"https://a.b.bad.example:1/":             "host_suffix bad.example",
		"https://a.worse.bad.example/":           "host_suffix worse.bad.example",
		"https://good.bad.example/":              "",
		"https://a.good.bad.example/":            "host_suffix bad.example", // the allowlist has exact hosts
		"https://notbad.example/":                "",
		"https://x.zip#":                         "host_suffix zip",
		"http://[2001:db8:0::1]:8080/":           "host 2001:db8::1",
		"http://[::ffff:192.0.2.1]/":             "host 192.0.2.1",
		"http://192.0.2.1/":                      "host 192.0.2.1",
		"http://192.0.2.10/":                     "",
		"nonsense":                               "",
		"https://":                               "",
	} {
		checkName(t, target, lists.Target(target, p.nowUS), want)
	}
	for client, want := range map[string]string{
		"198.51.100.1": "network 198.51.100.0/24", "198.51.100.200": "network 198.51.100.128/25", "::ffff:198.51.100.1": "network 198.51.100.0/24",
		"198.51.101.1": "", "2001:db8::7": "network 2001:db8::/32", "2001:db9::7": "",
	} {
		checkName(t, client, lists.Client(netip.MustParseAddr(client), p.nowUS), want)
	}
	checkName(t, "nobody", lists.Client(netip.Addr{}, p.nowUS), "")
	checkName(t, "its code", lists.Code([]byte(events.RouteKey("s.example", "abc")), p.nowUS), "code s.example/abc")
	checkName(t, "another code", lists.Code([]byte(events.RouteKey("s.example", "Abc")), p.nowUS), "")
	checkName(t, "another domain's", lists.Code([]byte(events.RouteKey("t.example", "abc")), p.nowUS), "")
	var none *commands.Lists
	checkName(t, "no lists", none.Target("https://evil.example/", 0), "")
	checkName(t, "no lists", none.Client(netip.MustParseAddr("198.51.100.1"), 0), "")
	checkName(t, "no lists", none.Code([]byte("x"), 0), "")
}

func checkName(t *testing.T, what string, got *commands.ListItem, want string) {
	t.Helper()
	name := ""
	if got != nil {
		name = strings.TrimPrefix(got.Name(), "denylist: ")
	}
	if name != want {
		t.Errorf("%s: %q, want %q", what, name, want)
	}
}

// An entry counts up to its expiry; behind it a wider one does.
func TestEntriesExpire(t *testing.T) {
	p := newPlane(t)
	end := p.nowUS + 10*second
	until := func(list pb.ListName, kind pb.ListKind, value string) *pb.ControlCommand {
		return listed(&pb.ListEntry{List: list, Kind: kind, Value: value, ExpiresUs: end, Legal: list == pb.ListName_DENYLIST, Tier: map[bool]pb.TrustTier{true: pb.TrustTier_TRUST_LOW}[list == pb.ListName_TRUST]})
	}
	p.want("", 1, until(pb.ListName_DENYLIST, code, "s.example/abc"), until(pb.ListName_DENYLIST, host, "a.bad.example"), denied(suffix, "bad.example"),
		until(pb.ListName_DENYLIST, network, "198.51.100.128/25"), denied(network, "198.51.100.0/24"), until(pb.ListName_ALLOWLIST, host, "good.bad.example"),
		until(pb.ListName_DENYLIST, suffix, "x.bad.example"), until(pb.ListName_TRUST, owner, "ann"))
	lists, key := p.state.Lists(), []byte(events.RouteKey("s.example", "abc"))
	for now, want := range map[int64][]string{
		end - 1: {"code s.example/abc", "host a.bad.example", "network 198.51.100.128/25", "", "host_suffix x.bad.example", "low"},
		end:     {"", "host_suffix bad.example", "network 198.51.100.0/24", "host_suffix bad.example", "host_suffix bad.example", "standard"},
	} {
		checkName(t, "code", lists.Code(key, now), want[0])
		checkName(t, "host", lists.Target("https://a.bad.example/", now), want[1])
		checkName(t, "network", lists.Client(netip.MustParseAddr("198.51.100.200"), now), want[2])
		checkName(t, "allowed", lists.Target("https://good.bad.example/", now), want[3])
		checkName(t, "suffix", lists.Target("https://x.bad.example/", now), want[4])
		if tier := commands.TierName(lists.Tier(key, events.OwnerHash("ann"), now)); tier != want[5] {
			t.Errorf("tier %s, want %s", tier, want[5])
		}
	}
}

// Adding again replaces, the same again is nothing, and old states stay what they were.
func TestListsAreReplacedAndRemoved(t *testing.T) {
	p := newPlane(t)
	p.want("", 1, denied(host, "evil.example"), denied(network, "198.51.100.0/24"), trusted(owner, "ann", pb.TrustTier_TRUST_LOW))
	p.want("", 0, denied(host, "evil.example"))
	before := p.state
	p.nowUS += second
	p.actor = "key:b"
	p.want("", 1, listed(&pb.ListEntry{List: pb.ListName_DENYLIST, Kind: host, Value: "evil.example", Legal: true, Note: "order 5"}))
	item := p.state.Lists().Target("https://evil.example/", p.nowUS)
	if !item.GetLegal() || item.GetNote() != "order 5" || item.Actor != "key:b" || item.AddedUS != p.nowUS || item.Seq != p.state.Seq {
		t.Errorf("replaced: %+v", item)
	}
	if id := commands.ListID(pb.ListName_DENYLIST, host, "evil.example"); p.state.Lists().ByID(pb.ListName_DENYLIST, id) != item || p.state.Lists().ByID(pb.ListName_ALLOWLIST, id) != nil {
		t.Error("not found by its id")
	}
	if old := before.Lists().Target("https://evil.example/", p.nowUS); old.GetLegal() || old.Actor != "key:a" {
		t.Errorf("the state before changed: %+v", old)
	}
	p.want("", 1, unlisted(pb.ListName_DENYLIST, host, "evil.example"), unlisted(pb.ListName_DENYLIST, network, "198.51.100.0/24"), unlisted(pb.ListName_TRUST, owner, "ann"))
	p.want("not_found", 0, unlisted(pb.ListName_DENYLIST, host, "evil.example"))
	lists := p.state.Lists()
	if lists.DeniesHosts() || lists.DeniesClients() || lists.Tiered() || lists.DeniesCodes() {
		t.Error("something is left")
	}
	if before.Lists().Client(netip.MustParseAddr("198.51.100.9"), p.nowUS) == nil || !before.Lists().Tiered() {
		t.Error("the state before lost something")
	}
	var types []string
	p.state.Changes(0, func(c *commands.ControlChange) bool {
		types = append(types, events.EventType(c.Event)+" "+c.Actor)
		return true
	})
	if want := "[trust.removed key:b denylist.removed key:b denylist.removed key:b denylist.added key:b trust.added key:a denylist.added key:a denylist.added key:a]"; fmt.Sprint(types) != want {
		t.Errorf("history %v", types)
	}
}

func TestTrust(t *testing.T) {
	p := newPlane(t)
	key, ann, bob := []byte(events.RouteKey("s.example", "abc")), events.OwnerHash("ann"), events.OwnerHash("bob")
	if p.state.Lists().Tiered() {
		t.Error("tiers without a word of them")
	}
	p.want("", 1, trusted(owner, "ann", pb.TrustTier_TRUST_LOW))
	check := func(what string, key []byte, owner uint64, want string) {
		t.Helper()
		if got := commands.TierName(p.state.Lists().Tier(key, owner, p.nowUS)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("the owner's", key, ann, "low")
	check("another owner's", key, bob, "standard")
	check("nobody known", key, 0, "standard")
	p.want("", 1, trusted(code, "s.example/abc", pb.TrustTier_TRUST_HIGH))
	check("what is said of the link", key, ann, "high")
	check("another link", []byte(events.RouteKey("s.example", "abd")), ann, "low")
	p.want("", 1, trusted(code, "s.example/abc", pb.TrustTier_TRUST_STANDARD))
	check("standard too is a word", key, ann, "standard")
	p.want("", 1, unlisted(pb.ListName_TRUST, code, "s.example/abc"))
	check("taken back", key, ann, "low")
}

func switched(closed bool) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_ChangeSwitch{ChangeSwitch: &pb.ChangeSwitch{Tier: pb.TrustTier_TRUST_LOW, Closed: closed, Note: "incident 7"}}}
}

func TestSwitchTakesTwo(t *testing.T) {
	p := newPlane(t)
	is := func(what string, closed, pending bool) {
		t.Helper()
		s := p.state.Switch(pb.TrustTier_TRUST_LOW)
		if s.Closed != closed || p.state.Lists().Closed(pb.TrustTier_TRUST_LOW) != closed || s.Pending.Counts(p.nowUS) != pending {
			t.Errorf("%s: %+v, want closed %v, pending %v", what, s, closed, pending)
		}
	}
	p.want("", 0, switched(false)) // it is open
	p.want("", 1, switched(true))
	is("one key", false, true)
	p.want("", 0, switched(true))
	is("the same key again", false, true)
	p.nowUS += commands.SwitchWindow
	is("too late", false, false)
	p.actor = "key:b"
	p.want("", 1, switched(true))
	is("the second, too late, is a first", false, true)
	p.want("", 1, switched(false))
	is("withdrawn", false, false)
	p.want("", 1, switched(true))
	p.actor, p.nowUS = "key:a", p.nowUS+commands.SwitchWindow-1
	p.want("", 1, switched(true))
	is("two keys in time", true, false)
	if s := p.state.Switch(pb.TrustTier_TRUST_LOW); s.Actors != [2]string{"key:b", "key:a"} || s.ChangedUS != p.nowUS || s.Note != "incident 7" {
		t.Errorf("who and when: %+v", s)
	}
	for _, tier := range []pb.TrustTier{pb.TrustTier_TRUST_STANDARD, pb.TrustTier_TRUST_HIGH, 99, -1} {
		if p.state.Lists().Closed(tier) {
			t.Errorf("%v is closed too", tier)
		}
	}
	if !p.state.Lists().Tiered() {
		t.Error("a closed tier is not seen")
	}
	p.want("", 0, switched(true))
	p.want("", 1, switched(false))
	is("one key is not enough to open", true, true)
	p.actor = "key:c"
	p.want("", 1, switched(false))
	is("two are", false, false)
	var types []string
	p.state.Changes(0, func(c *commands.ControlChange) bool {
		types = append(types, events.EventType(c.Event)+" "+c.Actor)
		return len(types) < 4
	})
	if want := "[switch.turned key:c switch.proposed key:a switch.turned key:a switch.proposed key:b]"; fmt.Sprint(types) != want {
		t.Errorf("history %v", types)
	}
	p.actor = ""
	p.want("invalid_request", 0, switched(true))
}

// A repeat of a write is answered as the first was, for as long as its key counts.
func TestControlRequestKey(t *testing.T) {
	p := newPlane(t)
	with := func(c *pb.ControlCommand, owner, key string) *pb.ControlCommand {
		c.Request = &pb.RequestRef{Owner: owner, Key: key, BodyHash: commands.ControlBodyHash(c)}
		return c
	}
	p.want("", 1, with(denied(host, "evil.example"), "ann", "k"))
	added := p.state.Seq
	p.want("", 1, unlisted(pb.ListName_DENYLIST, host, "evil.example"))
	again := p.do(with(denied(host, "evil.example"), "ann", "k"))
	if len(again.Events) != 0 || !again.Outcome.GetReplayed() || again.Outcome.GetError() != "" || p.state.Lists().DeniesHosts() {
		t.Errorf("a repeat after somebody removed it: %v", again)
	}
	if stored := p.state.Request("ann", "k"); stored.Seq != added || len(stored.Events) != 1 {
		t.Errorf("stored %+v", stored)
	}
	p.want("idempotency_key_reused", 0, with(denied(host, "other.example"), "ann", "k"))
	p.want("", 1, with(denied(host, "other.example"), "bob", "k")) // keys are an owner's own
	p.want("not_found", 0, with(unlisted(pb.ListName_DENYLIST, host, "third.example"), "ann", "k2"))
	p.want("", 1, denied(host, "third.example"))
	if d := p.do(with(unlisted(pb.ListName_DENYLIST, host, "third.example"), "ann", "k2")); d.Outcome.GetError() != "not_found" || !d.Outcome.GetReplayed() {
		t.Errorf("a refusal repeated: %v", d)
	}
	p.nowUS += commands.KeyTTL
	p.want("", 1, with(denied(host, "evil.example"), "ann", "k"))
	p.nowUS += 2 * commands.KeyTTL
	p.want("", 1, with(denied(host, "new.example"), "ann", "k3"), with(denied(host, "newer.example"), "ann", "k4"))
	if p.state.Request("bob", "k") != nil {
		t.Error("what no longer counts is kept for ever")
	}
	for name, r := range map[string]*pb.RequestRef{"no owner": {Key: "k", BodyHash: make([]byte, 32)}, "no key": {Owner: "ann", BodyHash: make([]byte, 32)},
		"short hash": {Owner: "ann", Key: "k"}, "owner with NUL": {Owner: "a\x00", Key: "k", BodyHash: make([]byte, 32)}} {
		c := denied(host, "x.example")
		c.Request = r
		if d := p.do(c); d.Outcome.GetError() != "invalid_request" {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// A link to a denied host cannot be made, and the answer says which list.
func TestTargetBlocked(t *testing.T) {
	p := newPlane(t)
	p.want("", 1, denied(suffix, "bad.example"), allowed("good.bad.example"), addKey(&pb.ApiKey{Id: "k", Hash: bytes.Repeat([]byte{1}, 32), Owner: "ann"}))
	stamped := func(target string) *pb.Stamp {
		s := &pb.Stamp{TimeUs: p.nowUS}
		commands.Judge(s, &pb.LinkCommand{Namespace: "s.example", Kind: &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: &pb.LinkContent{Target: target}}}}, p.state)
		return s
	}
	if s := stamped("https://a.bad.example:8443/x"); s.GetTargetBlocked() != "denylist: host_suffix bad.example" || s.GetControlSeq() != p.state.Seq {
		t.Errorf("stamp %v", s)
	}
	for _, target := range []string{"https://good.bad.example/", "https://example.com/"} {
		if s := stamped(target); s.GetTargetBlocked() != "" {
			t.Errorf("%s: %v", target, s)
		}
	}
	blocked := func(c commands.LinkCommand) commands.LinkCommand {
		c.Request.Key = "k2"
		c.Stamp.TargetBlocked = "denylist: host_suffix bad.example"
		return c
	}
	there := given(t).when(createAs("abc", content("https://example.com/"))).then("link.created").envelope()
	given(t, there).when(blocked(update(&pb.UpdateLink{Content: content("https://a.bad.example/"), Fields: []string{"target"}}))).refused("target_blocked", "target")
	given(t, there).when(blocked(update(&pb.UpdateLink{Content: &pb.LinkContent{Title: "One"}, Fields: []string{"title"}}))).then("link.updated")
	refused := given(t).when(blocked(createAs("abc", content("https://a.bad.example/"))))
	refused.refused("target_blocked", "target")
	if !strings.Contains(refused.Outcome.GetDetail(), "denylist: host_suffix bad.example") {
		t.Errorf("the answer does not say which list: %s", refused.Outcome.GetDetail())
	}
}

// Those who only obey keep the lists and nothing beside them.
func TestLeanControl(t *testing.T) {
	add := denied(host, "evil.example").GetAddListEntry()
	e := &pb.Envelope{Seq: 1, Events: []*pb.Event{{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: add}}},
		{Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{Tier: pb.TrustTier_TRUST_LOW, Closed: true, Step: pb.SwitchStep_SWITCH_TURNED}}}},
		Request: &pb.RequestRef{Owner: "ann", Key: "k"}}
	for name, before := range map[string]*commands.Control{"full": nil, "lean": commands.LeanControl()} {
		c := commands.EvolveControl(commands.EvolveControl(before, e), &pb.Envelope{Seq: 2})
		kept := c.Request("ann", "k") != nil
		c.Changes(0, func(*commands.ControlChange) bool { kept = true; return false })
		if c.Lists().Target("https://evil.example/", 0) == nil || !c.Lists().Closed(pb.TrustTier_TRUST_LOW) || !c.Switch(pb.TrustTier_TRUST_LOW).Closed || kept == (name == "lean") {
			t.Errorf("%s: %v kept", name, kept)
		}
	}
}

// The newest changes are kept, in order, however many there were.
func TestHistoryIsBounded(t *testing.T) {
	var c *commands.Control
	const n, kept = 70_000, 256 * 256
	event := &pb.Event{Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{Step: pb.SwitchStep_SWITCH_WITHDRAWN}}}
	for seq := uint64(1); seq <= n; seq++ {
		c = commands.EvolveControl(c, &pb.Envelope{Seq: seq, Events: []*pb.Event{event}})
	}
	want, count := uint64(n), 0
	c.Changes(0, func(change *commands.ControlChange) bool {
		if change.Seq != want {
			t.Fatalf("%d, want %d", change.Seq, want)
		}
		want--
		count++
		return true
	})
	if count > kept || count < kept-256 {
		t.Errorf("%d changes kept", count)
	}
	c.Changes(n-5, func(change *commands.ControlChange) bool { want = change.Seq; return false })
	if want != n-6 {
		t.Errorf("the first below %d is %d", n-5, want)
	}
}
