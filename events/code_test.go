package events

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

type codeCase struct {
	ID    string   `json:"id"`
	Code  string   `json:"code"`
	Error string   `json:"error"`
	Paths []string `json:"paths"`
}

type pathCase struct {
	ID     string `json:"id"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

func loadCases[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%s: %d cases, %v", name, len(cases), err)
	}
	return cases
}

func TestCodeCases(t *testing.T) {
	for _, c := range loadCases[codeCase](t, "codes.json") {
		t.Run(c.ID, func(t *testing.T) {
			if c.Error != "" {
				refusesCode(t, c.Code)
				return
			}
			stored := norm.NFC.String(c.Code)
			acceptsCode(t, c.Code, stored)
			for _, path := range c.Paths {
				decodesTo(t, path, stored)
			}
		})
	}
}

// Each path of the cases is a 404 because no code can have it.
func TestPathCases(t *testing.T) {
	for _, c := range loadCases[pathCase](t, "paths.json") {
		if code, ok := DecodePathCode(nil, []byte(c.Path)); ok || c.Status != 404 {
			t.Errorf("%s: %q decodes to %q; want status %d", c.ID, c.Path, code, c.Status)
		}
	}
}

func refusesCode(t *testing.T, raw string) {
	t.Helper()
	code, err := NormalizeCode(raw)
	var refused *CodeError
	if !errors.As(err, &refused) || refused.Detail == "" || code != "" {
		t.Errorf("NormalizeCode(%+q) = %+q, %v; want a refusal", raw, code, err)
	}
}

func acceptsCode(t *testing.T, raw, want string) {
	t.Helper()
	if got, err := NormalizeCode(raw); err != nil || got != want {
		t.Errorf("NormalizeCode(%+q) = %+q, %v; want %+q", raw, got, err, want)
	}
}

func decodesTo(t *testing.T, path, want string) {
	t.Helper()
	if got, ok := DecodePathCode(nil, []byte(path)); !ok || string(got) != want {
		t.Errorf("DecodePathCode(%q) = %+q, %v; want %+q", path, got, ok, want)
	}
}

var goodCodes = []string{
	"a", "Z", "0", "abc", "MyLink", "a.b_c~d-e", "T&C", "a+b", "abc+", "+", "@user", "a@b", "...", ".well-known", "-", "~", "_", "1234567",
	strings.Repeat("x", 64), strings.Repeat("é", 64), strings.Repeat("🍞", 64), "straße", "ÅNGSTRÖM",
	"привет", "Ελλάδα", "日本語", "カラオケ", "한국어", "עברית", "العربية", "हिन्दी", "ไทย", "தமிழ்", "ქართული", "日本語abc", "عربabc", "١٢٣", "२०२६",
	"🍞", "❤", "❤️", "❤︎", "©", "👍🏽", "👩‍👩‍👧‍👦", "👩🏽‍💻", "🏴‍☠️", "🏳️‍🌈", "❤️‍🔥", "🧑‍🦰", "🐈‍⬛", "🕵️‍♂️", "🇩🇪", "🇩🇪🇫🇷", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣", "1⃣", "a🍞b", "🍞+", "🏽", "☝️", "Ω", "Привет-123",
}

var badCodes = []string{
	"", ".", "..", "/", "a/b", "/abc", "abc/", "a?b", "a#b", "a%b", "%41", "a%2Fb", "a b", " a", "a ", "a\tb", "a\nb", "a\r\nb", "a\x00b", "\x7f", "a\u0085b", "a\u009fb",
	"a\\b", "a:b", "a;b", "a,b", "a=b", "a!b", "a$b", "a'b", "a\"b", "a(b)", "a*b", "a[b]", "a{b}", "a|b", "a^b", "a`b", "<b>",
	"\u00a0", "a\u00a0b", "a\u3000b", "a\u2028b", "a\u2029b", "a\u1680b", "\u200bа", "a\u200bb", "a\u200cb", "a\u200db", "a\u202eb", "a\u202ab", "a\u2066b", "a\u2069b", "a\u200fb", "a\u061cb", "\ufeffabc", "a\u00adb", "a\u2060b",
	"a\u180eb", "a\u3164b", "\u115f", "\u1160", "\uffa0", "a\u034fb", "a\ufe0fb", "a\ufe0e", "a\U000e0100", "a\U000e0041b", "\U000e007f", "\ufffd", "a\ufffdb", "\ue000", "\U0010ffff", "\U00020000\u0378",
	"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80",
	"\u0301", "-\u0301", "a-\u0301", "🍞\u0301", "a\u0488", "a\u20dd", "\u20e3", "#️⃣", "*️⃣", "#⃣", "a\u20e3",
	"🍞\u200d", "\u200d🍞", "🍞\u200d\u200d🍞", "🍞\ufe0f\ufe0f", "🍞\u200da", "🇩", "🇩🇪🇫", "🇩a", "🏴\U000e0067", "🏴\U000e007f", "🏴\U000e0067\U000e0062a", "1\ufe0f",
	strings.Repeat("x", 65), strings.Repeat("é", 65), strings.Repeat("🍞", 65), strings.Repeat("x", 1<<20), strings.Repeat("e\u0301", 65), "a" + strings.Repeat("\u0323\u0307\u0301", 400),
	"pаypal", "аpple", "helloмир", "αbc", "10k\u2126", "Latin-и-Кириллица", "½", "①", "Ⅷ", "★", "→", "€", "·", "a٪b", "ａ／ｂ", "ａ？ｂ", "ａ％ｂ",
}

func TestCodeRules(t *testing.T) {
	for _, code := range goodCodes {
		acceptsCode(t, norm.NFC.String(code), norm.NFC.String(code))
		acceptsCode(t, norm.NFD.String(code), norm.NFC.String(code))
	}
	for _, code := range badCodes {
		refusesCode(t, code)
	}
}

func TestCodeIsCountedAfterComposing(t *testing.T) {
	acceptsCode(t, strings.Repeat("e\u0301", 64), strings.Repeat("é", 64))
	acceptsCode(t, strings.Repeat("\u1100\u1161\u11a8", 64), strings.Repeat("각", 64))
}

func TestEveryGoodCodeIsReachable(t *testing.T) {
	for _, raw := range goodCodes {
		code := norm.NFC.String(raw)
		decodesTo(t, "/"+code, code)
		decodesTo(t, "/"+code+"/", code)
		decodesTo(t, "/"+escapeAll(code), code)
		decodesTo(t, "/"+strings.ToLower(escapeAll(norm.NFD.String(code))), code)
	}
}

func TestNoBadCodeIsReachable(t *testing.T) {
	for _, code := range badCodes {
		if got, ok := DecodePathCode(nil, []byte("/"+escapeAll(code))); ok {
			t.Errorf("%+q decodes to %+q", code, got)
		}
	}
}

func TestPathsThatNoCodeHas(t *testing.T) {
	for _, path := range []string{
		"", "/", "//", "///", "abc", "*", "//abc", "/abc//", "/a/b", "/abc/+", "/%", "/%4", "/a%", "/a%4", "/a%zz", "/%%41", "/%2541", "/%2F", "/abc%2F", "/%2e", "/%2E%2e", "/./", "/../",
		"/%C0%80", "/%C0", "/%ED%A0%80", "/%FF", "/\xff", "/a\x00", "/a b", "/a%20b", "/%00", "/abc%0A", "/abc\r\n", "/a%3Fb", "/a%23b", "/a%25b", "/a?b", "/a#b", "/%E2%80%AEabc", "/%u0041", "/\\", "/%5C",
		"/" + strings.Repeat("x", 65), "/" + strings.Repeat("%78", 65), "/" + strings.Repeat("x", 65) + "+", "/" + strings.Repeat("é", 65), "/" + strings.Repeat("%F0%9F%8D%9E", 1<<16), "http://s.example/abc",
	} {
		if got, ok := DecodePathCode([]byte("kept"), []byte(path)); ok || string(got) != "kept" {
			t.Errorf("%.80q decodes to %+q, %v", path, got, ok)
		}
	}
}

func TestPreviewOfTheLongestCode(t *testing.T) {
	for _, code := range []string{strings.Repeat("x", 64) + "+", strings.Repeat("é", 64) + "+"} {
		decodesTo(t, "/"+code, code)
		decodesTo(t, "/"+escapeAll(code)+"/", code)
		refusesCode(t, code)
	}
}

func TestDecodePathCodeAppends(t *testing.T) {
	for _, path := range []string{"/abc", "/%61bc", "/abc/"} {
		if got, ok := DecodePathCode([]byte("s.example\x00"), []byte(path)); !ok || string(got) != "s.example\x00abc" {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
	if got, ok := DecodePathCode([]byte("x\x00"), []byte("/e%CC%81")); !ok || string(got) != "x\x00é" {
		t.Errorf("%q, %v", got, ok)
	}
}

func TestDecodePathCodeDoesNotAllocate(t *testing.T) {
	buffer := make([]byte, 0, 4096)
	for _, path := range []string{"/7Fk3aQx", "/caf%C3%A9", "/%F0%9F%8D%9E", "/%C0", "/%E2%80%AEabc", "/a%2Fb"} {
		raw := []byte(path)
		if n := testing.AllocsPerRun(100, func() { DecodePathCode(buffer, raw) }); n != 0 {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}

// addShort adds a seed unless it is so long that mutating it would slow the fuzzer down.
func addShort(f *testing.F, seed string) {
	if len(seed) < 1024 {
		f.Add(seed)
	}
}

func escapeAll(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		b.WriteString("%" + string(hex[s[i]>>4]) + string(hex[s[i]&15]))
	}
	return b.String()
}

// What NormalizeCode accepts is NFC, has 1 to 64 characters, none of them / ? # % or a control, normalises to itself,
// and is what its path decodes to, plain or escaped. What it refuses, it refuses with a *CodeError, and no path leads
// there, except for the preview of a full-length code.
func FuzzNormalizeCode(f *testing.F) {
	for _, c := range loadCases[codeCase](f, "codes.json") {
		f.Add(c.Code)
	}
	for _, code := range append(goodCodes, badCodes...) {
		addShort(f, code)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		code, err := NormalizeCode(raw)
		if err != nil {
			refusesCode(t, raw)
			got, ok := DecodePathCode(nil, []byte("/"+escapeAll(raw)))
			if ok && !strings.HasSuffix(string(got), "+") {
				t.Errorf("%+q is refused but reachable as %+q", raw, got)
			}
			return
		}
		if n := utf8.RuneCountInString(code); n < 1 || n > MaxCodeLength || !norm.NFC.IsNormalString(code) || code != norm.NFC.String(raw) {
			t.Errorf("%+q became %+q", raw, code)
		}
		if strings.ContainsAny(code, "/?#%\\ \x00\r\n\u202e\u200b") || code == "." || code == ".." {
			t.Errorf("%+q was accepted", code)
		}
		acceptsCode(t, code, code)
		decodesTo(t, "/"+code, code)
		decodesTo(t, "/"+escapeAll(raw)+"/", code)
	})
}

// A path decodes to a code that NormalizeCode accepts as it is (or to the preview of one), or to nothing, with dst kept.
func FuzzDecodePathCode(f *testing.F) {
	for _, c := range loadCases[pathCase](f, "paths.json") {
		f.Add([]byte(c.Path))
	}
	for _, c := range loadCases[codeCase](f, "codes.json") {
		for _, path := range c.Paths {
			f.Add([]byte(path))
		}
	}
	f.Add([]byte("/%2e%2E/"))
	f.Add([]byte("/" + strings.Repeat("x", 64) + "+"))
	f.Fuzz(func(t *testing.T, path []byte) {
		given := string(path)
		got, ok := DecodePathCode([]byte("dst"), path)
		code, kept := strings.CutPrefix(string(got), "dst")
		if !kept || !ok && code != "" || string(path) != given {
			t.Fatalf("%q: %q, %v", path, got, ok)
		}
		if !ok {
			return
		}
		if utf8.RuneCountInString(code) > MaxCodeLength {
			code = strings.TrimSuffix(code, "+")
		}
		acceptsCode(t, code, code)
	})
}

func BenchmarkDecodePathCode(b *testing.B) {
	for _, path := range []string{"/7Fk3aQx", "/caf%C3%A9", "/%F0%9F%8D%9E", "/%C0"} {
		b.Run(path[1:], func(b *testing.B) {
			b.ReportAllocs()
			raw, buffer := []byte(path), make([]byte, 0, 256)
			for b.Loop() {
				DecodePathCode(buffer, raw)
			}
		})
	}
}
