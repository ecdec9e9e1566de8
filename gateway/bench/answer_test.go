package bench

import (
	"errors"
	"testing"
)

func TestAnswersAreReadWholeOrNotAtAll(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		status    int
		body      string
		close     bool
	}{
		{"with a length", "HTTP/1.1 201 Created\r\nX: y\r\nContent-Length: 5\r\n\r\nhello", 201, "hello", false},
		{"empty", "HTTP/1.1 302 Found\r\nlocation: https://e.example/a:b\r\ncontent-length: 0\r\n\r\n", 302, "", false},
		{"closing", "HTTP/1.1 503 Busy\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", 503, "", true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, chunks!!\r\n0\r\n\r\n", 200, "hello, chunks!!", false},
		{"chunked, empty", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var scratch []byte
			for n := range len(c.raw) {
				if a, size, err := parseAnswer([]byte(c.raw[:n]), &scratch); size != 0 || err != nil {
					t.Fatalf("after %d bytes of %d: %+v, %d, %v", n, len(c.raw), a, size, err)
				}
			}
			a, size, err := parseAnswer([]byte(c.raw+"HTTP/1.1 the next"), &scratch)
			if err != nil || size != len(c.raw) || a.status != c.status || string(a.body) != c.body || a.close != c.close {
				t.Errorf("%d bytes, %+v, %v", size, a, err)
			}
		})
	}
}

func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	for _, raw := range []string{
		"HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nuntil the end",
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "HTTP/1.1\r\n\r\n",
	} {
		if _, _, err := parseAnswer([]byte(raw), new([]byte)); !errors.Is(err, errAnswer) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
