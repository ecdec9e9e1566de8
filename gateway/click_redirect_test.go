package gateway

import (
	"bytes"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/schemas/pb"
)

const redirectTestBot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"

// B01: a slash at the end is not part of the code.
func TestClickOfTrailingSlash(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/", LinkId: 7, Version: 3})
	node.get("/abc/", "User-Agent: "+redirectTestAgent)
	clicks := node.clicks()
	if len(clicks) != 1 || clicks[0].GetCode() != "abc" || clicks[0].GetLinkId() != 7 || clicks[0].GetVersion() != 3 || clicks[0].GetStatus() != 302 {
		t.Errorf("%v", clicks)
	}
}

// B13: HEAD says what GET says, without a body, and is not counted.
func TestRedirectHead(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	node.add("off", &pb.Redirect{Target: "https://example.com/", Disabled: true})
	for _, path := range []string{"/abc", "/abc/?x=1", "/off", "/none", "/abc+", "/robots.txt", "/favicon.ico", "/"} {
		raw := " " + path + " HTTP/1.1\r\nHost: s.example\r\nConnection: close\r\n\r\n"
		head, body, _ := strings.Cut(node.send("HEAD"+raw), "\r\n\r\n")
		want, _, _ := strings.Cut(node.send("GET"+raw), "\r\n\r\n")
		date := regexp.MustCompile("(?m)^Date: .*$")
		head, want = date.ReplaceAllString(head, ""), date.ReplaceAllString(want, "")
		if head != want || body != "" {
			t.Errorf("%s: HEAD\n%s\nGET\n%s\nbody %q", path, head, want, body)
		}
		if n := strings.Count(strings.ToLower(head), "\r\ncontent-length:"); n > 1 {
			t.Errorf("%s: %d Content-Length", path, n)
		}
	}
	if n := len(node.clicks()); n != 2 { // the GETs of /abc
		t.Errorf("%d clicks", n)
	}
}

// B15: no human was here.
func TestClickOfBotsAndHeads(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	node.get("/abc", "User-Agent: "+redirectTestBot)
	for range 3 {
		node.visit("HEAD", node.host, "/abc", "User-Agent: "+redirectTestAgent)
	}
	clicks := node.clicks()
	if len(clicks) != 1 || clicks[0].GetClass() != pb.ClickClass_BOT {
		t.Errorf("%v", clicks)
	}
}

// B17, by its kind: entries, hops, and what a visitor may write into the header.
func TestClickVisitorAddress(t *testing.T) {
	for name, c := range map[string]struct {
		hops    int
		headers []string
		want    string // truncated
	}{
		"one hop":                 {1, []string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2"}, "192.0.2.0"},
		"no hop":                  {0, []string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2"}, "127.0.0.0"},
		"no header":               {1, nil, "127.0.0.0"},
		"one entry":               {1, []string{"X-Forwarded-For: 192.0.2.7"}, "192.0.2.0"},
		"two hops":                {2, []string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2, 10.0.0.3"}, "192.0.2.0"},
		"a made up entry":         {1, []string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7, 10.0.0.2"}, "192.0.2.0"},
		"two lines":               {1, []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 10.0.0.2"}, "192.0.2.0"},
		"lines and lists":         {2, []string{"X-Forwarded-For: 198.51.100.1, 192.0.2.7", "x-forwarded-for: 10.0.0.2,10.0.0.3"}, "192.0.2.0"},
		"with port":               {1, []string{"X-Forwarded-For: 192.0.2.7:4711, 10.0.0.2"}, "192.0.2.0"},
		"IPv6":                    {1, []string{"X-Forwarded-For: 2001:db8:1:2:3:4:5:6, 10.0.0.2"}, "2001:db8:1::"},
		"IPv6 in brackets":        {1, []string{"X-Forwarded-For: [2001:db8:1:2::1]:443, 10.0.0.2"}, "2001:db8:1::"},
		"IPv6 with zone":          {1, []string{"X-Forwarded-For: fe80::1%eth0, 10.0.0.2"}, "fe80::"},
		"IPv4 in IPv6":            {1, []string{"X-Forwarded-For: ::ffff:192.0.2.7, 10.0.0.2"}, "192.0.2.0"},
		"garbage falls back":      {1, []string{"X-Forwarded-For: unknown, 10.0.0.2"}, "127.0.0.0"},
		"long garbage falls back": {1, []string{"X-Forwarded-For: " + strings.Repeat("1", 5000) + ", 10.0.0.2"}, "127.0.0.0"},
		"empty":                   {1, []string{"X-Forwarded-For:"}, "127.0.0.0"},
		"commas":                  {1, []string{"X-Forwarded-For: ,,,"}, "127.0.0.0"},
	} {
		node := newRedirectNode(t, func(d *RedirectDeps) { d.TrustedHops = c.hops })
		node.add("abc", &pb.Redirect{Target: "https://example.com/"})
		node.get("/abc", c.headers...)
		clicks := node.clicks()
		if len(clicks) != 1 {
			t.Fatalf("%s: %d clicks", name, len(clicks))
		}
		got, _ := netip.AddrFromSlice(clicks[0].GetIp())
		if got.String() != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// What is believed is said by whose addresses the proxies have, so one that appends to what a visitor invents is enough.
func TestClickVisitorBehindProxies(t *testing.T) {
	for name, c := range map[string]struct {
		proxies string
		headers []string
		want    string // truncated
	}{
		"one that appends":       {"127.0.0.0/8", []string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7"}, "192.0.2.0"},
		"two":                    {"127.0.0.0/8 10.0.0.0/8", []string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7, 10.0.0.2"}, "192.0.2.0"},
		"two lines":              {"127.0.0.0/8 10.0.0.0/8", []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 10.0.0.2, 10.0.0.3"}, "192.0.2.0"},
		"a proxy in front":       {"127.0.0.0/8", []string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2"}, "10.0.0.0"},
		"who connects is not":    {"10.0.0.0/8", []string{"X-Forwarded-For: 192.0.2.7, 10.0.0.2"}, "127.0.0.0"},
		"none but proxies":       {"127.0.0.0/8 10.0.0.0/8", []string{"X-Forwarded-For: 10.0.0.3, 10.0.0.2"}, "10.0.0.0"},
		"garbage hides nobody":   {"127.0.0.0/8 10.0.0.0/8", []string{"X-Forwarded-For: 192.0.2.7, unknown, 10.0.0.2"}, "127.0.0.0"},
		"no header, empty, list": {"127.0.0.0/8", []string{"X-Forwarded-For: ,"}, "127.0.0.0"},
	} {
		node := newRedirectNode(t, func(d *RedirectDeps) {
			for network := range strings.FieldsSeq(c.proxies) {
				d.TrustedProxies = append(d.TrustedProxies, netip.MustParsePrefix(network))
			}
		})
		node.add("abc", &pb.Redirect{Target: "https://example.com/"})
		node.get("/abc", c.headers...)
		clicks := node.clicks()
		if len(clicks) != 1 {
			t.Fatalf("%s: %d clicks", name, len(clicks))
		}
		if got, _ := netip.AddrFromSlice(clicks[0].GetIp()); got.String() != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// B19: a long referrer does no harm.
func TestClickReferrer(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/"})
	long := "https://News.Example:8443/" + strings.Repeat("x", 5000) + "?secret=1"
	if a := node.get("/abc", "Referer: "+long); a.status != 302 {
		t.Fatalf("status %d", a.status)
	}
	clicks := node.clicks()
	if len(clicks) != 1 || clicks[0].GetReferrerHost() != "news.example" {
		t.Errorf("%v", clicks)
	}
}

func TestClickEvent(t *testing.T) {
	node := newRedirectNode(t)
	node.add("abc", &pb.Redirect{Target: "https://example.com/", LinkId: 9, Version: 4, RedirectStatus: 307, Query: pb.QueryPolicy_QUERY_DROP})
	node.addTo("b.example", "abc", &pb.Redirect{Target: "https://example.com/b", LinkId: 10})
	node.get("/abc?utm_source=a%20b&utm_medium=c+d&utm_campaign=e&utm_term=f&utm_content=%c3%bc&utm_source=second&x=1",
		"User-Agent: "+redirectTestAgent, "Referer: https://news.example/today?user=1")
	node.visit("GET", "b.example", "/abc", "User-Agent: "+redirectTestAgent)
	node.get("/abc", "User-Agent: "+redirectTestAgent, "Sec-Purpose: prefetch;prerender")
	node.get("/abc")
	byLink := map[string]*pb.Click{}
	for _, c := range node.clicks() {
		byLink[c.GetNamespace()+" "+c.GetClass().String()] = c
	}
	c := byLink["s.example HUMAN"]
	if c.GetLinkId() != 9 || c.GetVersion() != 4 || c.GetStatus() != 307 || c.GetTimeUs() != redirectTestNow || c.GetCode() != "abc" ||
		c.GetReferrerHost() != "news.example" || c.GetDevice() != "desktop" || c.GetOs() != "Linux" || c.GetBrowser() != "Chrome" ||
		c.GetUtmSource() != "a b" || c.GetUtmMedium() != "c d" || c.GetUtmCampaign() != "e" || c.GetUtmTerm() != "f" || c.GetUtmContent() != "ü" ||
		c.GetChannel() != pb.Channel_LINK || c.GetCountry() != "" || c.GetVisitor() == 0 || !bytes.Equal(c.GetIp(), []byte{127, 0, 0, 0}) {
		t.Errorf("%v", c)
	}
	if other := byLink["b.example HUMAN"]; other.GetLinkId() != 10 || other.GetVisitor() != c.GetVisitor() {
		t.Errorf("%v", other)
	}
	if byLink["s.example PREVIEW"] == nil || byLink["s.example BOT"] == nil {
		t.Errorf("%v", byLink)
	}
	for _, block := range node.appender.blocks {
		if block.GetNode() != "node-1" || block.GetRegion() != "eu" || len(block.GetBoot()) != 16 || block.GetSchemaVersion() != 1 {
			t.Errorf("%v", block)
		}
	}
}
