package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParsePeer(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	links := write("links", "/abc\r\n\ndef\nwith space\n")
	p, err := ParsePeer("other=127.0.0.1:80,17," + links)
	if err != nil || p.Name != "other" || p.Addr != "127.0.0.1:80" || p.PID != 17 || !slices.Equal(p.Paths, []string{"abc", "def"}) {
		t.Fatalf("%+v: %v", p, err)
	}
	request := string(p.source().request(nil, 0))
	if !strings.HasPrefix(request, "GET /abc HTTP/1.1\r\nHost: 127.0.0.1:80\r\n") && !strings.HasPrefix(request, "GET /def HTTP/1.1\r\nHost: 127.0.0.1:80\r\n") ||
		!strings.HasSuffix(request, "\r\n\r\n") {
		t.Errorf("asks %q", request)
	}
	for _, text := range []string{"", "other", "=127.0.0.1:80,17," + links, "other=127.0.0.1:80,17", "other=127.0.0.1:80,0," + links, "other=127.0.0.1:80,x," + links,
		"other=192.0.2.1:80,17," + links, "other=127.0.0.1:80,17," + filepath.Join(dir, "missing"), "other=127.0.0.1:80,17," + write("one", "abc\n")} {
		if _, err := ParsePeer(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
