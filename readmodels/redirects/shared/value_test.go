package shared

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/schemas/pb"
)

var aKey = []byte("s.example\x00abc")

func valueOf(tb testing.TB, routeKey []byte, link *pb.Redirect) []byte {
	tb.Helper()
	value, err := appendValue(nil, routeKey, link)
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

func TestValueIsWhatWasStored(t *testing.T) {
	for _, link := range []*pb.Redirect{
		{Version: 1, LinkId: 7, Target: "https://a.example/"},
		{Version: 1<<64 - 1, Target: strings.Repeat("x", 8192), Banned: true, BannedLegal: true, ExpiresUs: -1},
		{Version: 3, Deleted: true},
		{Target: "of version 0"},
	} {
		got, err := parseValue(aKey, valueOf(t, aKey, link))
		if err != nil || !proto.Equal(got, link) {
			t.Errorf("%v came back as %v, %v", link, got, err)
		}
	}
	if _, err := parseValue(aKey, valueOf(t, aKey, &pb.Redirect{Version: 2, Target: strings.Repeat("x", maxRecord)})); !errors.Is(err, errBare) {
		t.Errorf("of what is too large the version stays: %v", err)
	}
}

func TestValueIsRefused(t *testing.T) {
	value := valueOf(t, aKey, &pb.Redirect{Version: 12, Target: "https://a.example/"})
	other := valueOf(t, []byte("s.example\x00abd"), &pb.Redirect{Version: 12, Target: "https://a.example/"})
	for name, bad := range map[string][]byte{
		"nothing": nil, "short": value[:headSize], "cut off": value[:len(value)-1], "longer": append(bytes.Clone(value), 0), "of another key": other,
		"text": []byte("hello, this is a value of another program, and a long one"), "of another format": append([]byte{'2'}, value[1:]...),
	} {
		if link, err := parseValue(aKey, bad); !errors.Is(err, errForm) {
			t.Errorf("%s: %v, %v", name, link, err)
		}
	}
	for i := range value {
		bad := bytes.Clone(value)
		bad[i] ^= 4
		if link, err := parseValue(aKey, bad); !errors.Is(err, errForm) {
			t.Errorf("byte %d changed: %v, %v", i, link, err)
		}
	}
}

// What parses is a value that we would have written for this key, but for fields that this version does not know.
func FuzzParseValue(f *testing.F) {
	f.Add(valueOf(f, aKey, &pb.Redirect{Version: 12, Target: "https://a.example/", CacheTtl: 9}))
	f.Add([]byte("1"))
	f.Fuzz(func(t *testing.T, value []byte) {
		link, err := parseValue(aKey, value)
		if err != nil {
			return
		}
		again, err := parseValue(aKey, valueOf(t, aKey, link))
		if err != nil || !proto.Equal(again, link) {
			t.Errorf("%v became %v, %v", link, again, err)
		}
	})
}

func TestSettings(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct {
		url string
		tls TLSConfig
		ok  bool
	}{
		{url: "redis://:hunter2@localhost:6379/2", ok: true},
		{url: "rediss://user:hunter2@redis.example:6380?addr=other.example:6380", ok: true},
		{url: "redis://user:hunter2@one.example?addr=two.example&master_set=main", ok: true},
		{url: "unix:///run/redis.sock", ok: true},
		{url: "http://user:hunter2@localhost"},
		{url: "redis://user:hunter2@local host:6379"},
		{url: "redis://user:hunter2@localhost/notanumber"},
		{url: "redis://user:hun%ter2@localhost/"},
		{url: "localhost:6379"},
		{url: "redis://:hunter2@localhost", tls: TLSConfig{CAFile: "/nowhere"}},
		{url: "rediss://:hunter2@localhost", tls: TLSConfig{CAFile: "/nowhere"}},
		{url: "rediss://:hunter2@localhost", tls: TLSConfig{CertFile: "/nowhere"}},
	} {
		cfg := Config{URL: c.url, TLS: c.tls, Password: secret}
		tier, err := Open(cfg)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", c.url, err)
		}
		said := cfg.String() + Redacted(c.url)
		if err != nil {
			said += err.Error()
		} else {
			said += tier.Status().URL
		}
		if strings.Contains(said, "hunter2") || strings.Contains(said, "hun%ter2") {
			t.Errorf("the password is shown: %s", said)
		}
	}
}
