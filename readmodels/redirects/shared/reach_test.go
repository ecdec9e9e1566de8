package shared_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
)

// certificate makes a certificate that signs itself, for server and client, and returns its files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, DNSNames: []string{"redis.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "redis.crt"), filepath.Join(dir, "redis.key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	server := redistest.Start(t, "--tls-port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	addr := loopback.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	must(t, err)
	server.CLI("CONFIG", "SET", "tls-port", port)
	for _, c := range []struct {
		name string
		tls  shared.TLSConfig
		ok   bool
	}{
		{"certificates of both", shared.TLSConfig{CAFile: cert, CertFile: cert, KeyFile: key}, true},
		{"another name", shared.TLSConfig{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "redis.example"}, true},
		{"no certificate of ours", shared.TLSConfig{CAFile: cert}, false},
		{"the system's authorities", shared.TLSConfig{CertFile: cert, KeyFile: key}, false},
		{"a wrong name", shared.TLSConfig{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "other.example"}, false},
	} {
		tier := run(t, shared.Config{URL: "rediss://" + addr, TLS: c.tls})
		eventually(t, "it is clear whether it works", func() bool { s := tier.Status(); return s.State == "closed" || s.Error != "" })
		if s := tier.Status(); (s.State == "closed") != c.ok {
			t.Errorf("%s: %+v", c.name, s)
		}
		if c.ok {
			put(t, tier, "abc", 1)
			if got := version(t, tier, "abc"); got != 1 {
				t.Errorf("%s: version %d", c.name, got)
			}
		}
	}
}

// A cluster is found by itself, a master by its sentinel.
func TestClusterAndSentinel(t *testing.T) {
	cluster := redistest.Start(t, "--cluster-enabled", "yes")
	cluster.CLI("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, "the cluster is whole", func() bool { return strings.Contains(cluster.CLI("CLUSTER", "INFO"), "cluster_state:ok") })
	master := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, "main", master)
	for name, url := range map[string]string{"cluster": "redis://" + cluster.Addr, "sentinel": "redis://" + sentinel.Addr + "?master_set=main"} {
		tier := run(t, shared.Config{URL: url})
		inUse(t, tier)
		put(t, tier, "abc", 2)
		put(t, tier, "abc", 1)
		tier.Offer(recordOf("other", 5), time.Now())
		eventually(t, name+": the fill is there", func() bool { return version(t, tier, "other") == 5 })
		if got := version(t, tier, "abc"); got != 2 { // asked for the first time
			t.Errorf("%s: version %d", name, got)
		}
	}
	if got := master.CLI("DBSIZE"); got != "2" {
		t.Errorf("the master has %s keys", got)
	}
}
