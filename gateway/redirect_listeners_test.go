package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/schemas/pb"
)

// redirectClients are the ways to reach a node: name → client that does not follow redirects. What a worker has to look up is
// a way of its own.
func redirectClients(t *testing.T, node *redirectNode) map[string]*http.Client {
	t.Helper()
	certificates := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	certificates.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- node.redirect.ServeTLS(ln, config) }()
	t.Cleanup(func() {
		_ = node.redirect.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	client := func(address string, http2 bool) *http.Client {
		transport := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a certificate of the test's own
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return map[string]*http.Client{"HTTP/1.1": client(node.address, false), "HTTP/1.1 TLS": client(ln.Addr().String(), false), "HTTP/2.0 TLS": client(ln.Addr().String(), true)}
}

// Every listener gives the same answers, whether the link is in memory or has to be looked up.
func TestRedirectListenersAgree(t *testing.T) {
	denied := redirectTestLists([]*pb.ListEntry{{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST, Value: "evil.example"}})
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Gate = deny.NewGate(func() *commands.Control { return denied }, func() time.Duration { return 0 }, time.Minute)
		d.Domains = redirectTestNotFound{d.Domains, map[string]string{"b.example": "https://example.com/none?q=%2f#f", "xn--bcher-kva.example": "https://evil.example/none"}}
	})
	node.addTo("b.example", "soon", &pb.Redirect{Target: "https://example.com/", NotBeforeUs: redirectTestNow + 1, CacheTtl: 60})
	node.addTo("b.example", "over", &pb.Redirect{Target: "https://example.com/", ExpiresUs: redirectTestNow})
	node.addTo("b.example", "mine", &pb.Redirect{Target: "https://example.com/", Query: pb.QueryPolicy_QUERY_REJECT})
	node.add("soon", &pb.Redirect{Target: "https://example.com/", NotBeforeUs: redirectTestNow + 1})
	node.add("abc", &pb.Redirect{Target: "https://example.com/?a=1#f"})
	node.add("kept", &pb.Redirect{Target: "https://example.com/", CacheTtl: 60, RedirectStatus: 301})
	node.add("last", &pb.Redirect{Target: "https://example.com/", CacheTtl: 60, ExpiresUs: redirectTestNow + 30_999_999, RedirectStatus: 308})
	node.add("over", &pb.Redirect{Target: "https://example.com/", ExpiresUs: redirectTestNow})
	node.add("banned", &pb.Redirect{Target: "https://example.com/", Banned: true})
	node.add("legal", &pb.Redirect{Target: "https://example.com/", Banned: true, BannedLegal: true})
	node.add("mine", &pb.Redirect{Target: "https://example.com/", Query: pb.QueryPolicy_QUERY_REJECT})
	node.addTo("b.example", "abc", &pb.Redirect{Target: "https://example.com/b", RedirectStatus: 307})
	clients := redirectClients(t, node)
	for _, c := range []struct {
		request  string // method, host, target
		status   int
		location string
		cache    string // Cache-Control; "": never
	}{
		{"GET s.example /abc", 302, "https://example.com/?a=1#f", ""},
		{"HEAD s.example /abc", 302, "https://example.com/?a=1#f", ""},
		{"GET S.Example.:80 /abc/?b=%2f&b", 302, "https://example.com/?a=1&b=%2f&b#f", ""},
		{"GET b.example /abc", 307, "https://example.com/b", ""},
		{"GET s.example /kept", 301, "https://example.com/", "public, max-age=60, stale-if-error=60"},
		{"HEAD s.example /kept", 301, "https://example.com/", "public, max-age=60, stale-if-error=60"},
		{"GET s.example /last", 308, "https://example.com/", "public, max-age=30, stale-if-error=0"},
		{"GET s.example /mine?x=1", 404, "", ""},
		{"GET s.example /over", 410, "", ""},
		{"GET s.example /banned", 403, "", ""},
		{"HEAD s.example /legal", 451, "", ""},
		{"GET s.example /none", 404, "", ""},
		{"GET s.example /%ff", 404, "", ""},
		{"GET s.example /%zz", 404, "", ""},
		{"GET s.example /abc%", 404, "", ""},
		{"GET s.example /", 404, "", ""},
		{"GET other.example /abc", 404, "", ""},
		{"GET s.example /abc+", 200, "", ""},
		{"HEAD s.example /abc+", 200, "", ""},
		{"GET s.example /robots.txt", 200, "", "public, max-age=86400"},
		{"GET s.example /favicon.ico", 204, "", "public, max-age=86400"},
		{"POST s.example /abc", 405, "", ""},
		{"PURGE other.example /none", 405, "", ""},
		{"GET s.example /soon", 404, "", ""},
		{"GET b.example /none", 302, "https://example.com/none?q=%2f#f", ""},
		{"GET B.Example.:80 /none/?x=1", 302, "https://example.com/none?q=%2f#f", ""},
		{"HEAD b.example /none", 302, "https://example.com/none?q=%2f#f", ""},
		{"GET b.example /soon", 302, "https://example.com/none?q=%2f#f", ""},
		{"GET b.example /none+", 404, "", ""},
		{"GET b.example /soon+", 404, "", ""},
		{"GET b.example /mine?x=1", 404, "", ""},
		{"GET b.example /over", 410, "", ""},
		{"GET b.example /%ff", 404, "", ""},
		{"GET b.example /", 404, "", ""},
		{"POST b.example /none", 405, "", ""},
		{"GET xn--bcher-kva.example /none", 404, "", ""},
	} {
		parts := strings.Split(c.request, " ")
		if c.cache == "" {
			c.cache = redirectNever
		}
		var first *http.Response
		var firstBody string
		for name, client := range clients {
			for _, cold := range []bool{false, true} {
				node.store.setCold(cold)
				scheme := "http"
				if strings.HasSuffix(name, "TLS") {
					scheme = "https"
				}
				request := &http.Request{Method: parts[0], Host: parts[1], URL: &url.URL{Scheme: scheme, Host: "s.example", Opaque: parts[2]}, Header: http.Header{"User-Agent": {redirectTestAgent}}}
				answer, err := client.Do(request)
				if err != nil {
					t.Fatalf("%s by %s: %v", c.request, name, err)
				}
				body, err := io.ReadAll(answer.Body)
				if err = join(err, answer.Body.Close()); err != nil || !strings.HasPrefix(name, answer.Proto) {
					t.Fatalf("%s by %s: %s %v", c.request, name, answer.Proto, err)
				}
				if answer.StatusCode != c.status || answer.Header.Get("Location") != c.location || answer.Header.Get("Cache-Control") != c.cache {
					t.Errorf("%s by %s, cold %v: %d %v", c.request, name, cold, answer.StatusCode, answer.Header)
				}
				answer.Header.Del("Date")
				if first == nil {
					first, firstBody = answer, string(body)
				} else if firstBody != string(body) || !maps.EqualFunc(first.Header, answer.Header, equalLines) {
					t.Errorf("%s: %s says %v %q,\nnot %v %q", c.request, name, answer.Header, body, first.Header, firstBody)
				}
			}
		}
	}
	node.store.setCold(false)
	if n, want := len(node.clicks()), 5*3*2; n != want {
		t.Errorf("%d clicks, want %d", n, want)
	}
}

// Who is one too many is told so with 503, on every listener, and is let in when there is room again.
func TestRedirectListenersAreFull(t *testing.T) {
	node := newRedirectNode(t, func(d *RedirectDeps) { d.MaxConnections = 2 })
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	var first *http.Response
	var firstBody string
	for name, client := range redirectClients(t, node) {
		dial := client.Transport.(*http.Transport).DialContext
		var held []net.Conn
		for range 2 {
			c, err := dial(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		time.Sleep(300 * time.Millisecond) // until they are accepted
		address := map[bool]string{true: "https", false: "http"}[strings.HasSuffix(name, "TLS")] + "://s.example/abc"
		var answer *http.Response
		var err error
		for range 100 { // HTTP/1.1 is told before it asks, which a client may take for a broken connection
			if answer, err = client.Get(address); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.HasPrefix(name, answer.Proto) {
			t.Errorf("%s: %v %v %v", name, err, answer.StatusCode, answer.Header)
		}
		answer.Header.Del("Date")
		if first == nil {
			first, firstBody = answer, string(body)
		} else if firstBody != string(body) || !maps.EqualFunc(first.Header, answer.Header, equalLines) {
			t.Errorf("%s says %v %q,\nnot %v %q", name, answer.Header, body, first.Header, firstBody)
		}
		for _, c := range held {
			_ = c.Close()
		}
		client.CloseIdleConnections()
		apiEventually(t, name+" is let in again", func() bool {
			answer, err := client.Get(address)
			return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusFound
		})
		client.CloseIdleConnections()
		time.Sleep(50 * time.Millisecond)
	}
}

// Who speaks plain HTTP to the port of TLS is told so, in plain HTTP.
func TestRedirectPlainOnTLS(t *testing.T) {
	node := newRedirectNode(t)
	dial := redirectClients(t, node)["HTTP/1.1 TLS"].Transport.(*http.Transport).DialContext
	c, err := dial(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET /abc HTTP/1.1\r\nHost: s.example\r\n\r\n")
	if data, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(data), "HTTP/1.1 400 ") {
		t.Errorf("%q %v", data, err)
	}
}

func equalLines(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func join(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// What is said about a visitor's address is believed from whom it may be, on every listener.
func TestRedirectListenersKnowTheVisitor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*RedirectDeps)
		before string // what a proxy sends first
		header string
		want   string // truncated
	}{
		"forwarded, trusted":             {func(d *RedirectDeps) { d.TrustedHops, d.TrustForwarded = 1, true }, "", "Forwarded: for=192.0.2.7;proto=https, for=10.0.0.2", "192.0.2.0"},
		"forwarded, IPv6":                {func(d *RedirectDeps) { d.TrustedHops, d.TrustForwarded = 1, true }, "", `Forwarded: proto=https;For="[2001:db8:1:2::1]:4711",for=10.0.0.2`, "2001:db8:1::"},
		"forwarded, hidden":              {func(d *RedirectDeps) { d.TrustedHops, d.TrustForwarded = 1, true }, "", "Forwarded: for=_hidden, for=10.0.0.2", "127.0.0.0"},
		"forwarded, two lines":           {func(d *RedirectDeps) { d.TrustedHops, d.TrustForwarded = 1, true }, "", "Forwarded: for=203.0.113.1\r\nForwarded: for=192.0.2.7, for=10.0.0.2", "192.0.2.0"},
		"forwarded, not what is trusted": {func(d *RedirectDeps) { d.TrustedHops = 1 }, "", "Forwarded: for=192.0.2.7, for=10.0.0.2", "127.0.0.0"},
		"X-Forwarded-For, likewise":      {func(d *RedirectDeps) { d.TrustedHops, d.TrustForwarded = 1, true }, "", "X-Forwarded-For: 192.0.2.7, 10.0.0.2", "127.0.0.0"},
		"forwarded, no hop":              {func(d *RedirectDeps) { d.TrustForwarded = true }, "", "Forwarded: for=192.0.2.7, for=10.0.0.2", "127.0.0.0"},
		"PROXY":                          {func(d *RedirectDeps) { d.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, "PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n", "", "192.0.2.0"},
		"PROXY and a header": {func(d *RedirectDeps) {
			d.TrustedHops, d.Proxies = 1, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}, "PROXY TCP4 10.0.0.3 10.0.0.1 1 2\r\n", "X-Forwarded-For: 192.0.2.7, 10.0.0.2", "192.0.2.0"},
	} {
		node := newRedirectNode(t, c.change)
		node.add("abc", &pb.Redirect{Target: "https://example.com/"})
		node.send(c.before + "GET /abc HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n" + strings.TrimPrefix(c.header+"\r\n", "\r\n") + "\r\n")
		clients := redirectClients(t, node)
		for _, proto := range []string{"HTTP/1.1 TLS", "HTTP/2.0 TLS"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://s.example/abc", nil)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(c.header, "\r\n") {
				if key, value, found := strings.Cut(line, ": "); found {
					request.Header.Add(key, value)
				}
			}
			clients[proto].Transport = prefixed(clients[proto].Transport, c.before)
			answer, err := clients[proto].Do(request)
			if err != nil {
				t.Fatalf("%s by %s: %v", name, proto, err)
			}
			_ = answer.Body.Close()
		}
		clicks := node.clicks()
		if len(clicks) != 3 {
			t.Fatalf("%s: %d clicks", name, len(clicks))
		}
		for _, click := range clicks {
			if got, _ := netip.AddrFromSlice(click.GetIp()); got.String() != c.want {
				t.Errorf("%s: %v, want %s", name, got, c.want)
			}
		}
	}
}

// prefixed makes a transport's connections begin with some bytes, before TLS.
func prefixed(of http.RoundTripper, before string) http.RoundTripper {
	transport := of.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil && before != "" {
			_, err = io.WriteString(c, before)
		}
		return c, err
	}
	return transport
}

// A body is read and thrown away up to a bound, on every listener.
func TestRedirectListenersSkipBodies(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	for name, client := range redirectClients(t, node) {
		scheme := "http"
		if strings.HasSuffix(name, "TLS") {
			scheme = "https"
		}
		for _, c := range []struct {
			method string
			length int
			status int
		}{{"GET", 10, 302}, {"GET", 60_000, 302}, {"GET", 70_000, 413}, {"POST", 10, 405}, {"POST", 70_000, 405}} {
			request, err := http.NewRequestWithContext(t.Context(), c.method, scheme+"://s.example/abc", strings.NewReader(strings.Repeat("x", c.length)))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatalf("%s of %d bytes by %s: %v", c.method, c.length, name, err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != c.status {
				t.Errorf("%s of %d bytes by %s: %d, want %d", c.method, c.length, name, answer.StatusCode, c.status)
			}
		}
	}
}
