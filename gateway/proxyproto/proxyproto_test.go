package proxyproto_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/proxyproto"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

func TestParse(t *testing.T) {
	v4 := "\xc0\x00\x02\x07" + "\x0a\x00\x00\x01" + "\x12\x67\x01\xbb"
	v6 := "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + strings.Repeat("\x00", 15) + "\x01" + "\x12\x67\x01\xbb"
	for name, c := range map[string]struct {
		raw    string
		source string // "": the header names none
		want   error
	}{
		"1, IPv4":              {"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n", "192.0.2.7", nil},
		"1, IPv6":              {"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n", "2001:db8::1", nil},
		"1, unknown":           {"PROXY UNKNOWN\r\n", "", nil},
		"1, unknown with more": {"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", nil},
		"2, IPv4":              {signature + "\x21\x11\x00\x0c" + v4, "192.0.2.7", nil},
		"2, IPv6":              {signature + "\x21\x21\x00\x24" + v6, "2001:db8::1", nil},
		"2, with more":         {signature + "\x21\x11\x00\x10" + v4 + "\x03\x00\x01x", "192.0.2.7", nil},
		"2, local":             {signature + "\x20\x00\x00\x00", "", nil},
		"2, a Unix socket":     {signature + "\x21\x31\x00\x02xx", "", nil},
		"no header":            {"GET / HTTP/1.1\r\n", "", proxyproto.ErrHeader},
		"1, wrong family":      {"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "", proxyproto.ErrHeader},
		"1, a name":            {"PROXY TCP4 visitor.example 10.0.0.1 1 2\r\n", "", proxyproto.ErrHeader},
		"1, too few":           {"PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n", "", proxyproto.ErrHeader},
		"1, two spaces":        {"PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n", "", proxyproto.ErrHeader},
		"1, no port":           {"PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n", "", proxyproto.ErrHeader},
		"1, endless":           {"PROXY TCP4 " + strings.Repeat("1", 100), "", proxyproto.ErrHeader},
		"2, version 3":         {signature + "\x31\x11\x00\x0c" + v4, "", proxyproto.ErrHeader},
		"2, unknown command":   {signature + "\x22\x11\x00\x0c" + v4, "", proxyproto.ErrHeader},
		"2, too short":         {signature + "\x21\x11\x00\x0b" + v4[:11], "", proxyproto.ErrHeader},
		"2, endless":           {signature + "\x21\x11\xff\xff" + v4, "", proxyproto.ErrHeader},
	} {
		n, source, err := proxyproto.Parse([]byte(c.raw + "GET"))
		got := ""
		if source.IsValid() {
			got = source.String()
		}
		if !errors.Is(err, c.want) || got != c.source || err == nil && n != len(c.raw) {
			t.Errorf("%s: %d bytes, %q, %v", name, n, got, err)
		}
		for cut := range len(c.raw) {
			if n, _, err := proxyproto.Parse([]byte(c.raw[:cut])); n != 0 || c.want == nil && err != nil {
				t.Errorf("%s after %d bytes: %d, %v", name, cut, n, err)
			}
		}
	}
}

func TestListener(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	for name, c := range map[string]struct {
		networks   string
		sent       string
		from, read string
	}{
		"trusted":      {"127.0.0.0/8", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\nhello", "192.0.2.7", "hello"},
		"without one":  {"127.0.0.0/8", "hello", "127.0.0.1", ""},
		"not trusted":  {"10.0.0.0/8", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n", "127.0.0.1", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"},
		"a local one":  {"127.0.0.0/8", "PROXY UNKNOWN\r\nhello", "127.0.0.1", "hello"},
		"never begins": {"127.0.0.0/8", "", "127.0.0.1", ""},
	} {
		ln := proxyproto.NewListener(plain, []netip.Prefix{netip.MustParsePrefix(c.networks)}, 5*time.Second)
		client, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(client, c.sent)
		_ = client.Close()
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(conn)
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		if from.Addr().String() != c.from || string(data) != c.read {
			t.Errorf("%s: %q from %v", name, data, from)
		}
		_ = conn.Close()
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"))
	f.Add([]byte(signature + "\x21\x11\x00\x0c" + "\xc0\x00\x02\x07" + "\x0a\x00\x00\x01" + "\x12\x67\x01\xbb"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, source, err := proxyproto.Parse(b)
		if n < 0 || n > len(b) || err != nil && (n != 0 || source.IsValid()) || n == 0 && source.IsValid() {
			t.Errorf("%d of %d bytes, %v, %v", n, len(b), source, err)
		}
	})
}
