package readmodels

import (
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

type queryCase struct {
	ID       string `json:"id"`
	Target   string `json:"target"`
	Policy   string `json:"policy"`
	Visitor  string `json:"visitor_query"`
	Location string `json:"location"`
	Status   int    `json:"status"`
}

func loadQueryCases(t testing.TB) []queryCase {
	t.Helper()
	data, err := os.ReadFile("testdata/query.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []queryCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

func policyOf(t testing.TB, name string) pb.QueryPolicy {
	t.Helper()
	value, ok := pb.QueryPolicy_value["QUERY_"+strings.ToUpper(name)]
	if !ok {
		t.Fatalf("unknown policy %q", name)
	}
	return pb.QueryPolicy(value)
}

func TestQueryCases(t *testing.T) {
	for _, c := range loadQueryCases(t) {
		t.Run(c.ID, func(t *testing.T) { checkLocation(t, c.Policy, c.Target, c.Visitor, c.Location) })
	}
}

// checkLocation wants the visitor to be sent to want, or turned away when want is empty.
func checkLocation(t *testing.T, policy, target, visitor, want string) {
	t.Helper()
	got, ok := AppendLocation([]byte("dst"), target, policyOf(t, policy), []byte(visitor))
	if location, kept := strings.CutPrefix(string(got), "dst"); !kept || location != want || ok != (want != "") {
		t.Errorf("%s %s + %q: %q, %v; want %q", policy, target, visitor, location, ok, want)
	}
}

func TestLocationFamilies(t *testing.T) {
	const e = "https://example.com/"
	for family, cases := range map[string][][4]string{
		"no visitor query": {
			{"keep", e + "?", "", e + "?"}, {"append", e + "?a=1#f", "", e + "?a=1#f"}, {"override", e + "?a=1&", "&&", e + "?a=1&"}, {"drop", e, "", e},
			{"reject", e + "?a", "", e + "?a"}, {"reject", e, "&", e}, {"append", e, "&", e}, {"keep", "https://example.com", "&&&", "https://example.com"},
		},
		"drop and reject": {
			{"drop", e + "?a=1#f", "a=2&b=3", e + "?a=1#f"}, {"drop", e, "\r\n", e}, {"reject", e, "a", ""}, {"reject", e + "?a=1", "a=1", ""}, {"reject", e, "=", ""}, {"reject", e, "&a", ""},
		},
		"where the query goes": {
			{"keep", "https://example.com", "b=2", "https://example.com?b=2"}, {"keep", "https://example.com#f", "b=2", "https://example.com?b=2#f"}, {"keep", e + "?#", "b", e + "?b#"}, {"keep", e + "#", "b", e + "?b#"},
			{"keep", e + "#/p?x=1", "x=2", e + "?x=2#/p?x=1"}, {"append", e + "?a=1#x?y#z", "b", e + "?a=1&b#x?y#z"}, {"override", e + "?a=1#a=1", "a=2", e + "?a=2#a=1"},
			{"append", e + "?a=1&", "b=2", e + "?a=1&b=2"}, {"append", e + "?", "b=2", e + "?b=2"}, {"append", e + "?&", "b=2", e + "?&b=2"}, {"keep", e + "?a=?b", "c=?d", e + "?a=?b&c=?d"},
		},
		"bytes as typed": {
			{"keep", e, "a&b=&=c&d==e&a&a=1", e + "?a&b=&=c&d==e&a&a=1"}, {"append", e + "?x", "a=1&&b=2&", e + "?x&a=1&&b=2&"}, {"append", e + "?x", "&a", e + "?x&a"}, {"keep", e, "&a", e + "?&a"},
			{"keep", e, "a=%zz&b=%&c=%2&d=%2F%2f", e + "?a=%zz&b=%&c=%2&d=%2F%2f"}, {"keep", e, `a={"x":[1]}|\^<>'` + "`", e + `?a={"x":[1]}|\^<>'` + "`"}, {"override", e + "?b=%2f&c=+&&d", "a=;", e + "?b=%2f&c=+&&d&a=;"},
			{"keep", e, "u=https://other.example/?q", e + "?u=https://other.example/?q"}, {"append", e + "?f[]=1", "f[]=2&f%5B%5D=3", e + "?f[]=1&f[]=2&f%5B%5D=3"},
		},
		"names": {
			{"keep", e + "?a=1", "%61=2&A=3&a%00=4&aa=5", e + "?a=1&A=3&a%00=4&aa=5"}, {"keep", e + "?%61=1", "a=2", e + "?%61=1"}, {"override", e + "?%61=1&b", "a=2", e + "?b&a=2"},
			{"keep", e + "?a%20b=1", "a+b=2&a b=3&c", e + "?a%20b=1&c"}, {"keep", e + "?%C3%A4=1", "\xc3\xa4=2&%c3%a4=3&c", e + "?%C3%A4=1&c"}, {"keep", e + "?f%5b%5D=1", "f[]=2", e + "?f%5b%5D=1"},
			{"keep", e + "?a%=1", "a%=2&a%25=3", e + "?a%=1"}, {"keep", e + "?=1", "=2&a", e + "?=1&a"}, {"keep", e + "?a", "a=&b", e + "?a&b"}, {"keep", e + "?a=1&&b", "&&c", e + "?a=1&&b&&c"},
		},
		"override": {
			{"override", e + "?t=1", "t", e + "?t"}, {"override", e + "?t=1&t=2&u&t=3", "t=4&t=5", e + "?u&t=4&t=5"}, {"override", e + "?t=1&", "t=2", e + "?t=2"}, {"override", e + "?a&b&c", "b", e + "?a&c&b"},
			{"override", e, "a=1", e + "?a=1"}, {"override", e + "?", "a=1", e + "?a=1"}, {"override", e + "?a=1", "b=1", e + "?a=1&b=1"},
		},
		"keep with nothing left": {
			{"keep", e + "?t=1#f", "t=2&t&&%74", e + "?t=1#f"}, {"keep", e + "?t=1&", "t=2", e + "?t=1&"}, {"keep", e + "?t=1", "&t=2&", e + "?t=1"},
		},
		"hostile visitors": {
			{"keep", e, "a=\r\nSet-Cookie: x=1", e + "?a=%0D%0ASet-Cookie:%20x=1"}, {"append", e, "\x00\x7f\x1b", e + "?%00%7F%1B"}, {"override", e + "?a", "é=\xff#x", e + "?a&%C3%A9=%FF%23x"},
			{"keep", e + "?a#f", "b#c", e + "?a&b%23c#f"}, {"keep", e, "a=\u2028\u202e", e + "?a=%E2%80%A8%E2%80%AE"}, {"keep", e + "?a=1", "\ta=2", e + "?a=1&%09a=2"},
		},
	} {
		t.Run(family, func(t *testing.T) {
			for _, c := range cases {
				checkLocation(t, c[0], c[1], c[2], c[3])
			}
		})
	}
}

func TestAppendLocationDoesNotAllocate(t *testing.T) {
	buffer, visitor := make([]byte, 0, 1024), []byte("utm_source=x&t=2&%74=3&a+b=\xff")
	for policy := range pb.QueryPolicy_name {
		n := testing.AllocsPerRun(100, func() {
			AppendLocation(buffer, "https://example.com/p?t=1&a%20b=2#top", pb.QueryPolicy(policy), visitor)
		})
		if n != 0 {
			t.Errorf("policy %d: %v allocations", policy, n)
		}
	}
}

// Thousands of parameters on both sides must not cost millions of comparisons.
func TestManyParametersAreMergedQuickly(t *testing.T) {
	target := "https://example.com/?" + strings.Repeat("a&", 4000) + "%62"
	visitor := []byte(strings.Repeat("a=1&%61&", 4000) + "b=1&c=1")
	began := time.Now()
	for range 20 {
		got, _ := AppendLocation(nil, target, pb.QueryPolicy_QUERY_KEEP, visitor)
		if string(got) != target+"&c=1" {
			t.Fatalf("%.80q…, %d bytes", got, len(got))
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("20 merges took %v", took)
	}
}

// A Location begins with the target up to its query, ends with the target's fragment, is printable ASCII without
// spaces, has no '#' but the target's, and its parameters are those of the policy's definition, in order, as typed.
func FuzzAppendLocation(f *testing.F) {
	for _, c := range loadQueryCases(f) {
		f.Add(c.Target, uint8(policyOf(f, c.Policy)), []byte(c.Visitor))
	}
	f.Add("https://example.com?a=1&%61&&a+b#x?a", uint8(0), []byte("&a=2&a%20b\r\n&&é"))
	f.Add("https://example.com/?"+strings.Repeat("a&", 40), uint8(1), []byte(strings.Repeat("b=1&", 40)+"%61"))
	f.Fuzz(func(t *testing.T, raw string, number uint8, visitor []byte) {
		target, err := commands.NormalizeTarget(raw)
		if err != nil {
			t.Skip()
		}
		policy, typed := pb.QueryPolicy(number%5), string(visitor)
		out, ok := AppendLocation([]byte("dst"), target, policy, visitor)
		location, kept := strings.CutPrefix(string(out), "dst")
		want, wantOK := definedParameters(target, policy, typed)
		if !kept || ok != wantOK || string(visitor) != typed {
			t.Fatalf("%d %q + %q: %q, %v", policy, target, typed, out, ok)
		}
		if !ok {
			return
		}
		checkShape(t, target, location)
		if got := parametersOf(location); !slices.Equal(got, want) {
			t.Errorf("%d %q + %q: parameters %q, want %q", policy, target, typed, got, want)
		}
	})
}

func checkShape(t *testing.T, target, location string) {
	t.Helper()
	base, _, fragment := splitQuery(target)
	if !strings.HasPrefix(location, base) || !strings.HasSuffix(location, fragment) || strings.Count(location, "#") != strings.Count(target, "#") {
		t.Errorf("%q became %q", target, location)
	}
	if strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
		t.Errorf("%q is unfit for a header", location)
	}
}

// definedParameters is the definition of the policies, written without regard to cost.
func definedParameters(target string, policy pb.QueryPolicy, visitor string) ([]string, bool) {
	own, theirs := parametersOf(target), nonEmpty(visitor)
	if len(theirs) == 0 {
		return own, true
	}
	for i, p := range theirs {
		theirs[i] = encodeUnsafe(p)
	}
	named := func(list []string) func(string) bool {
		return func(p string) bool {
			return slices.ContainsFunc(list, func(q string) bool { return formName(p) == formName(q) })
		}
	}
	switch policy {
	case pb.QueryPolicy_QUERY_REJECT:
		return nil, false
	case pb.QueryPolicy_QUERY_DROP:
		return own, true
	case pb.QueryPolicy_QUERY_OVERRIDE:
		own = slices.DeleteFunc(own, named(theirs))
	case pb.QueryPolicy_QUERY_KEEP:
		theirs = slices.DeleteFunc(theirs, named(own))
	}
	return append(own, theirs...), true
}

func parametersOf(location string) []string {
	before, _, _ := strings.Cut(location, "#")
	_, query, _ := strings.Cut(before, "?")
	return nonEmpty(query)
}

func nonEmpty(query string) []string {
	return slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool { return p == "" })
}

func encodeUnsafe(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '#' {
			b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// formName decodes a parameter's name with net/url, escape by escape because broken escapes are allowed here.
func formName(parameter string) string {
	name, _, _ := strings.Cut(parameter, "=")
	var b strings.Builder
	for name != "" {
		taken := name[:1]
		if len(name) >= 3 && name[0] == '%' {
			taken = name[:3]
		}
		decoded, err := url.QueryUnescape(taken)
		if err != nil {
			taken, decoded = name[:1], name[:1]
		}
		b.WriteString(decoded)
		name = name[len(taken):]
	}
	return b.String()
}

func BenchmarkAppendLocation(b *testing.B) {
	for _, bench := range []struct{ name, target, visitor string }{
		{"no query", "https://example.com/articles/2026/a-title?utm_source=x", ""},
		{"one new", "https://example.com/articles/2026/a-title?utm_source=x", "utm_medium=qr"},
		{"ten", "https://example.com/?a=1&b=2&c=3&d=4&e=5#top", "a=1&f=2&g=3&h=4&%65=5"},
	} {
		for _, policy := range []pb.QueryPolicy{pb.QueryPolicy_QUERY_KEEP, pb.QueryPolicy_QUERY_OVERRIDE} {
			b.Run(bench.name+"/"+policy.String(), func(b *testing.B) {
				b.ReportAllocs()
				buffer, visitor := make([]byte, 0, 1024), []byte(bench.visitor)
				for b.Loop() {
					AppendLocation(buffer, bench.target, policy, visitor)
				}
			})
		}
	}
}
