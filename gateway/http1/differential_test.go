package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/hoplog/hoplog/gateway/http1"
)

// verdict is what a reader makes of the next request.
type verdict struct {
	state  string // taken, refused, unfinished
	method string // GET, HEAD or other
	target string
	host   string // of the Host header, where the target has none
	last   bool   // the connection ends with it
	length int64
	took   int // bytes of all requests so far
}

// ours reads one request with this package.
func ours(data []byte) verdict {
	var q http1.Request
	n, err := q.Parse(data)
	if err != nil {
		return verdict{state: "refused"}
	}
	if n == 0 {
		return verdict{state: "unfinished"}
	}
	v := verdict{state: "taken", method: [...]string{"other", "GET", "HEAD"}[q.Method], target: string(q.Target), last: q.Close, length: q.Length}
	if isOwnHost(v.target) {
		v.host = string(q.Host)
	}
	var body http1.Body
	if body.Start(q.Length) != nil {
		return verdict{state: "refused"}
	}
	skipped, err := body.Skip(data[n:])
	switch {
	case err != nil:
		return verdict{state: "refused"}
	case !body.Done():
		return verdict{state: "unfinished"}
	}
	v.took = n + skipped
	return v
}

// isOwnHost: the target does not name a host. ("http://" names an empty one: no link of ours is there. net/http takes the
// Host header's instead.)
func isOwnHost(target string) bool { return strings.HasPrefix(target, "/") }

var (
	hostLine = regexp.MustCompile(`(?i)\nhost:`)
	hostOf   = regexp.MustCompile(`(?i)\r\nhost:([^\r]*)\r\n`)
	targetOf = regexp.MustCompile(`^\S+ (\S*) `)
)

// theirs reads one request as the server of net/http does: with its checks, which are not those of ReadRequest alone.
func theirs(data []byte) verdict {
	source := bytes.NewReader(data)
	buffered := bufio.NewReader(source)
	r, err := http.ReadRequest(buffered)
	refuse := verdict{state: "refused"}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return verdict{state: "unfinished"}
	}
	if err != nil || r.ProtoMajor != 1 {
		return refuse
	}
	// ReadRequest does not say what the Host header was where the target has a host.
	hasHost := r.Host != "" && r.URL.Host == "" || r.URL.Host != "" && hostLine.Match(data)
	if r.ProtoAtLeast(1, 1) && !hasHost && r.Method != http.MethodConnect || !httpguts.ValidHostHeader(r.Host) {
		return refuse
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return refuse
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return refuse
			}
		}
	}
	v := verdict{state: "taken", method: "other", target: r.RequestURI, last: r.Close, length: r.ContentLength}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		v.method = r.Method
	}
	if isOwnHost(v.target) {
		v.host = r.Host
	}
	if _, err := io.Copy(io.Discard, r.Body); errors.Is(err, io.ErrUnexpectedEOF) {
		return verdict{state: "unfinished"}
	} else if err != nil {
		return refuse
	}
	v.took = len(data) - source.Len() - buffered.Buffered()
	return v
}

// stricter are the reasons for which we refuse, or wait for more of, what net/http takes.
var stricter = []struct {
	why string
	is  func(data string) bool
}{
	{"a bare LF ends no line: a proxy that reads on would see another request", regexp.MustCompile(`(^|[^\r])\n`).MatchString},
	{"a folded line may be refused (RFC 9112, section 5.2)", regexp.MustCompile(`\r\n[ \t]`).MatchString},
	{"a length beside an encoding is how requests are smuggled (RFC 9112, section 6.1)", regexp.MustCompile(`(?is)transfer-encoding.*content-length|content-length.*transfer-encoding`).MatchString},
	{"an encoding in HTTP/1.0 may hide a request (RFC 9112, section 6.1)", regexp.MustCompile(`(?is)HTTP/1\.0\r?\n.*transfer-encoding`).MatchString},
	{"an empty Host is no host of ours", regexp.MustCompile(`(?i)\r\nhost:[ \t]*\r\n`).MatchString},
	{"CONNECT needs a Host too, and a target", regexp.MustCompile(`^(\r\n)*CONNECT `).MatchString},
	{"GET and HEAD have origin or absolute form (RFC 9112, section 3.2)", regexp.MustCompile(`^(\r\n)*(GET|HEAD) ([^/ ][^ ]*) HTTP/1`).MatchString},
	{"a chunk's size has eight digits at most", regexp.MustCompile(`(?i)(^|\n)[0-9a-f]{9}`).MatchString},
	{"trailers keep the rules of a head's lines", regexp.MustCompile(`(?is)transfer-encoding.*\n0+[ \t]*(;[^\n]*)?\r\n[^\r]`).MatchString},
}

// looser are the reasons for which we take, or wait for more of, what net/http refuses.
var looser = []struct {
	why string
	is  func(data string) bool
}{
	{"empty lines before a request are ignored (RFC 9112, section 2.2)", regexp.MustCompile(`^\r\n`).MatchString},
	{"a target that cannot be decoded is a link that does not exist, and a method that is not for links is 405: neither 400", func(data string) bool {
		target := targetOf.FindStringSubmatch(data)
		if target == nil {
			return false
		}
		authority := target[1]
		if strings.HasPrefix(data, "CONNECT ") && !isOwnHost(authority) { // which net/http reads as a host and port, whatever they look like
			authority = "http://" + authority
		}
		_, err := url.ParseRequestURI(authority)
		return err != nil
	}},
	{"a Host that no host can have is one that we do not know: 404", func(data string) bool {
		host := hostOf.FindStringSubmatch(data)
		return len(host) == 2 && !httpguts.ValidHostHeader(strings.Trim(host[1], " \t"))
	}},
	{"which trailers are announced is nothing to us", regexp.MustCompile(`(?i)\r\ntrailer:`).MatchString},
	{"trailers are thrown away, so only their lines must be sound", regexp.MustCompile(`(?is)transfer-encoding.*\n0+[ \t]*(;[^\n]*)?\r\n[^\r]`).MatchString},
}

func reason(list []struct {
	why string
	is  func(string) bool
}, data []byte) bool {
	for _, r := range list {
		if r.is(string(data)) {
			return true
		}
	}
	return false
}

// compare reads pipelined requests with both readers until one of them stops.
func compare(t *testing.T, all []byte) {
	t.Helper()
	if len(all) >= http1.MaxHead {
		return // our limits are tested elsewhere
	}
	for data := all; len(data) > 0; {
		a, b := ours(data), theirs(data)
		switch {
		case a.state == b.state && a.state != "taken":
			return
		case a.state == "taken" && b.state == "taken":
			if a == b {
				break
			}
			t.Fatalf("%q:\nours   %+v\ntheirs %+v", data, a, b)
		case b.state == "taken":
			if !reason(stricter, data) {
				t.Fatalf("%q: theirs %+v, ours %s", data, b, a.state)
			}
			return
		case a.state == "taken":
			if !reason(looser, data) {
				t.Fatalf("%q: ours %+v, theirs %s", data, a, b.state)
			}
			return
		default: // one refuses what the other would wait for: neither takes it
			return
		}
		if a.last {
			return
		}
		data = data[a.took:]
	}
}

// smuggling are requests that some pair of servers was once found to read differently, and the like.
var smuggling = []string{
	browser, browser + browser + "GET /",
	"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n8\r\nSMUGGLED\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nX: x\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0_2\r\nhi\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 00\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
	"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx", "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx",
	"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length:\x0b1\r\n\r\nx", "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1 \r\n\r\nx",
	"GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET http://b/a HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://b/a HTTP/1.1\r\n\r\n",
	"GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n", "GET /a HTTP/1.2\r\nHost: a\r\n\r\n", "GET /a HTTP/2.0\r\nHost: a\r\n\r\n",
	"GET /a\nHTTP/1.1\nHost: a\n\n", "GET /a HTTP/1.1\nHost: a\n\n", "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET  /a HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "get /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\xff HTTP/1.1\r\nHost: \xff\r\n\r\n",
	"GET * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT A:A HTTP/1.0\r\n0000:0\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", "GET /a HTTP/1.1\r\nHost: a\r\nX\x00: y\r\n\r\n", "GET /a HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", "GET /a HTTP/1.1\r\nHost:\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a HTTP/1.1\r\nHost: a\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
}

func TestAgreesWithTheStandardLibrary(t *testing.T) {
	for _, raw := range smuggling {
		compare(t, []byte(raw))
	}
}

// FuzzAgainstTheStandardLibrary holds this package against net/http: who takes what, which target and host, whether the
// connection goes on, and where the next request begins. Each disagreement has its reason above.
func FuzzAgainstTheStandardLibrary(f *testing.F) {
	for _, raw := range smuggling {
		f.Add([]byte(raw))
	}
	f.Fuzz(compare)
}

// FuzzPieces: what has come in pieces is read as what came at once, and nothing panics.
func FuzzPieces(f *testing.F) {
	for i, raw := range smuggling {
		f.Add([]byte(raw), i)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		whole := ours(data)
		if whole.state != "taken" || len(data) == 0 {
			return
		}
		cut = int(uint(cut) % uint(len(data)))
		if part := ours(data[:cut]); part.state == "refused" || part.state == "taken" && part.took != whole.took {
			t.Fatalf("%q at %d: %+v, whole %+v", data, cut, part, whole)
		}
	})
}
