package commands

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Names of lists, of kinds of entries and of tiers, as requests and answers have them; by their numbers.
var (
	listNames = [...]string{pb.ListName_DENYLIST: "denylist", pb.ListName_ALLOWLIST: "allowlist", pb.ListName_TRUST: "trust"}
	listKinds = [...]string{pb.ListKind_LIST_CODE: "code", pb.ListKind_LIST_HOST: "host", pb.ListKind_LIST_HOST_SUFFIX: "host_suffix",
		pb.ListKind_LIST_NETWORK: "network", pb.ListKind_LIST_OWNER: "owner"}
	tierNames = [...]string{pb.TrustTier_TRUST_STANDARD: "standard", pb.TrustTier_TRUST_LOW: "low", pb.TrustTier_TRUST_HIGH: "high"}
)

// kindsOf are the kinds of entries that a list has.
var kindsOf = map[pb.ListName][]pb.ListKind{
	pb.ListName_DENYLIST:  {pb.ListKind_LIST_CODE, pb.ListKind_LIST_HOST, pb.ListKind_LIST_HOST_SUFFIX, pb.ListKind_LIST_NETWORK},
	pb.ListName_ALLOWLIST: {pb.ListKind_LIST_HOST},
	pb.ListName_TRUST:     {pb.ListKind_LIST_CODE, pb.ListKind_LIST_OWNER},
}

// nameOf returns the name of a number, "" for one that has none.
func nameOf[N ~int32](names []string, n N) string {
	if n < 0 || int(n) >= len(names) {
		return ""
	}
	return names[n]
}

// numberOf returns the number of a name; false for one that nothing has.
func numberOf[N ~int32](names []string, name string) (N, bool) {
	i := slices.Index(names, name)
	return N(max(i, 0)), i >= 0 && name != ""
}

// ListNameOf returns a list's name, "" if it has none.
func ListNameOf(list pb.ListName) string { return nameOf(listNames[:], list) }

// ListKindOf returns the name of a kind of entries, "" if it has none.
func ListKindOf(kind pb.ListKind) string { return nameOf(listKinds[:], kind) }

// TierName returns a tier's name, "" if it has none.
func TierName(tier pb.TrustTier) string { return nameOf(tierNames[:], tier) }

// ParseListName returns the list of a name.
func ParseListName(name string) (pb.ListName, bool) { return numberOf[pb.ListName](listNames[:], name) }

// ParseListKind returns the kind of entries of a name, if the list has it.
func ParseListKind(list pb.ListName, name string) (pb.ListKind, bool) {
	kind, ok := numberOf[pb.ListKind](listKinds[:], name)
	return kind, ok && slices.Contains(kindsOf[list], kind)
}

// ListKinds returns the names of the kinds of entries that a list has.
func ListKinds(list pb.ListName) (names []string) {
	for _, kind := range kindsOf[list] {
		names = append(names, ListKindOf(kind))
	}
	return names
}

// ParseTier returns the tier of a name.
func ParseTier(name string) (pb.TrustTier, bool) { return numberOf[pb.TrustTier](tierNames[:], name) }

// ListID is the public name of an entry's identity: the same for ever, whoever adds it.
func ListID(list pb.ListName, kind pb.ListKind, value string) string {
	sum := sha256.Sum256([]byte(ListNameOf(list) + "\x00" + ListKindOf(kind) + "\x00" + value))
	return hex.EncodeToString(sum[:listIDBytes])
}

const listIDBytes = 12

// NormalizeListValue returns the value of an entry in the form in which it is stored; domains brings the namespace that a
// domain or an alias stands for. The error is a *Refusal.
func NormalizeListValue(kind pb.ListKind, value string, control *Control) (string, error) {
	switch kind {
	case pb.ListKind_LIST_CODE:
		return normalListCode(value, control)
	case pb.ListKind_LIST_HOST:
		return normalListHost(value)
	case pb.ListKind_LIST_HOST_SUFFIX:
		host, err := normalListHost(strings.TrimPrefix(strings.TrimPrefix(value, "*"), "."))
		if err == nil && isAddress(host) {
			return "", refuseValue("a suffix is a name, not an address; an address is of kind host")
		}
		return host, err
	case pb.ListKind_LIST_NETWORK:
		return normalListNetwork(value)
	case pb.ListKind_LIST_OWNER:
		if r := checkText(fieldValue, value, MaxOwner); r != nil {
			return "", r
		}
		if value == "" {
			return "", refuseValue("the owner's name is empty")
		}
		return value, nil
	}
	return "", refuseValue("entries of this kind are not known")
}

const fieldValue = "value"

func refuseValue(format string, args ...any) *Refusal {
	return Refuse(CodeInvalidRequest, fieldValue, fmt.Sprintf(format, args...))
}

// normalListCode reads DOMAIN/CODE, or CODE on the default domain.
func normalListCode(value string, control *Control) (string, error) {
	name, code, found := strings.Cut(value, "/")
	if !found {
		name, code = control.DefaultDomain().GetNamespace(), value
	}
	namespace, err := events.NormalizeNamespace(name)
	if err != nil {
		return "", refuseValue("want DOMAIN/CODE: %s", err)
	}
	domain := control.Resolve(namespace)
	if domain == nil {
		return "", refuseValue("%s is no short domain here", namespace)
	}
	if code, err = events.NormalizeCode(code); err != nil {
		return "", refuseValue("want DOMAIN/CODE: %s", err)
	}
	return domain.GetNamespace() + "/" + code, nil
}

// normalListHost reads a host without port, an IPv6 address with or without its brackets.
func normalListHost(value string) (string, error) {
	if address, err := netip.ParseAddr(value); err == nil && address.Is6() {
		value = "[" + value + "]"
	}
	name, port, err := events.SplitAuthority(value)
	if err == nil && (port != "" || strings.HasSuffix(value, ":")) {
		return "", refuseValue("want a host without port: it counts on every port")
	}
	if err == nil {
		name, err = events.NormalizeNamespace(name)
	}
	if err != nil {
		return "", refuseValue("%s", err)
	}
	return unbracketed(name), nil
}

// unbracketed returns a host in normal form with an IPv6 address as lists hold it: without brackets, and as the IPv4 address
// that it stands for if it does.
func unbracketed(host string) string {
	inner, ok := strings.CutPrefix(host, "[")
	if !ok {
		return host
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
	if err != nil {
		return host
	}
	return address.Unmap().String()
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// The widest networks that can be denied. A wider one is a slip; a tier can be closed by the switch.
const (
	widestIPv4 = 8
	widestIPv6 = 16
)

func normalListNetwork(value string) (string, error) {
	network, err := netip.ParsePrefix(value)
	if err != nil {
		address, failed := netip.ParseAddr(value)
		if failed != nil || address.Zone() != "" {
			return "", refuseValue("want a network such as 192.0.2.0/24 or 2001:db8::/32, or an address")
		}
		network = netip.PrefixFrom(address, address.BitLen())
	}
	if network.Addr().Is4In6() {
		if network.Bits() < 96 {
			return "", refuseValue("want an IPv4 network in its own notation, such as 192.0.2.0/24")
		}
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	widest := widestIPv6
	if network.Addr().Is4() {
		widest = widestIPv4
	}
	if network.Bits() < widest {
		return "", refuseValue("the network is wider than /%d, which is more than anybody means", widest)
	}
	return network.Masked().String(), nil
}

// ListHost returns the host of a normalised target as lists hold it: lower case, without port and trailing dot, an address in
// its shortest form. It does not allocate for names that are typed so. "" if there is none.
func ListHost(target string) string {
	_, rest, found := strings.Cut(target, "://")
	if !found || rest == "" {
		return ""
	}
	if rest[0] == '[' {
		end := strings.IndexByte(rest, ']')
		return unbracketed(rest[:end+1])
	}
	end, upper := len(rest), false
scan:
	for i := range len(rest) {
		switch c := rest[i]; {
		case c == '/' || c == ':' || c == '?' || c == '#':
			end = i
			break scan
		case 'A' <= c && c <= 'Z':
			upper = true
		}
	}
	host := strings.TrimSuffix(rest[:end], ".")
	if upper {
		host = strings.ToLower(host)
	}
	return host
}
