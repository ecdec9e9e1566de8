package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write puts a pair for some names into the directory, and dates it so that the change is seen.
func write(t *testing.T, dir, file string, serial int64, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: names, NotAfter: time.Now().Add(time.Duration(serial) * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), serial)
	put(t, filepath.Join(dir, file+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), serial)
}

func put(t *testing.T, path string, data []byte, serial int64) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000+serial, 0)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// serialOf returns which certificate a client gets that asks for a name, 0 for none.
func serialOf(s *Store, name string) int64 {
	c, _ := s.get(&tls.ClientHelloInfo{ServerName: name})
	if c == nil {
		return 0
	}
	return c.Leaf.SerialNumber.Int64()
}

// A handshake with a name that no certificate is for ends with the alert that says so, in both versions of TLS.
func TestUnknownNameIsTold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", 10, "a.example")
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, want := range map[string]string{"b.example": "unrecognized name", "a.example": "", "": ""} {
			client, server := net.Pipe()
			go func() {
				_ = tls.Server(server, s.TLS()).Handshake()
				_ = server.Close()
			}()
			err := tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true, MaxVersion: version}).Handshake() //nolint:gosec // a certificate of the test's own
			_ = client.Close()
			if said := fmt.Sprint(err); (err != nil) != (want != "") || !strings.Contains(said, want) {
				t.Errorf("%q in version %x: %v", name, version, err)
			}
		}
	}
}

func check(t *testing.T, s *Store, step string, want map[string]int64) {
	t.Helper()
	for name, serial := range want {
		if got := serialOf(s, name); got != serial {
			t.Errorf("%s: %q gets %d, want %d", step, name, got, serial)
		}
	}
}

func TestByName(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
	write(t, dir, "a", 10, "a.example", "*.a.example")
	write(t, dir, "b", 20, "b.example", "deep.a.example")
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	check(t, s, "at first", map[string]int64{"": 10, "a.example": 10, "A.Example.": 10, "x.a.example": 10, "x.y.a.example": 0, "b.example": 20, "deep.a.example": 20,
		"c.example": 0, "xa.example": 0})

	write(t, dir, "b", 30, "b.example", "c.example")
	write(t, dir, "d", 5, "a.example") // ends sooner than the one there is
	if err := s.look(); err != nil {
		t.Fatal(err)
	}
	check(t, s, "changed", map[string]int64{"b.example": 30, "c.example": 30, "deep.a.example": 10, "a.example": 10})

	put(t, filepath.Join(dir, "b.key"), []byte("half a fi"), 40)
	if err := s.look(); err != nil {
		t.Fatal(err)
	}
	check(t, s, "half written", map[string]int64{"b.example": 30, "a.example": 10})

	for _, file := range []string{"b.crt", "b.key"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.look(); err != nil {
		t.Fatal(err)
	}
	check(t, s, "removed", map[string]int64{"b.example": 0, "a.example": 10})
	s.dir = filepath.Join(dir, "gone")
	if err := s.look(); err == nil {
		t.Error("a directory that is not there")
	}
	check(t, s, "directory gone", map[string]int64{"a.example": 10})
}
