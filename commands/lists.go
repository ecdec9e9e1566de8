package commands

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ListItem is an entry of a list with who added it, and when. It is never changed.
type ListItem struct {
	*pb.ListEntry
	// AddedUS is the stamped time of the command that added or last replaced it; microseconds.
	AddedUS int64
	Actor   string
	// Seq is the control position of that command's envelope.
	Seq uint64
}

// Counts reports whether the entry counts at a time in microseconds: from its expiry on it does not.
func (i *ListItem) Counts(nowUS int64) bool {
	return i != nil && (i.GetExpiresUs() == 0 || nowUS < i.GetExpiresUs())
}

// Name says in words which entry it is: "denylist: host_suffix evil.example".
func (i *ListItem) Name() string {
	return ListNameOf(i.GetList()) + ": " + ListKindOf(i.GetKind()) + " " + i.GetValue()
}

// Lists is what the control log says of links, hosts, visitors and owners, in the form in which it is looked up: a Lists is
// never changed, look-ups take no lock and do not allocate. The nil Lists is empty.
//
// What decides, when several entries speak of one visit: the code, then the visitor's network, then the target's host; of
// networks and of host suffixes that hold each other the narrowest that counts. An entry of the allowlist is a host, and takes
// that very host out of denials that are broader than a host (suffixes). It is no answer to a denial of the host itself, of
// the code or of the network: somebody meant exactly those.
type Lists struct {
	items    cowMap[*ListItem] // all, by id
	codes    cowMap[*ListItem] // by route key
	hosts    cowMap[*ListItem]
	suffixes cowMap[*ListItem]
	allowed  cowMap[*ListItem]
	networks *bart.Table[*ListItem]
	links    cowMap[*ListItem] // trust, by route key
	owners   cowMap[*ListItem] // trust, by the bytes of the owner's hash
	closed   [len(TrustTiers)]bool
	counts   [len(listNames)]int
}

// TrustTiers are the tiers, from the least trusted.
var TrustTiers = [...]pb.TrustTier{pb.TrustTier_TRUST_LOW, pb.TrustTier_TRUST_STANDARD, pb.TrustTier_TRUST_HIGH}

// DeniesCodes reports whether any code is denied.
func (l *Lists) DeniesCodes() bool { return l != nil && l.codes.count > 0 }

// DeniesClients reports whether any network is denied, so that it matters who visits.
func (l *Lists) DeniesClients() bool { return l != nil && l.networks != nil && l.networks.Size() > 0 }

// DeniesHosts reports whether any host or suffix is denied.
func (l *Lists) DeniesHosts() bool { return l != nil && l.hosts.count+l.suffixes.count > 0 }

// Tiered reports whether links may differ in trust, or a tier is closed.
func (l *Lists) Tiered() bool {
	return l != nil && (l.links.count+l.owners.count > 0 || l.closed != [len(TrustTiers)]bool{})
}

// Code returns the denial of a code that counts at a time in microseconds, nil if there is none. The route key is borrowed.
func (l *Lists) Code(routeKey []byte, nowUS int64) *ListItem {
	if l == nil {
		return nil
	}
	if found, _ := l.codes.getBytes(routeKey); found.Counts(nowUS) {
		return found
	}
	return nil
}

// Client returns the denial of a visitor's network that counts at a time in microseconds, nil if there is none.
func (l *Lists) Client(client netip.Addr, nowUS int64) *ListItem {
	if !l.DeniesClients() || !client.IsValid() {
		return nil
	}
	client = client.WithZone("").Unmap()
	found, ok := l.networks.Lookup(client)
	if !ok || found.Counts(nowUS) {
		return found
	}
	for _, wider := range l.networks.Supernets(netip.PrefixFrom(client, client.BitLen())) {
		if wider.Counts(nowUS) {
			return wider
		}
	}
	return nil
}

// Target returns the denial of the host of a normalised target that counts at a time in microseconds, nil if there is none.
func (l *Lists) Target(target string, nowUS int64) *ListItem {
	if !l.DeniesHosts() {
		return nil
	}
	return l.Host(ListHost(target), nowUS)
}

// Host is Target for a host as ListHost returns it.
func (l *Lists) Host(host string, nowUS int64) *ListItem {
	if l == nil || host == "" {
		return nil
	}
	if found, _ := l.hosts.get(host); found.Counts(nowUS) {
		return found
	}
	if l.suffixes.count == 0 {
		return nil
	}
	if allowed, _ := l.allowed.get(host); allowed.Counts(nowUS) {
		return nil
	}
	for {
		if found, _ := l.suffixes.get(host); found.Counts(nowUS) {
			return found
		}
		dot := strings.IndexByte(host, '.')
		if dot < 0 {
			return nil
		}
		host = host[dot+1:]
	}
}

// Tier returns the trust in a link: what was said of the link itself, else of its owner (events.OwnerHash), else standard. The
// route key is borrowed.
func (l *Lists) Tier(routeKey []byte, owner uint64, nowUS int64) pb.TrustTier {
	if found := l.trusted(routeKey, owner, nowUS); found != nil {
		return found.GetTier()
	}
	return pb.TrustTier_TRUST_STANDARD
}

// trusted returns the entry that says how far a link is trusted, nil if none does.
func (l *Lists) trusted(routeKey []byte, owner uint64, nowUS int64) *ListItem {
	if l == nil {
		return nil
	}
	if found, _ := l.links.getBytes(routeKey); found.Counts(nowUS) {
		return found
	}
	if l.owners.count == 0 {
		return nil
	}
	var key [8]byte
	binary.LittleEndian.PutUint64(key[:], owner)
	if found, _ := l.owners.getBytes(key[:]); found.Counts(nowUS) {
		return found
	}
	return nil
}

// Until returns when the first of the entries ends that may be why a link is served as it is, in microseconds: an allowed host, or
// trust in the link or its owner; 0: none ends. The route key is borrowed.
func (l *Lists) Until(routeKey []byte, owner uint64, target string, nowUS int64) int64 {
	if l == nil || l.allowed.count+l.links.count+l.owners.count == 0 {
		return 0
	}
	var allowed *ListItem
	if l.allowed.count > 0 {
		allowed, _ = l.allowed.get(ListHost(target))
	}
	return earlier(allowed.until(nowUS), l.trusted(routeKey, owner, nowUS).until(nowUS))
}

// until is when an entry that counts ends, 0: it does not, or no longer counts.
func (i *ListItem) until(nowUS int64) int64 {
	if !i.Counts(nowUS) {
		return 0
	}
	return i.GetExpiresUs()
}

// earlier returns the earlier of two times, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Closed reports whether the emergency switch closed a tier.
func (l *Lists) Closed(tier pb.TrustTier) bool {
	return l != nil && TierName(tier) != "" && l.closed[tier]
}

// Item returns the entry of this identity, nil if there is none.
func (l *Lists) Item(list pb.ListName, kind pb.ListKind, value string) *ListItem {
	return l.ByID(list, ListID(list, kind, value))
}

// ByID returns the entry of a list with this id (ListID), nil if there is none.
func (l *Lists) ByID(list pb.ListName, id string) *ListItem {
	if l == nil {
		return nil
	}
	if found, _ := l.items.get(id); found != nil && found.GetList() == list {
		return found
	}
	return nil
}

// Each calls f with every entry of a list, in no order, until it returns false. Entries that expired are among them.
func (l *Lists) Each(list pb.ListName, f func(*ListItem) bool) {
	if l == nil {
		return
	}
	l.items.each(func(_ string, i *ListItem) bool { return i.GetList() != list || f(i) })
}

// with returns lists that hold an entry, in place of the one with its identity.
func (l *Lists) with(i *ListItem) *Lists {
	next := l.without(i.ListEntry)
	next.items = next.items.with(ListID(i.GetList(), i.GetKind(), i.GetValue()), i)
	next.counts[i.GetList()]++
	if index := next.index(i.ListEntry); index != nil {
		*index = index.with(indexKey(i.ListEntry), i)
	} else if network, err := netip.ParsePrefix(i.GetValue()); err == nil {
		next.networks = networksOf(next).InsertPersist(network, i)
	}
	return next
}

// without returns lists that do not hold the entry of this identity.
func (l *Lists) without(e *pb.ListEntry) *Lists {
	next := &Lists{}
	if l != nil {
		*next = *l
	}
	key := ListID(e.GetList(), e.GetKind(), e.GetValue())
	if _, ok := next.items.get(key); !ok {
		return next
	}
	next.items = next.items.without(key)
	next.counts[e.GetList()]--
	if index := next.index(e); index != nil {
		*index = index.without(indexKey(e))
	} else if network, err := netip.ParsePrefix(e.GetValue()); err == nil {
		next.networks = networksOf(next).DeletePersist(network)
	}
	return next
}

func networksOf(l *Lists) *bart.Table[*ListItem] {
	if l.networks == nil {
		return &bart.Table[*ListItem]{}
	}
	return l.networks
}

// index returns the map that an entry is looked up in, nil for a network.
func (l *Lists) index(e *pb.ListEntry) *cowMap[*ListItem] {
	switch e.GetList() {
	case pb.ListName_ALLOWLIST:
		return &l.allowed
	case pb.ListName_TRUST:
		if e.GetKind() == pb.ListKind_LIST_OWNER {
			return &l.owners
		}
		return &l.links
	}
	switch e.GetKind() {
	case pb.ListKind_LIST_CODE:
		return &l.codes
	case pb.ListKind_LIST_HOST:
		return &l.hosts
	case pb.ListKind_LIST_HOST_SUFFIX:
		return &l.suffixes
	}
	return nil
}

// indexKey is what an entry is looked up by.
func indexKey(e *pb.ListEntry) string {
	switch e.GetKind() {
	case pb.ListKind_LIST_CODE:
		namespace, code, _ := strings.Cut(e.GetValue(), "/")
		return events.RouteKey(namespace, code)
	case pb.ListKind_LIST_OWNER:
		return string(binary.LittleEndian.AppendUint64(nil, events.OwnerHash(e.GetValue())))
	}
	return e.GetValue()
}
