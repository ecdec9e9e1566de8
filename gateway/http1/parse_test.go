package http1_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/gateway/http1"
)

const browser = "GET /7Fk3aQz?utm_source=x HTTP/1.1\r\nHost: s.example\r\nConnection: keep-alive\r\n" +
	"sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nUpgrade-Insecure-Requests: 1\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n" +
	"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: zh-CN,zh;q=0.9,en;q=0.8\r\nReferer: https://news.example/today\r\n\r\n"

func TestParse(t *testing.T) {
	var q http1.Request
	raw := strings.Replace(browser, "\r\n\r\n", "\r\nX-Forwarded-For: 192.0.2.7, 10.0.0.1\r\nx-forwarded-for:\t10.0.0.2 \r\nForwarded: for=192.0.2.7\r\nsec-purpose: prefetch\r\nPurpose: p\r\nUser-agent: second\r\n\r\n", 1)
	n, err := q.Parse([]byte(raw + "GET /next"))
	if n != len(raw) || err != nil {
		t.Fatal(n, err)
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"target": {q.Target, "/7Fk3aQz?utm_source=x"}, "host": {q.Host, "s.example"}, "referer": {q.Referer, "https://news.example/today"},
		"language": {q.AcceptLanguage, "zh-CN,zh;q=0.9,en;q=0.8"}, "purpose": {q.Purpose, "p"}, "sec-purpose": {q.SecPurpose, "prefetch"},
		"first line": {q.ForwardedFor[0], "192.0.2.7, 10.0.0.1"}, "second line": {q.ForwardedFor[1], "10.0.0.2"}, "forwarded": {q.Forwarded[0], "for=192.0.2.7"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: %q", name, c.got)
		}
	}
	if !strings.HasPrefix(string(q.UserAgent), "Mozilla/5.0 (X11") || !strings.HasPrefix(string(q.AcceptLanguage), "zh-CN") || q.Method != http1.Get || q.Close || q.Length != 0 {
		t.Errorf("%+v", q)
	}
}

// However a request is cut, only its last byte completes it, and nothing before refuses it.
func TestParseInPieces(t *testing.T) {
	var q http1.Request
	for cut := range len(browser) {
		if n, err := q.Parse([]byte(browser[:cut])); n != 0 || err != nil {
			t.Fatalf("after %d bytes: %d %v", cut, n, err)
		}
		if http1.Ended([]byte(browser[:cut]), max(0, cut-1)) {
			t.Fatalf("ended after %d bytes", cut)
		}
	}
	if !http1.Ended([]byte(browser), len(browser)-1) {
		t.Error("never ended")
	}
}

func TestParseRefuses(t *testing.T) {
	const host = "Host: s.example\r\n"
	for name, c := range map[string]struct {
		raw  string
		want error // nil: taken
	}{
		"taken":                    {"GET / HTTP/1.1\r\n" + host + "\r\n", nil},
		"HTTP/1.0 without host":    {"GET / HTTP/1.0\r\n\r\n", nil},
		"a later HTTP/1":           {"GET / HTTP/1.9\r\n" + host + "\r\n", nil},
		"empty lines before":       {"\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n", nil},
		"tab in a value":           {"GET / HTTP/1.1\r\n" + host + "X: a\tb\r\n\r\n", nil},
		"beyond ASCII in a value":  {"GET / HTTP/1.1\r\n" + host + "X: \xff\r\n\r\n", nil},
		"the same length twice":    {"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", nil},
		"other method, any target": {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", nil},
		"absolute form":            {"GET http://s.example/ HTTP/1.1\r\n" + host + "\r\n", nil},
		"bare LF":                  {"GET / HTTP/1.1\n" + host + "\r\n", http1.ErrMalformed},
		"bare LF in a header":      {"GET / HTTP/1.1\r\nHost: s.example\nX: y\r\n\r\n", http1.ErrMalformed},
		"bare CR":                  {"GET / HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n", http1.ErrMalformed},
		"NUL":                      {"GET / HTTP/1.1\r\n" + host + "X: a\x00\r\n\r\n", http1.ErrMalformed},
		"DEL":                      {"GET /\x7f HTTP/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"tab in the target":        {"GET /a\tb HTTP/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"folded":                   {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", http1.ErrMalformed},
		"space before colon":       {"GET / HTTP/1.1\r\nHost : s.example\r\n\r\n", http1.ErrMalformed},
		"no colon":                 {"GET / HTTP/1.1\r\n" + host + "X\r\n\r\n", http1.ErrMalformed},
		"no name":                  {"GET / HTTP/1.1\r\n" + host + ": x\r\n\r\n", http1.ErrMalformed},
		"name beyond ASCII":        {"GET / HTTP/1.1\r\n" + host + "X\xc3\xbc: x\r\n\r\n", http1.ErrMalformed},
		"two hosts":                {"GET / HTTP/1.1\r\n" + host + host + "\r\n", http1.ErrMalformed},
		"no host":                  {"GET / HTTP/1.1\r\n\r\n", http1.ErrMalformed},
		"empty host":               {"GET / HTTP/1.1\r\nHost:\r\n\r\n", http1.ErrMalformed},
		"two lengths":              {"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", http1.ErrMalformed},
		"one length, two ways":     {"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 01\r\n\r\n", http1.ErrMalformed},
		"signed length":            {"GET / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n", http1.ErrMalformed},
		"empty length":             {"GET / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n", http1.ErrMalformed},
		"endless length":           {"GET / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n", http1.ErrMalformed},
		"length and encoding":      {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", http1.ErrMalformed},
		"two encodings":            {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", http1.ErrMalformed},
		"list of encodings":        {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", http1.ErrMalformed},
		"vertical tab in encoding": {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: \vchunked\r\n\r\n", http1.ErrMalformed},
		"encoding in HTTP/1.0":     {"GET / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", http1.ErrMalformed},
		"two spaces":               {"GET  / HTTP/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"space at the end":         {"GET / HTTP/1.1 \r\n" + host + "\r\n", http1.ErrMalformed},
		"no version":               {"GET /\r\n" + host + "\r\n", http1.ErrMalformed},
		"lower-case version":       {"GET / http/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"HTTP/2":                   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", http1.ErrMalformed},
		"HTTP/1.10":                {"GET / HTTP/1.10\r\n" + host + "\r\n", http1.ErrMalformed},
		"method with a slash":      {"G/T / HTTP/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"target without form":      {"GET x HTTP/1.1\r\n" + host + "\r\n", http1.ErrMalformed},
		"endless line":             {"GET /" + strings.Repeat("a", http1.MaxHead), http1.ErrHeadTooLarge},
		"endless headers":          {"GET / HTTP/1.1\r\n" + host + strings.Repeat("X: y\r\n", http1.MaxHead/6), http1.ErrHeadTooLarge},
		"endless empty lines":      {strings.Repeat("\r\n", http1.MaxHead/2), http1.ErrHeadTooLarge},
	} {
		var q http1.Request
		n, err := q.Parse([]byte(c.raw))
		if !errors.Is(err, c.want) || (err == nil) != (n == len(c.raw)) {
			t.Errorf("%s: %d of %d bytes, %v, want %v", name, n, len(c.raw), err, c.want)
		}
	}
}

func TestConnection(t *testing.T) {
	for raw, want := range map[string][2]bool{ // close, persist
		"1.1\r\nHost: a\r\n":                                       {false, false},
		"1.1\r\nHost: a\r\nConnection: close\r\n":                  {true, false},
		"1.1\r\nHost: a\r\nConnection: Upgrade , CLOSE\r\n":        {true, false},
		"1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n": {true, false},
		"1.1\r\nHost: a\r\nConnection: closed\r\n":                 {false, false},
		"1.0\r\n":                                  {true, false},
		"1.0\r\nConnection: Keep-Alive\r\n":        {false, true},
		"1.0\r\nConnection: keep-alive, close\r\n": {true, false},
		"1.1\r\nHost: a\r\nConnection: keep-alive\r\nExpect: 100-Continue\r\n": {false, false},
	} {
		var q http1.Request
		if _, err := q.Parse([]byte("GET / HTTP/" + raw + "\r\n")); err != nil || q.Close != want[0] || q.Persist != want[1] || q.Expect != strings.Contains(raw, "Expect") {
			t.Errorf("%q: %v %+v", raw, err, q)
		}
	}
}

// Every way to cut a body leads to the same end.
func TestBody(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string // '|' is where the body ends
		want error
	}{
		"chunks":              {"5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n|GET", nil},
		"trailers":            {"1\r\nx\r\n000\r\nA: b\r\nC: d\r\n\r\n|GET", nil},
		"white space":         {"1 \t\r\nx\r\n0\r\n\r\n|", nil},
		"no size":             {"\r\n", http1.ErrMalformed},
		"no digit":            {"g\r\n", http1.ErrMalformed},
		"0x":                  {"0x1\r\n", http1.ErrMalformed},
		"sign":                {"-1\r\n", http1.ErrMalformed},
		"space, then more":    {"1 1\r\n", http1.ErrMalformed},
		"bare LF after size":  {"1\nx\r\n", http1.ErrMalformed},
		"bare LF in ext":      {"1;a\nx\r\n", http1.ErrMalformed},
		"bare CR in ext":      {"1;a\rb\r\nx\r\n", http1.ErrMalformed},
		"longer than it says": {"1\r\nxy\r\n", http1.ErrMalformed},
		"bare LF after data":  {"1\r\nx\n0\r\n\r\n", http1.ErrMalformed},
		"folded trailer":      {"0\r\n x\r\n\r\n", http1.ErrMalformed},
		"bare LF in trailers": {"0\r\nA: b\n\r\n", http1.ErrMalformed},
		"huge chunk":          {"ffffffff\r\n" + strings.Repeat("x", http1.MaxBody), http1.ErrBodyTooLarge},
		"endless size":        {"0000000001\r\n", http1.ErrBodyTooLarge},
		"endless extension":   {"1;" + strings.Repeat("x", http1.MaxBody), http1.ErrBodyTooLarge},
		"endless trailers":    {"0\r\n" + strings.Repeat("A: b\r\n", http1.MaxBody/6+1), http1.ErrBodyTooLarge},
	} {
		raw, _, _ := strings.Cut(c.raw, "|")
		all := []byte(strings.Replace(c.raw, "|", "", 1))
		for _, step := range []int{1, 2, 3, 7, len(all)} {
			var d http1.Body
			err, at := d.Start(http1.Chunked), 0
			for at < len(all) && err == nil && !d.Done() {
				var n int
				n, err = d.Skip(all[at:min(len(all), at+step)])
				at += n
			}
			if !errors.Is(err, c.want) || err == nil && (at != len(raw) || !d.Done()) {
				t.Errorf("%s by %d: %d bytes, %v, want %d, %v", name, step, at, err, len(raw), c.want)
			}
		}
	}
	var d http1.Body
	if err := d.Start(http1.MaxBody + 1); !errors.Is(err, http1.ErrBodyTooLarge) {
		t.Error(err)
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var q http1.Request
	raw := []byte(browser)
	if n := testing.AllocsPerRun(100, func() { _, _ = q.Parse(raw) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParse(b *testing.B) {
	for name, raw := range map[string]string{"browser": browser, "short": "GET /7Fk3aQz HTTP/1.1\r\nHost: s.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0\r\n\r\n"} {
		b.Run(name, func(b *testing.B) {
			var q http1.Request
			data := []byte(raw)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A request keeps the memory of its lists, but nothing of what requests before it had in them.
func TestRequestForgets(t *testing.T) {
	var q http1.Request
	for _, lines := range []string{"X-Forwarded-For: a\r\nX-Forwarded-For: b\r\nForwarded: c\r\nForwarded: d\r\n", ""} {
		if _, err := q.Parse([]byte("GET / HTTP/1.1\r\nHost: s.example\r\n" + lines + "\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range [][][]byte{q.ForwardedFor, q.Forwarded} {
		if list = list[:cap(list)]; len(list) < 2 || list[0] != nil || list[1] != nil {
			t.Errorf("%q", list)
		}
	}
}
