package gateway

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// FuzzRedirectForwarded holds the reading of forwarding headers against one that is slow and plain, and adds what a visitor may
// invent: it does not change who is found behind the hops that are trusted.
func FuzzRedirectForwarded(f *testing.F) {
	for _, line := range []string{"", "192.0.2.7", "192.0.2.7, 10.0.0.1", " , ,", "[2001:db8::1]:80, 10.0.0.1:5", "for=192.0.2.7;proto=https, for=\"[2001:db8::1]:5\"",
		"for=_hidden", "::ffff:192.0.2.7", "fe80::1%eth0", "\"a,b\"", ",192.0.2.7", "256.1.1.1", ";;for==", "FOR=\"192.0.2.7\""} {
		f.Add(line, "10.0.0.2", "203.0.113.9", uint8(1))
	}
	f.Fuzz(func(t *testing.T, first, second, invented string, hops uint8) {
		trusted := int(hops%4) + 1
		for _, entryOf := range []func([]byte) netip.Addr{redirectParseAddress, redirectForwardedFor} {
			got := redirectForwarded([][]byte{[]byte(first), []byte(second)}, trusted, entryOf)
			entries := strings.Split(first+","+second, ",")
			at := max(0, len(entries)-1-trusted)
			want := entryOf(bytes.TrimSpace([]byte(entries[at])))
			if got != want {
				t.Fatalf("%q, %q, %d hops: %v, want %v", first, second, trusted, got, want)
			}
			if got.IsValid() && (got.Zone() != "" || got.Is4In6()) {
				t.Fatalf("%v is not in its plain form", got)
			}
			if len(entries) <= trusted {
				continue
			}
			if again := redirectForwarded([][]byte{[]byte(invented), []byte(first), []byte(second)}, trusted, entryOf); again != got {
				t.Fatalf("%q in front of %q, %q: %v, was %v", invented, first, second, again, got)
			}
		}
	})
}
