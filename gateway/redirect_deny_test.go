package gateway

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/schemas/pb"
)

// redirectTestLists folds entries, and closes tiers.
func redirectTestLists(entries []*pb.ListEntry, closed ...pb.TrustTier) *commands.Control {
	var list []*pb.Event
	for _, e := range entries {
		list = append(list, &pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: e}}})
	}
	for _, tier := range closed {
		list = append(list, &pb.Event{Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{Tier: tier, Closed: true, Step: pb.SwitchStep_SWITCH_TURNED}}})
	}
	return commands.EvolveControl(nil, &pb.Envelope{Seq: 1, Events: list})
}

func TestRedirectDenies(t *testing.T) {
	denied := func(kind pb.ListKind, value string, legal bool) *pb.ListEntry {
		return &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: kind, Value: value, Legal: legal}
	}
	state := redirectTestLists([]*pb.ListEntry{
		denied(pb.ListKind_LIST_CODE, "s.example/denied", false), denied(pb.ListKind_LIST_CODE, "s.example/legal", true), denied(pb.ListKind_LIST_CODE, "s.example/unknown", false),
		denied(pb.ListKind_LIST_HOST, "evil.example", false), denied(pb.ListKind_LIST_HOST_SUFFIX, "bad.example", true), denied(pb.ListKind_LIST_NETWORK, "198.51.100.0/24", false),
		{List: pb.ListName_ALLOWLIST, Kind: pb.ListKind_LIST_HOST, Value: "good.bad.example"},
		{List: pb.ListName_TRUST, Kind: pb.ListKind_LIST_OWNER, Value: "ann", Tier: pb.TrustTier_TRUST_LOW},
		{List: pb.ListName_TRUST, Kind: pb.ListKind_LIST_OWNER, Value: "eve", Tier: pb.TrustTier_TRUST_HIGH},
	}, pb.TrustTier_TRUST_HIGH)
	var age atomic.Int64 // of time.Duration
	age.Store(int64(time.Second))
	gate := deny.NewGate(func() *commands.Control { return state }, func() time.Duration { return time.Duration(age.Load()) }, 5*time.Second)
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Gate, d.TrustedHops = gate, 1 })
	add := func(code, target, owner string) {
		node.add(code, &pb.Redirect{Target: target, Owner: events.OwnerHash(owner)})
	}
	add("plain", "https://example.com/", "bob")
	for _, code := range []string{"denied", "legal", "Denied"} {
		add(code, "https://example.com/", "bob")
	}
	add("evil", "https://EVIL.example:8443/x", "bob")
	add("below", "https://a.bad.example/", "bob")
	add("good", "https://good.bad.example/", "bob")
	add("anns", "https://example.com/", "ann")
	add("eves", "https://example.com/", "eve")
	node.add("banned", &pb.Redirect{Target: "https://example.com/", Banned: true, Owner: events.OwnerHash("ann")})
	node.add("gone", &pb.Redirect{Target: "https://example.com/", Deleted: true, Owner: events.OwnerHash("eve")})

	check := func(when string, want map[string]int, headers ...string) {
		t.Helper()
		for path, status := range want {
			for _, method := range []string{"GET", "HEAD"} {
				a := node.visit(method, node.host, path, headers...)
				after := map[int]string{http.StatusServiceUnavailable: a.header.Get("Retry-After")}[a.status]
				if a.status != status || (a.status == http.StatusServiceUnavailable) != (after != "") || a.status >= 400 && (a.location() != "" || a.header.Get("Cache-Control") == "") {
					t.Errorf("%s: %s %s: %d %v, want %d", when, method, path, a.status, a.header, status)
				}
			}
		}
	}
	all := map[string]int{"/plain": 302, "/denied": 403, "/denied/": 403, "/d%65nied": 403, "/legal": 451, "/unknown": 403, "/Denied": 302, "/evil": 403, "/below": 451, "/good": 302,
		"/anns": 302, "/eves": 503, "/banned": 403, "/gone": 410, "/nothing": 404,
		"/plain+": 200, "/denied+": 403, "/evil+": 403, "/eves+": 503, "/unknown+": 403}
	check("fresh lists", all)
	// What a cache keeps, no list takes back from it.
	node.add("annskept", &pb.Redirect{Target: "https://example.com/", Owner: events.OwnerHash("ann"), CacheTtl: 60, RedirectStatus: 301})
	node.add("bobskept", &pb.Redirect{Target: "https://example.com/", Owner: events.OwnerHash("bob"), CacheTtl: 60, RedirectStatus: 301})
	for path, want := range map[string]string{"/annskept": redirectNever, "/bobskept": "public, max-age=60, stale-if-error=60"} {
		if a := node.get(path); a.status != http.StatusMovedPermanently || a.header.Get("Cache-Control") != want {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	age.Store(int64(6 * time.Second))
	stale := map[string]int{"/anns": 503, "/anns+": 503}
	for path, status := range all {
		if _, low := stale[path]; !low {
			stale[path] = status
		}
	}
	check("stale lists", stale)
	check("a denied network", map[string]int{"/plain": 403, "/denied": 403, "/anns": 403, "/nothing": 403}, "X-Forwarded-For: 198.51.100.7")
	check("another network", map[string]int{"/plain": 302}, "X-Forwarded-For: 198.51.101.7")
	if a := node.get("/eves"); a.header.Get("Retry-After") != "60" {
		t.Errorf("a closed tier: Retry-After %q", a.header.Get("Retry-After"))
	}
	if a := node.get("/anns"); a.header.Get("Retry-After") != "5" {
		t.Errorf("stale lists: Retry-After %q", a.header.Get("Retry-After"))
	}
	if counts := gate.Counts(); counts["forbidden"] == 0 || counts["legal"] == 0 || counts["closed"] == 0 || counts["stale"] == 0 {
		t.Errorf("%v", counts)
	}
	served := 0
	for _, click := range node.clicks() {
		if status := click.GetStatus(); status != http.StatusFound && status != http.StatusMovedPermanently {
			t.Errorf("a click that was not served: %v", click)
		}
		served++
	}
	if served == 0 {
		t.Error("no click of those who were served")
	}
}

// TestRedirectIsKeptNoLongerThanTheLists: what a cache keeps of a link ends with the entry because of which the link is served.
func TestRedirectIsKeptNoLongerThanTheLists(t *testing.T) {
	const second = int64(1e6)
	in := func(seconds int64) int64 { return redirectTestNow + seconds*second }
	trust := func(kind pb.ListKind, value string, tier pb.TrustTier, ends int64) *pb.ListEntry {
		return &pb.ListEntry{List: pb.ListName_TRUST, Kind: kind, Value: value, Tier: tier, ExpiresUs: ends}
	}
	allow := func(host string, ends int64) *pb.ListEntry {
		return &pb.ListEntry{List: pb.ListName_ALLOWLIST, Kind: pb.ListKind_LIST_HOST, Value: host, ExpiresUs: ends}
	}
	state := redirectTestLists([]*pb.ListEntry{
		{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST_SUFFIX, Value: "bad.example"},
		allow("good.bad.example", in(30)), allow("ever.bad.example", 0), allow("free.example", in(40)),
		trust(pb.ListKind_LIST_OWNER, "ann", pb.TrustTier_TRUST_HIGH, in(20)), trust(pb.ListKind_LIST_OWNER, "old", pb.TrustTier_TRUST_LOW, redirectTestNow),
		trust(pb.ListKind_LIST_CODE, "s.example/itself", pb.TrustTier_TRUST_STANDARD, 0),
	})
	gate := deny.NewGate(func() *commands.Control { return state }, func() time.Duration { return time.Second }, 5*time.Second)
	node := newRedirectNode(t, func(d *RedirectDeps) { d.Gate = gate })
	for code, c := range map[string]struct {
		target, owner string
		expires       int64
		want          string
	}{
		"plain":  {"https://example.com/", "bob", 0, "public, max-age=60, stale-if-error=60"},
		"good":   {"https://good.bad.example/", "bob", 0, "public, max-age=30, stale-if-error=0"},
		"ever":   {"https://ever.bad.example/", "bob", 0, "public, max-age=60, stale-if-error=60"},
		"free":   {"https://free.example/", "bob", 0, "public, max-age=40, stale-if-error=0"}, // it may be denied meanwhile
		"anns":   {"https://good.bad.example/", "ann", 0, "public, max-age=20, stale-if-error=0"},
		"soon":   {"https://good.bad.example/", "ann", in(10), "public, max-age=10, stale-if-error=0"},
		"olds":   {"https://example.com/", "old", 0, "public, max-age=60, stale-if-error=60"},
		"itself": {"https://example.com/", "ann", 0, "public, max-age=60, stale-if-error=60"},
	} {
		node.add(code, &pb.Redirect{Target: c.target, Owner: events.OwnerHash(c.owner), CacheTtl: 60, ExpiresUs: c.expires})
		a := node.get("/" + code)
		if got := a.header.Get("Cache-Control"); got != c.want || a.status != http.StatusFound {
			t.Errorf("%s: %d %q, want %q", code, a.status, got, c.want)
		}
	}
}
