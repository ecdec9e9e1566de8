package clicks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// Config says how to reach ClickHouse. Everything but Addr has a default.
type Config struct {
	// Addr is host:port or http://host:port (ClickHouse's HTTP port), https://host:port (the same under TLS), or
	// clickhouse://host:port (its native port).
	Addr     string
	Database string // default "hoplog"; made if it is not there
	User     string // default: ClickHouse's "default"
	Password string
	TLS      TLSConfig
	// Timeout bounds one question; default 5 s.
	Timeout time.Duration
}

// TLSConfig is the transport's encryption. Files are PEM.
type TLSConfig struct {
	Enabled            bool
	CAFile             string // default: the system's roots
	CertFile, KeyFile  string // client certificate, both or none
	ServerName         string // default: the host of the address
	InsecureSkipVerify bool
}

const (
	defaultDatabase = "hoplog"
	defaultTimeout  = 5 * time.Second
	dialTimeout     = 2 * time.Second
	maxConns        = 24
	// answerTimeout bounds the wait for a server that took a statement and says nothing; statements have shorter bounds of
	// their own.
	answerTimeout = 5 * time.Minute
)

// LogValue hides the password.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("addr", c.Addr), slog.String("database", c.Database), slog.String("user", c.User), slog.Bool("tls", c.TLS.Enabled))
}

// String hides the password.
func (c Config) String() string { return c.LogValue().String() }

// GoString hides the password.
func (c Config) GoString() string { return c.String() }

func (c Config) withDefaults() Config {
	if c.Database == "" {
		c.Database = defaultDatabase
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return c
}

// options translates the configuration for the client. database may differ from the configured one: see Prepare.
func (c Config) options(database string) (*clickhouse.Options, error) {
	protocol, host, secure, err := parseAddr(c.Addr)
	if err != nil {
		return nil, err
	}
	o := &clickhouse.Options{
		Protocol:         protocol,
		Addr:             []string{host},
		Auth:             clickhouse.Auth{Database: database, Username: c.User, Password: c.Password},
		DialTimeout:      dialTimeout,
		ReadTimeout:      answerTimeout,
		MaxOpenConns:     maxConns,
		MaxIdleConns:     maxConns,
		ConnOpenStrategy: clickhouse.ConnOpenInOrder,
	}
	if !isLoopback(host) {
		o.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	}
	if secure || c.TLS.Enabled {
		if o.TLS, err = c.TLS.build(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func parseAddr(addr string) (protocol clickhouse.Protocol, host string, secure bool, err error) {
	protocol, host = clickhouse.HTTP, addr
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
			return 0, "", false, errors.New("clickhouse address is not of the form scheme://host:port; user and password are settings of their own")
		}
		host = u.Host
		switch u.Scheme {
		case "http":
		case "https":
			secure = true
		case "clickhouse", "tcp":
			protocol = clickhouse.Native
		default:
			return 0, "", false, fmt.Errorf("clickhouse address has scheme %q: want http, https or clickhouse", u.Scheme)
		}
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return 0, "", false, fmt.Errorf("clickhouse address: %w", err)
	}
	return protocol, host, secure, nil
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c TLSConfig) build() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading clickhouse CA file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("clickhouse CA file %s holds no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" || c.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("loading clickhouse client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
