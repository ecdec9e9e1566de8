package systemtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// raw sends bytes as they are and reads one answer; status 0: the connection ended without one.
func raw(t testing.TB, addr, request string) answer {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	// A server may answer and close before it has read all.
	go func() { _, _ = io.WriteString(conn, request) }()
	method, _, _ := strings.Cut(request, " ")
	return readAnswer(t, bufio.NewReader(conn), method)
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("no connection to %s: is it still there? %v", addr, err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readAnswer reads the answer to a request with this method off a connection.
func readAnswer(t testing.TB, r *bufio.Reader, method string) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("no answer within a minute")
		}
		return answer{raw: err.Error(), header: http.Header{}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("an answer of %d ends early: %v", resp.StatusCode, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(body)}
	_ = json.Unmarshal(body, &a.body) // what is no object stays in raw
	return a
}

// rawVisit asks the redirects with exactly these bytes for method, path and host.
func rawVisit(t testing.TB, p *process, method, path, host string, lines ...string) answer {
	t.Helper()
	lines = append([]string{method + " " + path + " HTTP/1.1", "Host: " + host, "User-Agent: " + browser, "Connection: close"}, lines...)
	return raw(t, p.ports["redirect"], strings.Join(lines, "\r\n")+"\r\n\r\n")
}

// rawAPI asks the API with exactly these bytes; lines are added to what every request has.
func rawAPI(t testing.TB, p *process, method, path, body string, lines ...string) answer {
	t.Helper()
	lines = append([]string{method + " " + path + " HTTP/1.1", "Host: " + p.ports["api"], "Authorization: Bearer " + adminKey, "Connection: close"}, lines...)
	return raw(t, p.ports["api"], strings.Join(lines, "\r\n")+"\r\n\r\n"+body)
}

// ours are all headers that answers have.
var ours = []string{
	"Allow", "Cache-Control", "Connection", "Content-Language", "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Etag", "Expires", "Hoplog-Position",
	"Idempotency-Key", "Idempotency-Replayed", "Location", "Pragma", "Referrer-Policy", "Retry-After", "Www-Authenticate", "X-Content-Type-Options",
	"Vary", "X-Frame-Options", "X-Request-Id",
}

// onlyOurHeaders checks that nothing of a request became a header of its answer, and that there was no error of ours.
func onlyOurHeaders(t testing.TB, what string, a answer) {
	t.Helper()
	if a.status >= 500 {
		t.Errorf("%.200q: %d %.200q", what, a.status, a.raw)
	}
	for name, values := range a.header {
		if !slices.Contains(ours, name) || len(values) > 1 {
			t.Errorf("%.200q: the answer has the header %s: %q", what, name, values)
		}
	}
}
