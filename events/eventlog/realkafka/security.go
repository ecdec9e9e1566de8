package realkafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Security is what a client needs for the secure listener. The user may log in by PLAIN, SCRAM-SHA-256 and
// SCRAM-SHA-512.
type Security struct {
	Addr     string // host:port of the listener
	CAFile   string // the PEM certificate that signed the broker's
	User     string
	Password string

	store string // the broker's key and certificate
}

// Security describes the secure listener, nil unless the broker was started by StartSecure.
func (b *Broker) Security() *Security { return b.secure }

func newSecurity(t testing.TB, dir, addr string) *Security {
	t.Helper()
	s := &Security{Addr: addr, CAFile: filepath.Join(dir, "ca.pem"), User: "alice", Password: "alice-secret",
		store: filepath.Join(dir, "broker.pem")}
	cert, key, err := selfSigned()
	if err != nil {
		t.Fatalf("making a certificate: %v", err)
	}
	for file, content := range map[string][]byte{s.CAFile: cert, s.store: append(key, cert...)} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatalf("writing a certificate: %v", err)
		}
	}
	return s
}

func (s *Security) properties() []string {
	const plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	const scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	return []string{
		"listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		fmt.Sprintf(`listener.name.secure.plain.sasl.jaas.config=%s required user_%s=%q;`, plainModule, s.User, s.Password),
		fmt.Sprintf(`listener.name.secure.scram-sha-256.sasl.jaas.config=%s required;`, scramModule),
		fmt.Sprintf(`listener.name.secure.scram-sha-512.sasl.jaas.config=%s required;`, scramModule),
		"listener.name.secure.ssl.keystore.type=PEM",
		"listener.name.secure.ssl.keystore.location=" + s.store,
	}
}

func (s *Security) scramArgs() []string {
	var out []string
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		out = append(out, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, s.User, s.Password))
	}
	return out
}

// selfSigned makes a certificate for 127.0.0.1 that is its own authority.
func selfSigned() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "hoplog test broker"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:         true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
