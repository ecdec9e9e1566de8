package gateway

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Every timeout is the one that was asked for, less an eighth at most, however the ones before it were armed.
func TestRedirectTimeouts(t *testing.T) {
	t.Parallel()
	node := newRedirectNode(t, func(d *RedirectDeps) { d.ReadTimeout, d.IdleTimeout = 400*time.Millisecond, 1200*time.Millisecond })
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	for server, node := range map[string]*redirectNode{"loops": node, "goroutines": withPerConnServer(t, node)} {
		t.Run(server, func(t *testing.T) { testRedirectTimeouts(t, node) })
	}
}

func testRedirectTimeouts(t *testing.T, node *redirectNode) {
	t.Parallel()
	const visit = "GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n"
	for name, c := range map[string]struct {
		steps []string // 300 ms apart
		least time.Duration
	}{
		"silence":                   {nil, 350 * time.Millisecond},
		"idle":                      {[]string{visit}, 1050 * time.Millisecond},
		"busy, then idle":           {[]string{visit, visit, visit, visit}, 3*300*time.Millisecond + 1050*time.Millisecond},
		"begins a second":           {[]string{visit, visit[:10]}, 300*time.Millisecond + 350*time.Millisecond},
		"second in two, then idle":  {[]string{visit, visit[:10], visit[10:]}, 2*300*time.Millisecond + 1050*time.Millisecond},
		"first in two, then idle":   {[]string{visit[:10], visit[10:]}, 300*time.Millisecond + 1050*time.Millisecond},
		"takes too long in parts":   {[]string{visit[:10], visit[10:20], visit[20:]}, 350 * time.Millisecond},
		"pipelined, then a stop":    {[]string{visit + visit + visit[:10]}, 350 * time.Millisecond},
		"two pipelined, then idle":  {[]string{visit + visit}, 1050 * time.Millisecond},
		"an early byte, then idles": {[]string{"G"}, 350 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", node.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			began := time.Now()
			go func() {
				for i, step := range c.steps {
					time.Sleep(time.Until(began.Add(time.Duration(i) * 300 * time.Millisecond)))
					if _, err := io.WriteString(conn, step); err != nil {
						return
					}
				}
			}()
			_ = conn.SetReadDeadline(began.Add(30 * time.Second))
			data, _ := io.ReadAll(conn)
			took := time.Since(began)
			if took < c.least || took > c.least+3*time.Second { // the upper bound is wide for busy machines
				t.Errorf("closed after %v, want %v or a little more: %d answers", took, c.least, strings.Count(string(data), "HTTP/1.1 "))
			}
		})
	}
}
