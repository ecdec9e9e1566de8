package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// echoSource asks with numbered bodies and wants them back.
type echoSource struct {
	next int
	last map[int]string
	size int
}

func (s *echoSource) request(dst []byte, connection int) []byte {
	s.next++
	body := fmt.Sprintf("%d %s", s.next, strings.Repeat("x", s.size))
	s.last[connection] = body
	return fmt.Appendf(dst, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func (s *echoSource) answered(connection, status int, body []byte) (right, wrong int) {
	if status == http.StatusOK && string(body) == s.last[connection] {
		return 1, 0
	}
	return 0, 1
}

func runLoad(t *testing.T, l load, handler http.HandlerFunc) *loaded {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	l.addr = server.Listener.Addr().String()
	done, err := l.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
}

func TestEveryRequestIsAnswered(t *testing.T) {
	for _, size := range []int{10, 100_000, 5 << 20} { // in one packet; chunked; larger than sockets hold
		source := &echoSource{last: map[int]string{}, size: size}
		var seen atomic.Int64
		done := runLoad(t, load{connections: 4, during: 300 * time.Millisecond, source: source}, func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			echo(w, r)
		})
		if done.wrong != 0 || done.right != source.next || int(seen.Load()) != source.next || done.right < 4 {
			t.Errorf("bodies of %d bytes: asked %d, the server saw %d: %d right, %d wrong: %.100s", size, source.next, seen.Load(), done.right, done.wrong, done.problem)
		}
		if int(done.latency.Count()) != done.right || done.inTime > done.right || done.latency.Max() <= 0 {
			t.Errorf("bodies of %d bytes: %+v", size, done)
		}
	}
}

func TestWrongAnswersAndLostConnectionsAreCounted(t *testing.T) {
	var n atomic.Int64
	done := runLoad(t, load{connections: 3, during: 300 * time.Millisecond, source: &echoSource{last: map[int]string{}}}, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 10 {
		case 3:
			http.Error(w, "no", http.StatusTeapot)
		case 5:
			panic(http.ErrAbortHandler) // cuts the connection
		case 7:
			w.Header().Set("Connection", "close")
			fallthrough
		default:
			echo(w, r)
		}
	})
	total := int(n.Load())
	if wrong := total / 10 * 2; done.wrong < wrong || done.wrong > wrong+2 || done.right+done.wrong != total || done.problem == "" {
		t.Errorf("of %d: %d right, %d wrong, %q", total, done.right, done.wrong, done.problem)
	}
}

func TestAFixedRateDoesNotWaitForSlowAnswers(t *testing.T) {
	const rate, stall = 200, 200 * time.Millisecond
	var n atomic.Int64
	source := &echoSource{last: map[int]string{}}
	done := runLoad(t, load{connections: 2, during: time.Second, rate: rate, source: source}, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= 2 {
			time.Sleep(stall) // on both connections
		}
		echo(w, r)
	})
	if done.right < rate-2 || done.right > rate || done.wrong != 0 {
		t.Errorf("%d right, %d wrong of %d", done.right, done.wrong, rate)
	}
	// What became due while both connections stalled has waited: a tenth of all at least, half of the stall on average.
	if p := done.latency.Quantile(0.95); p < stall/4 {
		t.Errorf("p95 %v: the wait for a connection is not in it", p)
	}
}

func TestALoadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel(); select {} }))
	defer server.CloseClientConnections()
	l := load{addr: server.Listener.Addr().String(), connections: 1, during: time.Hour, source: &echoSource{last: map[int]string{}}}
	if _, err := l.run(ctx); err == nil {
		t.Error("it ended without saying why")
	}
}

func TestBatchesAndSinglesAskForLinks(t *testing.T) {
	target := &target{api: "127.0.0.1:1", key: "k"}
	single, batch := newLinkSource(target, 1), newLinkSource(target, 3)
	first, second := string(single.request(nil, 0)), string(single.request(nil, 1))
	if first == second || !strings.Contains(first, `{"target":"https://example.com/landing/0?utm_source=bench&id=0"}`) || !strings.HasPrefix(first, "POST /v1/links HTTP/1.1\r\n") {
		t.Errorf("%s\n%s", first, second)
	}
	asked := batch.request(nil, 0)
	if bytes.Count(asked, []byte(`{"target":`)) != 3 || !bytes.HasPrefix(asked, []byte("POST /v1/links:batch HTTP/1.1\r\n")) {
		t.Errorf("%s", asked)
	}
	right, wrong := batch.answered(0, 200, []byte(`{"results":[{"link":{"status":"active"},"status":201},{"error":{"status":503},"status":503},{"link":{},"status":201}]}`))
	if right != 2 || wrong != 1 {
		t.Errorf("%d right, %d wrong", right, wrong)
	}
	if right, wrong := single.answered(0, 202, nil); right != 0 || wrong != 1 {
		t.Errorf("an answer that is none: %d right, %d wrong", right, wrong)
	}
}
