package systemtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// visitNode is visit at a certain node, of the default domain.
func visitNode(t *testing.T, node *process, domain, path string, lines ...string) answer {
	t.Helper()
	return rawVisit(t, node, "GET", path, domain, lines...)
}

func TestB10DisabledWhileHot(t *testing.T) {
	p := shared(t)
	nodes := []*process{p, p.serve(t, "redirect")}
	path := "/" + p.made(fields{"target": "https://example.com/b10"})
	for _, node := range nodes {
		p.eventually("every node serves it", func() bool { return visitNode(t, node, p.domain(), path).status == http.StatusFound })
	}
	var stop atomic.Bool
	var hot sync.WaitGroup
	for _, node := range nodes {
		hot.Go(func() {
			for gone := false; !stop.Load(); {
				a, err := node.tryVisit("GET", path, "Host", p.domain())
				if err == nil && a.status != http.StatusGone && (gone || a.status != http.StatusFound) {
					t.Errorf("while it is disabled, refused before: %v, now %d", gone, a.status)
					return
				}
				gone = gone || err == nil && a.status == http.StatusGone
			}
		})
	}
	defer hot.Wait()
	defer stop.Store(true)
	a := p.api("POST", p.link(path[1:], "/disable"), fields{"reason": "b10"})
	answered := time.Now()
	bound, _ := a.body["propagation_ms"].(float64)
	if a.status != http.StatusOK || a.str("status") != "disabled" || bound <= 0 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	time.Sleep(time.Until(answered.Add(time.Duration(bound) * time.Millisecond)))
	for i, node := range nodes {
		if v := visitNode(t, node, p.domain(), path); v.status != http.StatusGone || v.header.Get("Location") != "" {
			t.Errorf("node %d: %d %v after the %v ms that it was said to take", i, v.status, v.header, bound)
		}
	}
}

func TestB13Head(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/b13"})
	for path, status := range map[string]int{"/" + code: http.StatusFound, "/b13-nothing": http.StatusNotFound} {
		get, head := rawVisit(t, p, "GET", path, p.domain()), rawVisit(t, p, "HEAD", path, p.domain())
		if get.status != status || head.status != status || head.raw != "" || len(head.header["Content-Length"]) > 1 {
			t.Errorf("%s: GET %d, HEAD %d %v %q", path, get.status, head.status, head.header, head.raw)
		}
		get.header.Del("Date")
		head.header.Del("Date")
		if !maps.EqualFunc(get.header, head.header, func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%s: GET has %v, HEAD %v", path, get.header, head.header)
		}
	}
}

func TestB27NoHomePage(t *testing.T) {
	p := shared(t)
	a := rawVisit(t, p, "GET", "/", p.domain())
	if a.status != http.StatusNotFound || a.header.Get("Location") != "" || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(a.raw, "<h1>") {
		t.Errorf("%d %v %q", a.status, a.header, a.raw)
	}
}

// A target is a port that takes connections and never answers; it sees none.
func TestB37SilentTarget(t *testing.T) {
	p := shared(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var came atomic.Int32
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = conn.Close()
		}
	}()
	p.visit("/" + p.made(fields{"target": "http://" + ln.Addr().String() + "/"}))
	a := p.create(fields{"target": "http://" + ln.Addr().String() + "/", "code": "b37"})
	if a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.raw)
	}
	time.Sleep(200 * time.Millisecond)
	if n := came.Load(); n > 0 {
		t.Errorf("the target was asked %d times", n)
	}
}

func TestB38UnknownHost(t *testing.T) {
	p := shared(t)
	path := "/" + p.made(fields{"target": "https://example.com/b38"})
	_, port, _ := net.SplitHostPort(p.ports["redirect"])
	for _, host := range []string{"unknown.example", "localhost", "localhost:1", "localhost." + port, p.domain() + ".evil.example", "evil.example@" + p.domain(), "", "[::1]:" + port} {
		if a := rawVisit(t, p, "GET", path, host); a.header.Get("Location") != "" || a.status != http.StatusNotFound && a.status != http.StatusBadRequest {
			t.Errorf("%q: %d %v", host, a.status, a.header)
		}
	}
	if a := rawVisit(t, p, "GET", path, p.domain()); a.status != http.StatusFound {
		t.Errorf("the known one: %d", a.status)
	}
}

// The log's files hold the key's hash and never the key. The hash shows that the files can be read like that at all.
func TestB26KeysInTheLog(t *testing.T) {
	p := shared(t)
	hash := sha256.Sum256([]byte(adminKey))
	found := 0
	err := filepath.WalkDir(p.data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // the engine and the stores remove files at any time
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		if bytes.Contains(raw, []byte(adminKey)) {
			t.Errorf("%s holds the key", path)
		}
		if strings.Contains(path, string(filepath.Separator)+"kafka"+string(filepath.Separator)) {
			found += bytes.Count(raw, hash[:])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("the hash of the key is not in the log either: does this test still read it?")
	}
	if strings.Contains(p.out.String(), adminKey) {
		t.Error("the key was printed")
	}
}

// What the cases of behaviour.json ask for that this version does not have.
func TestNotBuiltYet(t *testing.T) {
	for id, why := range map[string]string{
		"B21": "export and import come with a later version", "B22": "import comes with a later version", "B25": "there is no Redis tier yet",
		"B28": "there is only the default domain yet", "B32": "CSV export comes with a later version",
		"B34": "there are no QR codes yet", "B35": "there are no QR codes yet",
	} {
		t.Run(id, func(t *testing.T) { t.Skipf("SKIPPED %s: %s", id, why) })
	}
}
