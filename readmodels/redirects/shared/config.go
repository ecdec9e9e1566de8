package shared

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/redis/rueidis"
)

// Config says how to reach Redis, version 6 or later. Everything but URL has a default.
type Config struct {
	// URL is redis://[user[:password]@]host[:port][/db], rediss:// for TLS, or unix:///path. More nodes are added by
	// ?addr=host:port, once each; a cluster is found by itself, a sentinel by ?master_set=NAME.
	URL string
	// Password counts before the URL's.
	Password string
	TLS      TLSConfig // of rediss://
	// Prefix begins every key of ours; default "hoplog:". Nothing else is touched.
	Prefix string
	// TTL is how long a record stays that nobody writes again, give or take a tenth; default 24 hours.
	TTL time.Duration
	// Timeout bounds a question; default 50 ms.
	Timeout time.Duration
	// Asks is how many questions may be under way; default 64.
	Asks int
	// Memory bounds what client-side caching keeps, in bytes; default 16 MiB.
	Memory int
	// Observe, if any, hears how long each question and each batch of writes took.
	Observe func(op Op, took time.Duration)
	Logger  *slog.Logger
}

// Op is what was done with Redis.
type Op string

// The operations that Config.Observe hears of.
const (
	OpGet  Op = "get"
	OpFill Op = "fill" // a batch
	OpPut  Op = "put"
)

// TLSConfig is what the transport's encryption needs beside rediss://. Files are PEM.
type TLSConfig struct {
	CAFile            string // default: the system's roots
	CertFile, KeyFile string // client certificate, both or none
	ServerName        string // default: the host of the address
}

const (
	defaultPrefix  = "hoplog:"
	defaultTTL     = 24 * time.Hour
	defaultTimeout = 50 * time.Millisecond
	defaultAsks    = 64
	defaultMemory  = 16 << 20

	connectWithin = time.Second
	// silentFor is after how long of silence a connection is asked whether it lives; unanswered for as long, it is cut.
	silentFor = time.Second
	buffer    = 64 << 10 // of a connection, each way
	// trackedFor bounds how long client-side caching believes a record, should a notice ever be lost.
	trackedFor = time.Minute
	sentinels  = 5 * time.Second // between questions for the master
)

// LogValue hides passwords.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", Redacted(c.URL)), slog.String("prefix", c.Prefix))
}

// String hides passwords.
func (c Config) String() string { return c.LogValue().String() }

// GoString hides passwords.
func (c Config) GoString() string { return c.String() }

// Redacted is a URL without its password, for people; of one that cannot be read nothing is shown.
func Redacted(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return ""
	case err != nil || u.Opaque != "" || u.Scheme == "":
		return "(unreadable)"
	}
	return u.Redacted()
}

func (c *Config) fillIn() {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.TTL <= 0 {
		c.TTL = defaultTTL
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Asks <= 0 {
		c.Asks = defaultAsks
	}
	if c.Memory <= 0 {
		c.Memory = defaultMemory
	}
	if c.Observe == nil {
		c.Observe = func(Op, time.Duration) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports settings by which no Redis can be reached; see ErrConfig. Open does, too.
func (c Config) Validate() error {
	c.fillIn()
	_, err := c.options()
	return err
}

// options translates the settings for the client.
func (c *Config) options() (rueidis.ClientOption, error) {
	if _, err := url.Parse(c.URL); err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("%w: the URL cannot be read: want redis://host:port", ErrConfig)
	}
	o, err := rueidis.ParseURL(c.URL)
	if err != nil {
		return o, fmt.Errorf("%w: %w", ErrConfig, err) // about one part of the URL, never its password
	}
	if c.Password != "" {
		o.Password = c.Password
	}
	if err := c.encrypt(&o); err != nil {
		return o, err
	}
	o.Sentinel.TLSConfig, o.Sentinel.TopologyRefreshInterval = o.TLSConfig, sentinels
	o.Dialer.Timeout, o.Dialer.KeepAlive, o.ConnWriteTimeout = connectWithin, silentFor, silentFor
	o.Sentinel.Dialer = o.Dialer
	// One connection to a node, for what is bounded by Asks and a batch of fills; what fails is judged by the breaker.
	o.PipelineMultiplex, o.DisableRetry, o.CacheSizeEachConn = -1, true, c.Memory
	o.ReadBufferEachConn, o.WriteBufferEachConn = buffer, buffer
	o.ClientName = "hoplog"
	return o, nil
}

func (c *Config) encrypt(o *rueidis.ClientOption) error {
	t := c.TLS
	if o.TLSConfig == nil {
		if t != (TLSConfig{}) {
			return fmt.Errorf("%w: certificates are for rediss:// URLs", ErrConfig)
		}
		return nil
	}
	if t.ServerName != "" {
		o.TLSConfig.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return fmt.Errorf("%w: reading the CA file: %w", ErrConfig, err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w: the CA file %s holds no certificate", ErrConfig, t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return fmt.Errorf("%w: loading the client certificate: %w", ErrConfig, err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}
