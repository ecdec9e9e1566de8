package gateway

import (
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hoplog/hoplog/gateway/http1"
	"github.com/hoplog/hoplog/schemas/pb"
)

func TestRedirectLanguage(t *testing.T) {
	for header, want := range map[string]redirectLanguage{
		"": redirectEnglish, "en": redirectEnglish, "zh": redirectChinese, "zh-CN": redirectChinese, "zh-TW": redirectChinese, "zh-Hant-HK": redirectChinese,
		"ZH-hans": redirectChinese, "zh-CN,zh;q=0.9,en;q=0.8": redirectChinese, "en-GB,en;q=0.9,zh;q=0.8": redirectEnglish, "en;q=0.8, zh-TW;q=0.9": redirectChinese,
		"en;q=0.8,\tzh ; q=0.801": redirectChinese, "zh,en": redirectChinese, "en,zh": redirectEnglish, "de,zh;q=0.1": redirectChinese, "de,fr": redirectEnglish,
		"*": redirectEnglish, "de,*;q=0.5": redirectEnglish, "en;q=0,*": redirectChinese, "en;q=0.1,*;q=0.2": redirectChinese, "zh;q=0": redirectEnglish,
		"zh;q=0,en;q=0": redirectEnglish, "*;q=0": redirectEnglish, "zh;q=0.5,*": redirectEnglish, "zh-TW;q=0,zh": redirectChinese, "en-US;q=0.3,zh;q=0.5,en;q=0.9": redirectEnglish,
		"zh;q=1.000": redirectChinese, "zh;q=1.001,en;q=0.1": redirectEnglish, "zh;q=2,en;q=0.1": redirectEnglish, "zh;q=0.1234,en;q=0.1": redirectEnglish,
		"zh;q=,en;q=0.1": redirectEnglish, "zh;q=-1,en;q=0.1": redirectEnglish, "zh;x=1,en;q=0.1": redirectEnglish, "zh;q=.5": redirectEnglish, "zh;Q=0.5": redirectChinese,
		",,zh,": redirectChinese, ";q=1,zh": redirectChinese, "zhx": redirectEnglish, "z": redirectEnglish, "zh_CN": redirectEnglish, "\xff\xfe,zh;q=0.2": redirectChinese,
		strings.Repeat("de,", 31) + "zh":                      redirectChinese,
		strings.Repeat("de,", 32) + "zh":                      redirectEnglish, // beyond the bound
		strings.Repeat("x", 600) + ",zh":                      redirectEnglish,
		"zh;q=0.9," + strings.Repeat("x", 16<<10):             redirectChinese,
		strings.Repeat("x", 508) + ",zh-CN,en":                redirectEnglish, // cut within zh-CN
		strings.Repeat(",", 16<<10):                           redirectEnglish,
		"en;q=0.5," + strings.Repeat("y", 480) + ",zh,en;q=1": redirectChinese,
	} {
		if got := redirectLanguageOf([]byte(header)); got != want {
			t.Errorf("%.60q: %v, want %v", header, redirectLanguageTags[got], redirectLanguageTags[want])
		}
	}
}

// Every page is there in every language, and says in which one it is.
func TestRedirectPagesAreTranslated(t *testing.T) {
	all := maps.Clone(redirectRefusals)
	for i, page := range []*redirectTranslations{redirectExpired, redirectDisabled} {
		all[-i] = page
	}
	for answer, page := range redirectTurnedAway {
		all[-100-int(answer)] = page
	}
	for which, pages := range all {
		for language, page := range pages {
			header := map[string]string{}
			for _, line := range page.header {
				header[line[0]] = line[1]
			}
			tag, body := redirectLanguageTags[language], string(page.body)
			if header["Content-Language"] != tag || header["Vary"] != "Accept-Language" || !strings.Contains(body, `<html lang="`+tag+`">`) || strings.Contains(header["Content-Security-Policy"], "unsafe") {
				t.Errorf("%d in %s: %v", which, tag, header)
			}
			if !utf8.ValidString(body) || strings.Count(body, "<main>") != 1 || strings.Count(body, "<h1>") != 1 || strings.Contains(body, "<script") || strings.Contains(body, "style=") || len(body) > 2000 {
				t.Errorf("%d in %s: %s", which, tag, body)
			}
			if chinese := strings.Contains(body, "链接") || strings.Contains(body, "请"); chinese != (language == int(redirectChinese)) {
				t.Errorf("%d in %s: %s", which, tag, body)
			}
		}
	}
}

func TestRedirectPagesSayWhy(t *testing.T) {
	node := newRedirectNode(t)
	for code, record := range map[string]*pb.Redirect{"expired": {ExpiresUs: redirectTestNow}, "disabled": {Disabled: true}, "deleted": {Deleted: true}, "banned": {Banned: true},
		"legal": {Banned: true, BannedLegal: true}, "scheduled": {NotBeforeUs: redirectTestNow + 1}} {
		record.Target = "https://secret.example/"
		node.add(code, record)
	}
	for code, want := range map[string][2]string{"expired": {"Link expired", "链接已过期"}, "disabled": {"Link disabled", "链接已停用"}, "deleted": {"Link gone", "链接已失效"},
		"banned": {"Link blocked", "链接已被屏蔽"}, "legal": {"legal reasons", "法律原因"}, "scheduled": {"Not found", "找不到链接"}, "none": {"Not found", "找不到链接"}} {
		for language, title := range want {
			header := "Accept-Language: " + [...]string{"en-US,en;q=0.9", "zh-TW,zh;q=0.9,en;q=0.5"}[language]
			visit := node.get("/"+code, header)
			preview := node.get("/"+code+"+", header)
			head := node.visit("HEAD", node.host, "/"+code, header)
			for name, a := range map[string]redirectAnswer{"visit": visit, "preview": preview} {
				if !strings.Contains(a.body, title) || strings.Contains(a.body, "secret.example") || a.status != visit.status || !isNeverCached(a.header) ||
					a.header.Get("Content-Language") != redirectLanguageTags[language] || a.header.Get("Vary") != "Accept-Language" {
					t.Errorf("%s of %s: %d %v %s", name, code, a.status, a.header, a.body)
				}
			}
			if head.status != visit.status || head.body != "" || !maps.EqualFunc(head.header, visit.header, equalLines) {
				t.Errorf("HEAD %s: %v, GET %v", code, head.header, visit.header)
			}
		}
	}
}

// A link that is no longer in use may send its visitors elsewhere, for once and without a click. What is refused is refused.
func TestRedirectExpiredURL(t *testing.T) {
	const over = "https://over.example/?a=%2f#f"
	node := newRedirectNode(t)
	for code, record := range map[string]*pb.Redirect{"expired": {ExpiresUs: redirectTestNow}, "disabled": {Disabled: true}, "deleted": {Deleted: true}, "banned": {Banned: true},
		"legal": {Banned: true, BannedLegal: true}, "scheduled": {NotBeforeUs: redirectTestNow + 1}, "cached": {ExpiresUs: redirectTestNow, CacheTtl: 60, RedirectStatus: 301}, "active": {}} {
		record.Target, record.ExpiredUrl = "https://example.com/", over
		node.add(code, record)
	}
	clients := redirectClients(t, node)
	for code, want := range map[string]int{"expired": 302, "disabled": 302, "deleted": 302, "cached": 302, "banned": 403, "legal": 451, "scheduled": 404} {
		for _, method := range []string{"GET", "HEAD"} {
			a := node.visit(method, node.host, "/"+code+"?x=1")
			if a.status != want || (a.location() == over) != (want == 302) || !isNeverCached(a.header) {
				t.Errorf("%s %s: %d %v", method, code, a.status, a.header)
			}
		}
		answer, err := clients["HTTP/2.0 TLS"].Get("https://s.example/" + code)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want || (answer.Header.Get("Location") == over) != (want == 302) {
			t.Errorf("HTTP/2 %s: %d %v", code, answer.StatusCode, answer.Header)
		}
	}
	if a := node.get("/expired+"); a.status != http.StatusGone || a.location() != "" || strings.Contains(a.body, "over.example") {
		t.Errorf("preview: %d %v %s", a.status, a.header, a.body)
	}
	if a := node.get("/active"); a.location() != "https://example.com/" {
		t.Errorf("active: %v", a.header)
	}
	if n := len(node.clicks()); n != 1 {
		t.Errorf("%d clicks, want that of the active link alone", n)
	}
}

func TestRedirectPreviewPage(t *testing.T) {
	node := newRedirectNode(t)
	for code, record := range map[string]*pb.Redirect{
		"plain":    {Target: "HTTPS://Example.com:443/a?b#c"},
		"ends":     {Target: "https://example.com/", ExpiresUs: 1_893_456_000_000_000},
		"umlaut":   {Target: "https://xn--bcher-kva.example:8443/"},
		"han":      {Target: "https://xn--fsq092h.example/"},
		"kana":     {Target: "https://xn--u9jxf0b3ds196acvb.example/"},
		"mixed":    {Target: "https://xn--pple-43d.com/"},
		"cyrillic": {Target: "https://xn--80ak6aa92e.com/"},
		"mixed-2":  {Target: "https://xn--abc-s08fl0d.example/"},
		"long":     {Target: "https://example.com/" + strings.Repeat("x", 8000) + `"><b>`},
	} {
		node.add(code, record)
	}
	for code, want := range map[string][]string{
		"plain":    {`<p class="host">example.com</p>`, "<bdi>HTTPS://Example.com:443/a?b#c</bdi>", "-until"},
		"ends":     {`valid until <time datetime="2030-01-01T00:00:00Z">1 January 2030, 00:00:00 UTC</time>`},
		"umlaut":   {"<bdi>bücher.example:8443</bdi> (xn--bcher-kva.example:8443)"},
		"han":      {"<bdi>示例.example</bdi> (xn--fsq092h.example)"},
		"kana":     {"<bdi>日本のサイト.example</bdi> ("},
		"mixed":    {`<p class="host">xn--pple-43d.com</p>`},
		"cyrillic": {"<bdi>аррӏе.com</bdi> (xn--80ak6aa92e.com)"},
		"mixed-2":  {`<p class="host">xn--abc-s08fl0d.example</p>`},
		"long":     {"&#34;&gt;&lt;b&gt;</bdi>", "-<b>"},
	} {
		a := node.get("/" + code + "+")
		for _, part := range want {
			part, absent := strings.CutPrefix(part, "-")
			if strings.Contains(a.body, part) == absent {
				t.Errorf("%s: %q absent: %v; %.3000s", code, part, !absent, a.body)
			}
		}
		head := node.visit("HEAD", node.host, "/"+code+"+")
		if a.status != http.StatusOK || head.body != "" || !maps.EqualFunc(head.header, a.header, equalLines) {
			t.Errorf("%s: HEAD %v, GET %v", code, head.header, a.header)
		}
	}
	if a := node.get("/ends+", "Accept-Language: zh"); !strings.Contains(a.body, "2030年1月1日 00:00:00（UTC）") || a.header.Get("Content-Language") != "zh-Hans" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

// What a scan meets costs nothing of the collector's.
func TestRedirectRefusalDoesNotAllocate(t *testing.T) {
	node := newRedirectNode(t)
	q := &http1.Request{Method: http1.Get, Target: []byte("/none"), Host: []byte(node.host), AcceptLanguage: []byte("de-DE,de;q=0.9,zh-CN;q=0.8,en;q=0.7")}
	peer, out := netip.MustParseAddr("192.0.2.1"), make([]byte, 0, 8<<10)
	if n := testing.AllocsPerRun(1000, func() {
		if answer, _ := node.redirect.Respond(out, q, peer, true); !strings.HasPrefix(string(answer[:16]), "HTTP/1.1 404") {
			t.Fatal(string(answer))
		}
	}); n >= 1 { // a pool may be emptied meanwhile
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRedirectLanguage(b *testing.B) {
	header := []byte("de-DE,de;q=0.9,zh-CN;q=0.8,zh;q=0.75,en-US;q=0.7,en;q=0.6")
	b.ReportAllocs()
	for b.Loop() {
		redirectLanguageOf(header)
	}
}
