package gateway

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hoplog/hoplog/schemas/pb"
)

func TestClickReferrerHost(t *testing.T) {
	for referrer, want := range map[string]string{
		"https://example.com/path?q": "example.com", "http://EXAMPLE.com": "example.com", "https://example.com:8443/": "example.com",
		"https://user:secret@example.com/": "example.com", "android-app://com.example.mail/": "com.example.mail", "https://[2001:db8::1]:443/x": "[2001:db8::1]",
		"https://[2001:db8::1]/x": "[2001:db8::1]", "https://example.com?x@y": "example.com", "https://example.com#a": "example.com",
		"": "", "about:blank": "", "ftp://example.com/": "", "javascript://x/%0a": "", "https://": "", "https:///x": "", "//example.com/": "",
		"https://exa mple.com/": "", "https://ex\xffample.com/": "", "https://b\xc3\xbccher.example/": "", "https://a,b/": "",
		"https://" + strings.Repeat("a", 254) + "/": "",
		"https://" + strings.Repeat("a", 5000):      "",
	} {
		cut := clickCut([]byte(referrer), clickMaxReferrer)
		if got := string(clickReferrerHost(cut)); got != want {
			t.Errorf("%.60q: %q, want %q", referrer, got, want)
		}
	}
}

func TestClickReadUTM(t *testing.T) {
	for query, want := range map[string]string{
		"utm_source=a": "a", "x=1&utm_source=a+b&utm_source=c": "a b", "utm_source": "", "utm_source=": "", "utm_source=%": "%", "utm_source=%4": "%4",
		"utm_source=%zz": "%zz", "utm_source=a%00b": "a?b", "utm_source=%ff%fe": "??", "utm_source=%0d%0a": "??", "UTM_SOURCE=a": "", "utm_source=a=b": "a=b",
		"utm_source=&utm_source=b": "b", "utm_source=%F0%9F%9A%80": "🚀", "utm_source=\xffx": "?x",
		"utm_source=" + strings.Repeat("a", 300):           strings.Repeat("a", 256),
		"utm_source=a" + strings.Repeat("%c3%bc", 300):     "a" + strings.Repeat("ü", 127),
		"utm_source=" + strings.Repeat("%F0%9F%9A%80", 65): strings.Repeat("🚀", 64),
	} {
		var c pb.Click
		clickReadUTM(&c, []byte(query))
		if c.UtmSource != want || !utf8.ValidString(c.UtmSource) {
			t.Errorf("%.60q: %q, want %q", query, c.UtmSource, want)
		}
	}
}

func TestClickTruncate(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.77": "\xc0\x00\x02\x00", "2001:db8:1:2:3:4:5:6": "\x20\x01\x0d\xb8\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "": "",
	} {
		address, _ := netip.ParseAddr(text)
		if got := string(clickTruncate(address, nil)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestClickVisitors(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.7")
	day := int64(20_000) * clickDayUS
	one, two := newClickVisitors([]byte("secret")), newClickVisitors([]byte("secret"))
	first := one.number(day, address, testDigest("agent"))
	if first == 0 || first != two.number(day+clickDayUS-1, address, testDigest("agent")) {
		t.Error("two nodes disagree on one day")
	}
	for what, other := range map[string]uint64{
		"next day":     one.number(day+clickDayUS, address, testDigest("agent")),
		"other agent":  one.number(day, address, testDigest("other")),
		"other IP":     one.number(day, netip.MustParseAddr("192.0.2.8"), testDigest("agent")),
		"other secret": newClickVisitors([]byte("x")).number(day, address, testDigest("agent")),
	} {
		if other == first {
			t.Errorf("%s: the same visitor", what)
		}
	}
	if n := one.number(day, netip.Addr{}, testDigest("agent")); n != 0 {
		t.Errorf("a visitor of nowhere: %d", n)
	}
}

func testDigest(agent string) [16]byte { return newClickKnownAgent(agent).digest }

func FuzzClick(f *testing.F) {
	f.Add("abc", redirectTestAgent, "https://example.com/x", "utm_source=a%20b&utm_term=%ff", int64(1), true)
	f.Add("\xff", "\xff\xfe", "https://\xff@[::1]:1", "utm_source=%", int64(-1), false)
	agents, visitors, encoder := newClickAgents(), newClickVisitors([]byte("secret")), &clickEncoder{}
	f.Fuzz(func(t *testing.T, code, agent, referrer, query string, time int64, prefetch bool) {
		if !utf8.ValidString(code) {
			code = "x" // the path's decoder lets none through
		}
		click := Click{LinkID: 1, TimeUS: time, Status: 302, Namespace: "s.example", Code: []byte(code), UserAgent: []byte(agent), Referrer: []byte(referrer),
			Query: []byte(query), Prefetch: prefetch, Address: netip.MustParseAddr("192.0.2.7")}
		known := agents.of(clickCut(click.UserAgent, clickMaxUserAgent))
		value := encoder.append(clickBlockPrefix("n", "r", [16]byte{1}, 3), &click, 5, known, visitors.number(time, click.Address, known.digest))
		if len(value) > clickMaxBytes {
			t.Fatalf("%d bytes", len(value))
		}
		var block pb.ClickBlock
		if err := block.UnmarshalVT(value); err != nil || len(block.Clicks) != 1 || block.Node != "n" || block.Partition != 3 {
			t.Fatal(err)
		}
		c := block.Clicks[0]
		for _, s := range []string{c.Namespace, c.ReferrerHost, c.Device, c.Os, c.Browser, c.UtmSource, c.UtmMedium, c.UtmCampaign, c.UtmTerm, c.UtmContent} {
			if !utf8.ValidString(s) || len(s) > 256 || strings.ContainsAny(s, "\r\n\x00") {
				t.Errorf("%q", s)
			}
		}
		if len(code) <= clickMaxCode && c.Code != code {
			t.Errorf("code %q is %q", code, c.Code)
		}
		if c.Sequence != 5 || c.TimeUs != time || string(c.Ip) != "\xc0\x00\x02\x00" {
			t.Errorf("%v", c)
		}
	})
}
