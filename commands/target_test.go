package commands

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
)

type targetCase struct {
	ID       string `json:"id"`
	Target   string `json:"target"`
	Location string `json:"location"`
	Error    string `json:"error"`
}

func loadTargetCases(t testing.TB) []targetCase {
	t.Helper()
	data, err := os.ReadFile("testdata/targets.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []targetCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

func TestTargetCases(t *testing.T) {
	for _, c := range loadTargetCases(t) {
		t.Run(c.ID, func(t *testing.T) { checkTarget(t, c.Target, c.Location) })
	}
}

// checkTarget wants the target to normalise to want, or to be refused when want is empty.
func checkTarget(t *testing.T, raw, want string) {
	t.Helper()
	got, err := NormalizeTarget(raw)
	if want != "" {
		if err != nil || got != want {
			t.Errorf("NormalizeTarget(%q) = %q, %v; want %q", raw, got, err, want)
		}
		return
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != CodeInvalidTarget || refusal.Field != "target" {
		t.Errorf("NormalizeTarget(%q) = %q, %v; want a refusal with code %s", raw, got, err, CodeInvalidTarget)
	}
}

const same = "\x00same"

var targetFamilies = map[string][][2]string{
	"white space around": {
		{"\t\r\n https://example.com/\v\f ", "https://example.com/"},
		{"\u00a0https://example.com/\u3000\u2028\u0085", "https://example.com/"},
		{"\ufeffhttps://example.com/", "https://example.com/"},
		{"\x00https://example.com/", ""},
		{"https://example.com/\x1b", ""},
		{"", ""}, {" \n", ""},
	},
	"scheme": {
		{"HtTp://example.com/", same},
		{"http:example.com", ""}, {"https:/example.com", ""}, {"https:///example.com", ""}, {"https:////example.com", ""},
		{"//example.com/x", ""}, {"/x", ""}, {"?x", ""}, {"://example.com", ""}, {"https", ""}, {"https:", ""}, {"https://", ""},
		{"ftp://example.com/", ""}, {"file:///etc/passwd", ""}, {"mailto:a@example.com", ""}, {"JAVASCRIPT:alert(1)", ""},
		{"java\nscript:alert(1)", ""}, {"ht\ttps://example.com", ""}, {"vbscript:x", ""}, {"blob:https://example.com/x", ""},
		{"view-source:https://example.com/", ""}, {"localhost:3000/x", ""}, {"example.com:8080/x", ""},
		{"https://https://example.com/", "https://https://example.com/"}, {"ｈttps://example.com/", ""}, {"https：//example.com/", ""},
	},
	"user information": {
		{"https://@example.com/", ""}, {"https://:@example.com/", ""}, {"https://a:b@example.com/", ""},
		{"https://example.com＠evil.example/", ""}, {"https://example.com%40evil.example/", ""},
		{"https://example.com/@user", same}, {"https://example.com?m=a@b", same}, {"https://example.com#@x", same},
	},
	"port": {
		{"https://example.com:/", same}, {"https://example.com:443/", same}, {"https://example.com:65535", same}, {"https://example.com:00443/", same},
		{"https://example.com:0/", ""}, {"https://example.com:65536/", ""}, {"https://example.com:-1/", ""}, {"https://example.com:+80/", ""},
		{"https://example.com:8o/", ""}, {"https://example.com:80:80/", ""}, {"https://example.com:８０/", ""}, {"https://:80/", ""},
		{"https://example.com: 80/", ""}, {"https://example.com：80/", ""}, {"https://example.com:99999999999999999999/", ""},
	},
	"address": {
		{"http://127.0.0.1:8080/", same}, {"http://127.0.0.1./", same}, {"http://[::1]", same}, {"http://[2001:DB8:0::1]/", same}, {"http://[::ffff:192.0.2.1]/", same},
		{"http://[::1", ""}, {"http://::1]/", ""}, {"http://[]/", ""}, {"http://[::1]x/", ""}, {"http://[::1]:x/", ""}, {"http://[1.2.3.4]/", ""},
		{"http://[fe80::1%eth0]/", ""}, {"http://[fe80::1%25eth0]/", ""}, {"http://[v1.x]/", ""}, {"http://[example.com]/", ""}, {"http://2001:db8::1/", ""},
		{"http://[::1]@[::2]/", ""}, {"http://[", ""}, {"http://[:80/", ""}, {"http://x[::1]/", ""}, {"http://[[::1]]/", ""},
		{"http://2130706433/", ""}, {"http://0x7f000001/", ""}, {"http://127.1/", ""}, {"http://0177.0.0.1/", ""}, {"http://256.1.1.1/", ""},
		{"http://1.2.3.4.5/", ""}, {"http://example.1/", ""}, {"http://1.2.3.0x4/", ""}, {"http://１２７.0.0.1/", "http://127.0.0.1/"},
		{"http://1337.net/", same}, {"http://4chan.example/", same},
	},
	"host name": {
		{"https://localhost/", same}, {"https://intranet", same}, {"https://a.b.c.d.e.example", same}, {"https://foo_bar.example/", same}, {"https://_dmarc.example.com/", same},
		{"https://r3---sn-apo3qvuoxuxbt-j5pe.example/", same}, {"https://EXAMPLE.COM./", same},
		{"https://.example.com/", ""}, {"https://example..com/", ""}, {"https://example.com../", ""}, {"https://./", ""}, {"https://-a.example/", ""}, {"https://a-.example/", ""},
		{"https://" + strings.Repeat("a", 63) + ".example/", same}, {"https://" + strings.Repeat("a", 64) + ".example/", ""},
		{"https://" + strings.Repeat("a.", 126) + "a/", same}, {"https://" + strings.Repeat("a.", 126) + "a./", same}, {"https://" + strings.Repeat("a.", 126) + "ab/", ""},
		{"https://exa mple.com/", ""}, {"https://exa\tmple.com/", ""}, {"https://exam\x00ple.com/", ""}, {"https://exam\x7fple.com/", ""},
		{"https://exa<mple.com/", ""}, {"https://*.example.com/", ""}, {"https://a,b.example/", ""}, {"https://a;b.example/", ""}, {"https://$HOST/", ""}, {"https://{host}/", ""},
		{"https://example.com%2f@evil.example/", ""}, {"https://%65xample.com/", ""}, {"https://ex%C3%A4mple.com/", ""}, {"https://example.com%00.evil.example/", ""},
		{"https://example.com;.evil.example/", ""}, {"https://example.com&.evil.example/", ""},
	},
	"international host": {
		{"https://münchen.example/ü", "https://xn--mnchen-3ya.example/%C3%BC"}, {"HTTPS://CÉDRIC.Example/A", "HTTPS://xn--cdric-bsa.example/A"},
		{"https://cédric.example/", "https://xn--cdric-bsa.example/"}, {"https://faß.example/", "https://xn--fa-hia.example/"},
		{"https://例え。テスト/", "https://xn--r8jz45g.xn--zckzah/"}, {"https://ｅｘａｍｐｌｅ．com/", "https://example.com/"}, {"https://例え.テスト。/", "https://xn--r8jz45g.xn--zckzah./"},
		{"https://🍕.example/", "https://xn--vi8h.example/"}, {"https://☺.example", "https://xn--74h.example"}, {"https://i❤.example/", "https://xn--i-7iq.example/"},
		{"https://مثال.إختبار/", "https://xn--mgbh0fb.xn--kgbechtv/"}, {"https://उदाहरण.परीक्षा/", "https://xn--p1b6ci4b4b3a.xn--11b5bs3a9aj6g/"},
		{"https://exam\u00adple.com/", "https://example.com/"}, {"https://münchen.example:8443/", "https://xn--mnchen-3ya.example:8443/"},
		{"https://XN--CDRIC-BSA.example/", same}, {"https://xn--cdric-bsa.example/", same}, {"https://_x.münchen.example/", "https://_x.xn--mnchen-3ya.example/"},
		{"https://xn--a/", ""}, {"https://xn--0.example/", ""}, {"https://xn--.example/", ""}, {"https://xn--example-.example/", ""}, {"https://xn--ls8h=.example/", ""},
		{"https://exam\u202eple.com/", ""}, {"https://exam\u2028ple.com/", ""}, {"https://exam\u200bple.com/", "https://example.com/"}, {"https://exam\u200dple.com/", ""}, {"https://\ufffd.example/", ""},
		{"https://a℀b.example/", ""}, {"https://example.com／evil/", ""}, {"https://example.com？x", ""}, {"https://example.com＃x", ""}, {"https://\u00ad/", ""}, {"https://。/", ""},
		{"https://é.xn--/", ""}, {"https://é.XN--:8080?x", ""}, {"https://é.\u00ad/", ""}, {"https://é｡", "https://xn--9ca."},
		{"https://exa\u0300\u0300mple.com\u3000/", ""}, {"https://\ue000.example/", ""}, {"https://" + strings.Repeat("ü", 64) + ".example/", ""}, {"https://" + strings.Repeat("ü.", 4000), ""},
	},
	"backslash": {
		{`https:\\example.com\`, ""}, {`https:/\example.com`, ""}, {`https://\example.com`, ""}, {`https://example.com\`, ""}, {`https://example.com\x`, ""},
		{`https://example.com/a\b`, ""}, {`https://example.com/\`, ""}, {`https://example.com/\evil.example`, ""},
		{`https://example.com/?a\b`, same}, {`https://example.com?\`, same}, {`https://example.com/#a\b`, same}, {`https://example.com/%5C`, same},
	},
	"controls and spaces inside": {
		{"https://example.com/a\nb", ""}, {"https://example.com/a\rb", ""}, {"https://example.com/a\tb", ""}, {"https://example.com/\x00", ""}, {"https://example.com/\x7f", ""},
		{"https://example.com/a\u0085b", ""}, {"https://example.com/a\u009fb", ""}, {"https://example.com/?a b", ""}, {"https://example.com/#a b", ""}, {"https://example.com/?a\r\nSet-Cookie:x", ""},
		{"https://example.com/#\r\nx", ""}, {"https://example.com/?%0d%0aSet-Cookie:%20x=1", same}, {"https://example.com /", ""}, {"https ://example.com/", ""}, {"https:// example.com/", ""},
	},
	"non-ASCII after the host": {
		{"https://example.com/ä?ö=ü#ß", "https://example.com/%C3%A4?%C3%B6=%C3%BC#%C3%9F"}, {"https://example.com/🍞", "https://example.com/%F0%9F%8D%9E"},
		{"https://example.com/a\u00a0b", "https://example.com/a%C2%A0b"}, {"https://example.com/a\u2028b", "https://example.com/a%E2%80%A8b"}, {"https://example.com/a\u202eb", "https://example.com/a%E2%80%AEb"},
		{"https://example.com/a\ufeffb", "https://example.com/a%EF%BB%BFb"}, {"https://example.com/e\u0301", "https://example.com/e%CC%81"}, {"https://example.com/\ufffd", "https://example.com/%EF%BF%BD"},
		{"https://example.com/\U0010ffff", "https://example.com/%F4%8F%BF%BF"}, {"https://example.com/？", "https://example.com/%EF%BC%9F"}, {"https://example.com/\xff", ""}, {"https://example.com/\xed\xa0\x80", ""}, {"https://exam\xffple.com/", ""},
	},
	"kept bytes": {
		{"https://example.com", same}, {"https://example.com?", same}, {"https://example.com#", same}, {"https://example.com/?#", same}, {"https://example.com/#?", same}, {"https://example.com/??a=?", same},
		{"https://example.com/##a#b", same}, {"https://example.com/%", same}, {"https://example.com/%2", same}, {"https://example.com/%GG%c3%28", same}, {"https://example.com/%e4%A4", same},
		{"https://example.com/a//b/./../c;p=1,2/*'()!$&+=:@[]{}|^`\"<>~-._", same}, {"https://example.com/?a=1&&b&=c&a=2&", same}, {"https://example.com/?q={a}|\"b\"^`<c>", same},
		{"https://example.com/#/route?x=https://other.example/#y", same}, {"https://example.com/#:~:text=a,-b", same}, {"https://example.com/?u=https://user:pw@other.example", same}, {"https://example.com/../..", same},
	},
	"length": {
		{"https://example.com/" + strings.Repeat("a", MaxTargetBytes-20), same}, {"https://example.com/" + strings.Repeat("a", MaxTargetBytes-19), ""},
		{"  https://example.com/" + strings.Repeat("a", MaxTargetBytes-20) + "\n", "https://example.com/" + strings.Repeat("a", MaxTargetBytes-20)},
		{"https://example.com/" + strings.Repeat("ä", (MaxTargetBytes-20)/6), "https://example.com/" + strings.Repeat("%C3%A4", (MaxTargetBytes-20)/6)}, {"https://example.com/" + strings.Repeat("ä", (MaxTargetBytes-20)/6+1), ""},
		{"https://example.com/" + strings.Repeat("🍞", MaxTargetBytes/12), ""}, {"https://" + strings.Repeat("x", 1<<20), ""},
	},
}

func TestTargetFamilies(t *testing.T) {
	for family, cases := range targetFamilies {
		t.Run(family, func(t *testing.T) {
			for _, c := range cases {
				if c[1] == same {
					c[1] = c[0]
				}
				checkTarget(t, c[0], c[1])
			}
		})
	}
}

func TestTargetHost(t *testing.T) {
	for target, want := range map[string]string{
		"HTTPS://S.Example./x":          "s.example",
		"https://s.example:443":         "s.example",
		"http://s.example:0080?x":       "s.example",
		"http://s.example:#x":           "s.example",
		"http://localhost:8081/":        "localhost:8081",
		"http://[2001:DB8::0:1]:8081/":  "[2001:db8::1]:8081",
		"https://XN--CDRIC-BSA.example": "xn--cdric-bsa.example",
		"not a target":                  "",
	} {
		if got := TargetHost(target); got != want {
			t.Errorf("TargetHost(%q) = %q, want %q", target, got, want)
		}
	}
}

// What NormalizeTarget lets through is printable ASCII without spaces, at most MaxTargetBytes long, normalises to
// itself, keeps the case-insensitive scheme, and names one host, the same for net/url and for TargetHost, without user
// information. What it refuses, it refuses as invalid_target.
func FuzzNormalizeTarget(f *testing.F) {
	for _, c := range loadTargetCases(f) {
		f.Add(c.Target)
	}
	for _, cases := range targetFamilies {
		for _, c := range cases {
			if len(c[0]) < 1024 { // longer ones slow the fuzzer down
				f.Add(c[0])
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := NormalizeTarget(raw)
		if err != nil {
			checkTarget(t, raw, "")
			return
		}
		if len(target) > MaxTargetBytes || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
			t.Errorf("%q became %q", raw, target)
		}
		if again, err := NormalizeTarget(target); err != nil || again != target {
			t.Errorf("%q became %q, that %q, %v", raw, target, again, err)
		}
		checkAuthority(t, target)
	})
}

// checkAuthority asks net/url about scheme and authority alone: the rest may have percent signs that it refuses.
func checkAuthority(t *testing.T, target string) {
	t.Helper()
	scheme, authority, _, err := splitTarget(target)
	if err != nil {
		t.Fatalf("%q does not split: %v", target, err)
	}
	parsed, err := url.Parse(scheme + "://" + authority)
	if err != nil || parsed.User != nil || parsed.Host != authority || parsed.Path != "" {
		t.Fatalf("net/url reads %q as %+v, %v", target, parsed, err)
	}
	host := TargetHost(target)
	if again := TargetHost("http://" + host); host == "" || again != host {
		t.Errorf("TargetHost of %q is %q, of that %q", target, host, again)
	}
}

func BenchmarkNormalizeTarget(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NormalizeTarget("https://example.com/articles/2026/10/a-long-title?utm_source=newsletter&utm_medium=email#top"); err != nil {
			b.Fatal(err)
		}
	}
}
