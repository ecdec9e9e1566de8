package events

import (
	"errors"
	"strings"
	"testing"
)

var goodNamespaces = map[string]string{
	"s.example": "s.example", "S.Example": "s.example", "s.example.": "s.example", "S.EXAMPLE.:80": "s.example", "s.example:443": "s.example", "s.example:": "s.example",
	"s.example:0443": "s.example", "s.example:8443": "s.example:8443", "s.example:08443": "s.example:8443", "localhost": "localhost", "localhost:8081": "localhost:8081", "LOCALHOST.:8081": "localhost:8081",
	"127.0.0.1": "127.0.0.1", "127.0.0.1:8081": "127.0.0.1:8081", "127.0.0.1.": "127.0.0.1", "[::1]": "[::1]", "[::1]:80": "[::1]", "[0:0::0:1]:8081": "[::1]:8081", "[2001:DB8::A]": "[2001:db8::a]", "[::1]:": "[::1]",
	"münchen.example": "xn--mnchen-3ya.example", "MÜNCHEN.example:8081": "xn--mnchen-3ya.example:8081", "XN--MNCHEN-3YA.Example": "xn--mnchen-3ya.example", "例え。テスト。": "xn--r8jz45g.xn--zckzah", "ｓ．ｅｘａｍｐｌｅ": "s.example",
	"go_to.example": "go_to.example", "r3---sn-x.example": "r3---sn-x.example", strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example", "1und1.example": "1und1.example",
}

var badNamespaces = []string{
	"", ".", "..", ":", ":80", "s..example", ".s.example", "s.example..", "s.example:x", "s.example:0", "s.example:65536", "s.example:80:80", "s.example:-1", "s.example: 80", " s.example", "s.example ", "s.example\r\nX: y", "s.example\x00",
	"s.example/x", "s.example?x", "s.example#x", "s.example\\x", "u@s.example", "u:p@s.example", "a.example,b.example", "s.example%00", "%73.example", "http://s.example", "*.example", "-s.example", "s-.example",
	"[::1", "::1", "[::1]x", "[::1]x:80", "[]", "[", "]", "[:80", "[]:80", "[fe80::1%eth0]", "[1.2.3.4]", "x[::1]", "2001:db8::1", "256.1.1.1", "1.2.3", "0x7f.1", "s.1",
	"\xff.example", "\u202es.example", "\ufffd", "s\u2028.example", "xn--a", "xn--0.example", strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "a", strings.Repeat("a", 1<<20), strings.Repeat("ü", 1<<20), "s.example:" + strings.Repeat("9", 1<<16),
}

func TestNormalizeNamespace(t *testing.T) {
	for host, want := range goodNamespaces {
		if got, err := NormalizeNamespace(host); err != nil || got != want {
			t.Errorf("NormalizeNamespace(%q) = %q, %v; want %q", host, got, err, want)
		}
		checkNamespace(t, host)
		checkNamespace(t, want)
	}
	for _, host := range badNamespaces {
		got, err := NormalizeNamespace(host)
		var refused *HostError
		if !errors.As(err, &refused) || refused.Detail == "" || got != "" {
			t.Errorf("NormalizeNamespace(%.80q) = %q, %v; want a refusal", host, got, err)
		}
		checkNamespace(t, host)
	}
}

// checkNamespace states what holds for every input of the two functions.
func checkNamespace(t *testing.T, host string) {
	t.Helper()
	normal := IsNormalNamespace([]byte(host))
	namespace, err := NormalizeNamespace(host)
	if err != nil {
		return
	}
	if again, err := NormalizeNamespace(namespace); err != nil || again != namespace {
		t.Errorf("%q became %q, that %q, %v", host, namespace, again, err)
	}
	if normal != (namespace == host) {
		t.Errorf("IsNormalNamespace(%q) = %v, but it normalises to %q", host, normal, namespace)
	}
	if namespace != strings.ToLower(namespace) || strings.ContainsFunc(namespace, func(r rune) bool { return r <= ' ' || r >= 0x7F }) || strings.ContainsAny(namespace, "/?#@\\%") {
		t.Errorf("%q became %q", host, namespace)
	}
}

func TestIsNormalNamespaceDoesNotAllocate(t *testing.T) {
	for host := range goodNamespaces {
		raw := []byte(host)
		if n := testing.AllocsPerRun(100, func() { IsNormalNamespace(raw) }); n != 0 {
			t.Errorf("%s: %v allocations", host, n)
		}
	}
}

// A namespace is lower-case printable ASCII without delimiters, normalises to itself, and IsNormalNamespace holds for an
// accepted host exactly when it is a namespace already.
func FuzzNormalizeNamespace(f *testing.F) {
	for host := range goodNamespaces {
		f.Add(host)
	}
	for _, host := range badNamespaces {
		addShort(f, host)
	}
	f.Fuzz(checkNamespace)
}

func BenchmarkIsNormalNamespace(b *testing.B) {
	for _, host := range []string{"s.example", "localhost:8081", "[2001:db8::1]:8081"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			raw := []byte(host)
			for b.Loop() {
				IsNormalNamespace(raw)
			}
		})
	}
}
