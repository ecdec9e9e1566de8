package eventlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Config says how to reach the brokers. Everything but Brokers has a default.
type Config struct {
	Brokers  []string // host:port, at least one
	TLS      TLSConfig
	SASL     SASLConfig
	ClientID string // default "hoplog"

	// SessionTimeout is how long a silent group member keeps its partitions; default 1.5 s. A broker that demands more
	// (group.min.session.timeout.ms, 6 s on an unchanged Kafka) gets what it demands.
	SessionTimeout time.Duration
	// DeliveryTimeout bounds an asynchronous append that the broker does not answer; default 5 s.
	DeliveryTimeout time.Duration
	// MaxBuffered bounds the asynchronous appends that wait in one appender; default 50,000 (and 64 MiB).
	MaxBuffered int
	// Compression of what is appended: zstd, lz4, snappy or none. Default snappy.
	Compression string
	// Dial opens a connection to a broker, in place of TCP and TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// TLSConfig is the transport's encryption. Files are PEM.
type TLSConfig struct {
	Enabled            bool
	CAFile             string // default: the system's roots
	CertFile, KeyFile  string // client certificate, both or none
	ServerName         string // default: the host of the broker's address
	InsecureSkipVerify bool
}

// SASLConfig is who we are. An empty Mechanism means no authentication.
type SASLConfig struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	User      string
	Password  string
}

// LogValue hides the password.
func (c SASLConfig) LogValue() slog.Value {
	return slog.GroupValue(slog.String("mechanism", c.Mechanism), slog.String("user", c.User))
}

// String hides the password.
func (c SASLConfig) String() string { return c.Mechanism + " user " + c.User }

const (
	defaultSession  = 1500 * time.Millisecond
	defaultDelivery = 5 * time.Second
	defaultBuffered = 50_000
	maxBufferBytes  = 64 << 20
	// defaultProduceTimeout is how long a leader waits for its followers.
	defaultProduceTimeout = 2 * time.Second
)

func (c Config) withDefaults() Config {
	setDefault(&c.ClientID, "hoplog")
	setDefault(&c.SessionTimeout, defaultSession)
	setDefault(&c.DeliveryTimeout, defaultDelivery)
	setDefault(&c.MaxBuffered, defaultBuffered)
	setDefault(&c.Compression, "snappy")
	return c
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// clientOptions are common to every client of ours: those of a client that finds out within a second that a broker died.
func (c Config) clientOptions(logger kgo.Logger) ([]kgo.Opt, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("no kafka broker configured")
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(logger),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.DialTimeout(time.Second),
		kgo.RequestTimeoutOverhead(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RetryTimeout(10 * time.Second),
		kgo.DisableClientMetrics(), // nobody asks a broker for them
	}
	if c.Dial != nil {
		opts = append(opts, kgo.Dialer(c.Dial))
	} else if c.TLS.Enabled {
		t, err := c.TLS.build()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	auth, err := c.SASL.option()
	if err != nil {
		return nil, err
	}
	return append(opts, auth...), nil
}

func (c TLSConfig) build() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading kafka CA file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka CA file %s holds no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" || c.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("loading kafka client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func (c SASLConfig) option() ([]kgo.Opt, error) {
	switch strings.ToUpper(c.Mechanism) {
	case "":
		return nil, nil
	case "PLAIN":
		return []kgo.Opt{kgo.SASL(plain.Auth{User: c.User, Pass: c.Password}.AsMechanism())}, nil
	case "SCRAM-SHA-256":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism())}, nil
	case "SCRAM-SHA-512":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism())}, nil
	}
	return nil, fmt.Errorf("unknown SASL mechanism %q: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.Mechanism)
}

func (c Config) compression() (kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"zstd": kgo.ZstdCompression(), "lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(), "none": kgo.NoCompression(),
	}
	codec, ok := codecs[strings.ToLower(c.Compression)]
	if !ok {
		return nil, fmt.Errorf("unknown compression %q: want zstd, lz4, snappy or none", c.Compression)
	}
	return kgo.ProducerBatchCompression(codec), nil
}
