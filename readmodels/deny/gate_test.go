package deny_test

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/schemas/pb"
)

const nowUS = int64(1_000_000_000)

// folded returns the control state that entries and events of switches lead to.
func folded(list ...any) *commands.Control {
	var c *commands.Control
	for i, what := range list {
		event := &pb.Event{}
		switch kind := what.(type) {
		case *pb.ListEntry:
			event.Kind = &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: kind}}
		case *pb.SwitchChanged:
			event.Kind = &pb.Event_SwitchChanged{SwitchChanged: kind}
		}
		c = commands.EvolveControl(c, &pb.Envelope{Seq: uint64(i + 1), Events: []*pb.Event{event}})
	}
	return c
}

func entry(kind pb.ListKind, value string, legal bool) *pb.ListEntry {
	return &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: kind, Value: value, Legal: legal}
}

func trust(owner string, tier pb.TrustTier) *pb.ListEntry {
	return &pb.ListEntry{List: pb.ListName_TRUST, Kind: pb.ListKind_LIST_OWNER, Value: owner, Tier: tier}
}

func closed(tier pb.TrustTier) *pb.SwitchChanged {
	return &pb.SwitchChanged{Tier: tier, Closed: true, Step: pb.SwitchStep_SWITCH_TURNED}
}

var (
	abc     = []byte(events.RouteKey("s.example", "abc"))
	visitor = netip.MustParseAddr("198.51.100.7")
)

const (
	fresh = time.Second
	old   = 6 * time.Second
	bound = 5 * time.Second
	never = time.Duration(math.MaxInt64)
)

// What a visitor of ann's link s.example/abc to www.evil.example meets, step by step.
func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		state                 *commands.Control
		age                   time.Duration
		visit, target, served deny.Answer
	}{
		"no state":            {nil, never, deny.Pass, deny.Pass, deny.Pass},
		"no entry":            {folded(closedAndOpened()...), never, deny.Pass, deny.Pass, deny.Pass},
		"code":                {folded(entry(pb.ListKind_LIST_CODE, "s.example/abc", false)), fresh, deny.Forbidden, deny.Pass, deny.Pass},
		"code, legal":         {folded(entry(pb.ListKind_LIST_CODE, "s.example/abc", true)), fresh, deny.Legal, deny.Pass, deny.Pass},
		"network":             {folded(entry(pb.ListKind_LIST_NETWORK, "198.51.100.0/24", false)), fresh, deny.Forbidden, deny.Pass, deny.Pass},
		"network, legal":      {folded(entry(pb.ListKind_LIST_NETWORK, "198.51.100.0/24", true)), fresh, deny.Legal, deny.Pass, deny.Pass},
		"code before network": {folded(entry(pb.ListKind_LIST_NETWORK, "198.51.100.0/24", true), entry(pb.ListKind_LIST_CODE, "s.example/abc", false)), fresh, deny.Forbidden, deny.Pass, deny.Pass},
		"host":                {folded(entry(pb.ListKind_LIST_HOST, "www.evil.example", true)), fresh, deny.Pass, deny.Legal, deny.Pass},
		"suffix":              {folded(entry(pb.ListKind_LIST_HOST_SUFFIX, "evil.example", false)), fresh, deny.Pass, deny.Forbidden, deny.Pass},
		"another host":        {folded(entry(pb.ListKind_LIST_HOST, "evil.example", false)), fresh, deny.Pass, deny.Pass, deny.Pass},
		"allowed": {folded(entry(pb.ListKind_LIST_HOST_SUFFIX, "evil.example", false),
			&pb.ListEntry{List: pb.ListName_ALLOWLIST, Kind: pb.ListKind_LIST_HOST, Value: "www.evil.example"}), fresh, deny.Pass, deny.Pass, deny.Pass},
		"low trust, fresh":        {folded(trust("ann", pb.TrustTier_TRUST_LOW)), fresh, deny.Pass, deny.Pass, deny.Uncached},
		"low trust, at the bound": {folded(trust("ann", pb.TrustTier_TRUST_LOW)), bound, deny.Pass, deny.Pass, deny.Uncached},
		"low trust, stale":        {folded(trust("ann", pb.TrustTier_TRUST_LOW)), old, deny.Pass, deny.Pass, deny.Stale},
		"low trust, no pulse":     {folded(trust("ann", pb.TrustTier_TRUST_LOW)), never, deny.Pass, deny.Pass, deny.Stale},
		"standard trust, stale":   {folded(trust("bob", pb.TrustTier_TRUST_LOW)), old, deny.Pass, deny.Pass, deny.Pass},
		"high trust, stale":       {folded(trust("ann", pb.TrustTier_TRUST_HIGH)), old, deny.Pass, deny.Pass, deny.Pass},
		"denied and stale":        {folded(trust("ann", pb.TrustTier_TRUST_LOW), entry(pb.ListKind_LIST_CODE, "s.example/abc", true)), old, deny.Legal, deny.Pass, deny.Stale},
		"standard closed":         {folded(closed(pb.TrustTier_TRUST_STANDARD)), fresh, deny.Pass, deny.Pass, deny.Closed},
		"low closed, not low":     {folded(closed(pb.TrustTier_TRUST_LOW)), fresh, deny.Pass, deny.Pass, deny.Pass},
		"low closed":              {folded(closed(pb.TrustTier_TRUST_LOW), trust("ann", pb.TrustTier_TRUST_LOW)), old, deny.Pass, deny.Pass, deny.Closed},
	} {
		lists := c.state.Lists()
		if got := deny.Visit(lists, abc, visitor, nowUS); got != c.visit {
			t.Errorf("%s: before the look-up %v, want %v", name, got, c.visit)
		}
		if got := deny.Target(lists, "https://www.evil.example/x", nowUS); got != c.target {
			t.Errorf("%s: the target %v, want %v", name, got, c.target)
		}
		age := func() time.Duration { return c.age }
		if got := deny.Trust(lists, abc, events.OwnerHash("ann"), nowUS, age, bound); got != c.served {
			t.Errorf("%s: trust %v, want %v", name, got, c.served)
		}
		gate := deny.NewGate(func() *commands.Control { return c.state }, age, bound)
		if got := gate.Trust(gate.Lists(), abc, events.OwnerHash("ann"), nowUS); got != c.served {
			t.Errorf("%s: by the gate %v, want %v", name, got, c.served)
		}
	}
}

func closedAndOpened() []any {
	return []any{closed(pb.TrustTier_TRUST_STANDARD), &pb.SwitchChanged{Tier: pb.TrustTier_TRUST_STANDARD, Step: pb.SwitchStep_SWITCH_TURNED}}
}

// The age is asked for links of low trust and no others.
func TestAgeIsAskedForLowTrustOnly(t *testing.T) {
	asked := func() time.Duration { t.Error("the age was asked"); return 0 }
	lists := folded(trust("ann", pb.TrustTier_TRUST_LOW)).Lists()
	if got := deny.Trust(lists, abc, events.OwnerHash("bob"), nowUS, asked, bound); got != deny.Pass {
		t.Error(got)
	}
	deny.Trust(nil, abc, events.OwnerHash("ann"), nowUS, asked, bound)
}

func TestAnswers(t *testing.T) {
	var none *deny.Gate
	none.Count(deny.Legal)
	if none.Lists() != nil || none.Trust(nil, abc, 0, nowUS) != deny.Pass {
		t.Error("no gate holds somebody up")
	}
	gate := deny.NewGate(func() *commands.Control { return nil }, nil, bound)
	for answer, want := range map[deny.Answer][2]int{deny.Pass: {0, 0}, deny.Forbidden: {http.StatusForbidden, 0}, deny.Legal: {451, 0}, deny.Closed: {503, 60}, deny.Stale: {503, 5}} {
		if answer.Status() != want[0] || answer.RetryAfter() != want[1] {
			t.Errorf("%v: %d, %d", answer, answer.Status(), answer.RetryAfter())
		}
		gate.Count(answer)
	}
	if got := fmt.Sprint(gate.Counts()); got != "map[closed:1 forbidden:1 legal:1 stale:1]" {
		t.Error(got)
	}
}

// A visit that meets all lists and is let through allocates nothing, whatever they hold.
func TestLookUpsDoNotAllocate(t *testing.T) {
	for _, n := range []int{0, 10, 1000} {
		lists := filled(n).Lists()
		allocated := testing.AllocsPerRun(100, func() { visitOnce(t, lists) })
		if allocated > 0 {
			t.Errorf("%d entries: %v allocations a visit", n, allocated)
		}
	}
}

func visitOnce(t testing.TB, lists *commands.Lists) {
	if deny.Visit(lists, abc, visitor, nowUS) != deny.Pass || deny.Target(lists, "https://www.shop.example.com/a/path?and=query", nowUS) != deny.Pass ||
		deny.Trust(lists, abc, 7, nowUS, func() time.Duration { return fresh }, bound) != deny.Pass {
		t.Fatal("held up")
	}
}

// filled has n entries of each kind, none of which concerns the visit of visitOnce.
func filled(n int) *commands.Control {
	var list []any
	for i := range n {
		list = append(list, entry(pb.ListKind_LIST_CODE, fmt.Sprintf("s.example/code%d", i), false),
			entry(pb.ListKind_LIST_HOST, fmt.Sprintf("h%d.evil.example", i), false),
			entry(pb.ListKind_LIST_HOST_SUFFIX, fmt.Sprintf("s%d.evil.example", i), false),
			entry(pb.ListKind_LIST_NETWORK, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32).String(), false),
			trust(fmt.Sprint("owner", i), pb.TrustTier_TRUST_LOW))
	}
	return folded(list...)
}

// BenchmarkVisit is what the lists cost a visit that is let through: n entries of each kind.
func BenchmarkVisit(b *testing.B) {
	for _, n := range []int{0, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			lists := filled(n).Lists()
			b.ReportAllocs()
			for b.Loop() {
				visitOnce(b, lists)
			}
		})
	}
}

// BenchmarkAdd is what one more entry costs a node that holds n of each kind.
func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{0, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			state := filled(n)
			more := &pb.Envelope{Seq: 1 << 40, Events: []*pb.Event{{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: entry(pb.ListKind_LIST_HOST, "one.more.example", false)}}}}}
			b.ReportAllocs()
			for b.Loop() {
				commands.EvolveControl(state, more)
			}
		})
	}
}
