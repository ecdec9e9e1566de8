package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/readmodels/clicks"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
)

// This file holds every setting. A flag counts before its environment variable (--kafka-tls is HOPLOG_KAFKA_TLS), that
// before the file of --config, that before the default.

// Names of the settings that more than one place needs.
const (
	setAdmin     = "admin"
	setAdminKey  = "admin-key"
	setDenyStale = "deny-stale"
	setKafka     = "kafka"
	setKey       = "key"
	setRedis     = "redis"
	setServer    = "server"
)

// secrets are the settings whose values are never shown. But for the key of client commands they have no flag: a command
// line can be read by others.
var secrets = map[string]string{
	setAdminKey:           "the first API key, instead of a random one",
	setKey:                "the API key of client commands",
	"kafka-sasl-password": "password at the brokers",
	"clickhouse-password": "password at ClickHouse",
	"redis-password":      "password at Redis, instead of one in its URL",
	"visitor-secret":      "keys the visitor numbers; the same on all redirect nodes",
	"purge-token":         "the CDN's token, .Token in the texts of a purge request",
}

// discreet are settings with a flag in which somebody may write a secret all the same: they are shown by name only.
var discreet = []string{setPurgeURL, "purge-headers", setPurgeBody}

// flagSet is a group of flags that several commands share.
type flagSet func(*pflag.FlagSet)

func processFlags(f *pflag.FlagSet) {
	f.String("data", "./data", "directory of this process's state")
	f.Uint64("disk-reserve", 0, "MiB of the data directory's disk that are kept free (0: a fiftieth of it, 64 to 512)")
	f.Uint64("cache", 0, "MiB of blocks of the stores that are kept in memory (0: 256; dev: 64)")
	f.Uint64(setHotLinks, 0, "MiB of links that a redirect node keeps in memory to serve them from; 0: 128, in dev 64")
	f.String("api", "127.0.0.1:8080", "address of the command API")
	f.String("redirect", "127.0.0.1:8081", "address of the redirects")
	f.String("redirect-tls", "", "address of the redirects over TLS (HTTP/2 and HTTP/1.1), beside the plain one")
	f.String("redirect-certs", "", "directory of the certificates for --redirect-tls: NAME.crt with NAME.key, chosen by the name asked for, read again when they change")
	f.Int("redirect-loops", 0, "event loops of the redirects (0: half the processors)")
	f.String("domain", "", "default short domain, written to the log at the first start")
	f.Int("replication-factor", 1, "replicas of the topics, when they are made")
	f.Int("min-isr", 1, "replicas that must have a record before it is acknowledged, when the topics are made")
	f.Duration("click-retention", 30*24*time.Hour, "how long clicks stay in the log")
	f.String("node", defaultNode(), "name of this node in its clicks")
	f.String("region", "", "region of this node in its clicks")
	f.String("trusted-proxies", "", "networks, comma separated, of proxies whose forwarding header is believed: the visitor is the last address in it that is none of theirs")
	f.Int("trusted-hops", 0, "instead of --trusted-proxies: addresses at the end of the forwarding header that are those of proxies; the visitor is the one before them")
	f.String("trusted-header", "x-forwarded-for", "the header that these proxies write: x-forwarded-for or forwarded")
	f.String("proxy-protocol", "", "networks, comma separated, whose connections begin with a PROXY header (version 1 or 2)")
	scanFlags(f)
	f.Duration(setDenyStale, 5*time.Second, "age of the lists above which links of low trust answer 503")
	f.Int64("spool-bytes", 256<<20, "size of the file in which clicks wait for the log; less on a disk that has no room (0: they wait in memory)")
	f.Duration(setPropagation, time.Second, "time within which redirect nodes follow a change, as writes promise it (propagation_ms); what takes longer is counted and shown by status")
	f.String(setPurgeURL, "", "CDN: the URL that purges links whose answers may be cached, a template; empty: no CDN. Texts of --purge-… may name .URLs (https://s.example/abc and https://s.example/abc/, under every name of the domain), .Prefixes (s.example/abc), .Links (each .Namespace .Code .Version .URL .Prefix .Host .Path), .Token, and with --purge-batch 1 or --purge-each the fields of the link. A CDN that keeps answers by query too must be purged by .Prefixes, or leave the query out of its cache keys")
	f.String("purge-method", "POST", "CDN: method of the purge request")
	f.String("purge-headers", "Content-Type: application/json", "CDN: headers of the purge request, one a line, templates: Authorization: Bearer {{.Token}}")
	f.String(setPurgeBody, `{"files":{{json .URLs}}}`, "CDN: body of the purge request, a template. By prefix: {\"prefixes\":{{json .Prefixes}}}, or for one that wants a * at the end {\"paths\":[{{range $i, $l := .Links}}{{if $i}},{{end}}{{json (print $l.Path \"*\")}}{{end}}]}")
	f.Int("purge-batch", 15, "CDN: how many links one purge request may name; each has two URLs under every name of its domain")
	f.String("purge-each", "", "CDN: one that purges a single URL or prefix at a time gets a request for each: url or prefix; .URL, .Prefix, .Host and .Path are those of that one, and --purge-batch does not count")
	f.String("purge-scheme", "https", "CDN: scheme of the purged URLs, https or http")
	f.Duration("purge-timeout", 10*time.Second, "CDN: how long one purge request may take")
	f.Duration("purge-within", 2*time.Second, "CDN: time within which a purge is done once redirect nodes follow; writes promise it on top of --propagation")
	f.Duration("purge-give-up", 15*time.Minute, "CDN: how long a failing purge is tried again before it becomes a dead letter")
	f.Duration("gather", 700*time.Millisecond, "how long the click sink waits for company before an insert; a busy partition waits twice as long")
}

func adminFlags(f *pflag.FlagSet) {
	f.String(setAdmin, "127.0.0.1:9090", "address of health, metrics and status")
}

func logFlags(f *pflag.FlagSet) {
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
}

func kafkaFlags(f *pflag.FlagSet) {
	f.String(setKafka, "127.0.0.1:9092", "brokers, host:port, comma separated (dev: where the embedded broker listens)")
	f.Bool("kafka-tls", false, "speak TLS to the brokers")
	f.String("kafka-tls-ca", "", "PEM file of the brokers' CA")
	f.String("kafka-tls-cert", "", "PEM file of the client certificate")
	f.String("kafka-tls-key", "", "PEM file of the client certificate's key")
	f.String("kafka-tls-server-name", "", "name in the brokers' certificate, if not their address")
	f.String("kafka-sasl-mechanism", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	f.String("kafka-sasl-user", "", "user at the brokers")
	f.Duration("session-timeout", 1500*time.Millisecond, "how long a commands or analytics process may be silent before others take its partitions over (a broker's group.min.session.timeout.ms, by default 6 s, may demand more)")
}

func clickhouseFlags(f *pflag.FlagSet) {
	f.String("clickhouse", "127.0.0.1:8123", "ClickHouse: host:port or http://, https://, clickhouse://host:port (dev: where the embedded engine listens)")
	f.String("clickhouse-user", "", "user at ClickHouse")
	f.String("clickhouse-database", "hoplog", "database at ClickHouse")
	f.Bool("clickhouse-tls", false, "speak TLS to ClickHouse")
	f.String("clickhouse-tls-ca", "", "PEM file of ClickHouse's CA")
	f.String("clickhouse-tls-cert", "", "PEM file of the client certificate")
	f.String("clickhouse-tls-key", "", "PEM file of the client certificate's key")
	f.String("clickhouse-tls-server-name", "", "name in ClickHouse's certificate, if not its address")
}

func redisFlags(f *pflag.FlagSet) {
	f.String(setRedis, "", "Redis that redirect nodes share: redis://, rediss:// (TLS) or unix:// URL; more nodes by ?addr=host:port, a sentinel by ?master_set=NAME (empty: none)")
	f.String("redis-prefix", "hoplog:", "what the keys in Redis begin with")
	f.Duration("redis-ttl", 24*time.Hour, "how long a link stays in Redis that nobody writes again")
	f.Duration("redis-timeout", 50*time.Millisecond, "how long a question to Redis may take")
	f.String("redis-tls-ca", "", "PEM file of Redis's CA")
	f.String("redis-tls-cert", "", "PEM file of the client certificate")
	f.String("redis-tls-key", "", "PEM file of the client certificate's key")
	f.String("redis-tls-server-name", "", "name in Redis's certificate, if not its address")
}

func clientFlags(f *pflag.FlagSet) {
	f.String(setServer, "http://127.0.0.1:8080", "URL of the command API")
	f.String(setKey, "", "API key; better in HOPLOG_KEY, where others cannot read it")
}

func jsonFlag(f *pflag.FlagSet) { f.Bool("json", false, "print JSON") }

// settings are the values for one run of one command.
type settings struct{ *viper.Viper }

// withFlags adds flag groups to a command.
func withFlags(c *cobra.Command, groups ...flagSet) *cobra.Command {
	for _, group := range groups {
		group(c.Flags())
	}
	c.Flags().String("config", "", "YAML file with settings")
	return c
}

// load reads the settings of a command from flags, environment and file.
func load(c *cobra.Command) (settings, error) {
	v := viper.New()
	v.SetEnvPrefix("HOPLOG")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := v.BindPFlags(c.Flags()); err != nil {
		return settings{}, err
	}
	if file := v.GetString("config"); file != "" {
		v.SetConfigFile(file)
		v.SetConfigType("yaml")
		if err := v.ReadInConfig(); err != nil {
			return settings{}, usagef("reading settings: %w", err)
		}
		if err := checkKeys(c, v); err != nil {
			return settings{}, err
		}
	}
	return settings{v}, checkTypes(c, v)
}

// checkKeys refuses a file that sets what no command knows: a misspelt setting must not pass unseen.
func checkKeys(c *cobra.Command, v *viper.Viper) error {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, group := range []flagSet{processFlags, devFlags, serveFlags, adminFlags, logFlags, kafkaFlags, clickhouseFlags, redisFlags, clientFlags, jsonFlag} {
		fresh := pflag.NewFlagSet("", pflag.ContinueOnError)
		group(fresh)
		known.AddFlagSet(fresh)
	}
	known.AddFlagSet(c.Flags())
	for _, key := range v.AllKeys() {
		if _, secret := secrets[key]; !secret && known.Lookup(key) == nil {
			return usagef("the settings file sets %q, which is not a setting", key)
		}
	}
	return nil
}

// checkTypes refuses values from the environment or the file that the flag itself would refuse.
func checkTypes(c *cobra.Command, v *viper.Viper) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || v.GetString(f.Name) == f.DefValue {
			return
		}
		if set := f.Value.Set(v.GetString(f.Name)); set != nil {
			err = usagef("setting %s: %w", f.Name, set)
		}
	})
	return err
}

func (s settings) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.GetString("log-level"))); err != nil {
		return nil, usagef("log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.GetString("log-format") {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, usagef("log-format %q: want text or json", s.GetString("log-format"))
}

func (s settings) kafka() eventlog.Config {
	return eventlog.Config{
		Brokers:        strings.Split(s.GetString(setKafka), ","),
		SessionTimeout: s.GetDuration("session-timeout"),
		TLS: eventlog.TLSConfig{Enabled: s.GetBool("kafka-tls"), CAFile: s.GetString("kafka-tls-ca"), CertFile: s.GetString("kafka-tls-cert"),
			KeyFile: s.GetString("kafka-tls-key"), ServerName: s.GetString("kafka-tls-server-name")},
		SASL: eventlog.SASLConfig{Mechanism: s.GetString("kafka-sasl-mechanism"), User: s.GetString("kafka-sasl-user"), Password: s.GetString("kafka-sasl-password")},
	}
}

func (s settings) clickhouse() clicks.Config {
	return clicks.Config{
		Addr: s.GetString("clickhouse"), Database: s.GetString("clickhouse-database"), User: s.GetString("clickhouse-user"), Password: s.GetString("clickhouse-password"),
		TLS: clicks.TLSConfig{Enabled: s.GetBool("clickhouse-tls"), CAFile: s.GetString("clickhouse-tls-ca"), CertFile: s.GetString("clickhouse-tls-cert"),
			KeyFile: s.GetString("clickhouse-tls-key"), ServerName: s.GetString("clickhouse-tls-server-name")},
	}
}

func (s settings) redis() shared.Config {
	return shared.Config{
		URL: s.GetString(setRedis), Password: s.GetString("redis-password"), Prefix: s.GetString("redis-prefix"), TTL: s.GetDuration("redis-ttl"), Timeout: s.GetDuration("redis-timeout"),
		TLS: shared.TLSConfig{CAFile: s.GetString("redis-tls-ca"), CertFile: s.GetString("redis-tls-cert"), KeyFile: s.GetString("redis-tls-key"),
			ServerName: s.GetString("redis-tls-server-name")},
	}
}

// topicPlan is for the topics that are missing; partitions is what the ones that exist have, 0 if none does.
func (s settings) topicPlan(partitions int) (eventlog.TopicPlan, error) {
	wanted := s.GetInt("partitions")
	if !events.ValidPartitions(wanted) {
		return eventlog.TopicPlan{}, usagef("partitions: %d is not a power of two up to %d", wanted, events.Buckets)
	}
	if partitions != 0 {
		if s.IsSet("partitions") && partitions != wanted {
			return eventlog.TopicPlan{}, fmt.Errorf("the topics have %d partitions, not %d: another number is a migration to new topics", partitions, wanted)
		}
		wanted = partitions
	}
	return eventlog.TopicPlan{Partitions: wanted, ReplicationFactor: s.GetInt("replication-factor"), MinISR: s.GetInt("min-isr"), ClickRetention: s.GetDuration("click-retention")}, nil
}

// shown lists the settings that differ from their default, for the log; secrets only by name.
func (s settings) shown(c *cobra.Command) (list []any) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, secret := secrets[f.Name]; secret || s.GetString(f.Name) == f.DefValue || f.Name == "help" {
			return
		}
		value := s.GetString(f.Name)
		switch {
		case slices.Contains(discreet, f.Name):
			value = "(set)"
		case f.Name == setRedis:
			value = shared.Redacted(value)
		}
		list = append(list, slog.String(f.Name, value))
	})
	for name := range secrets {
		if s.GetString(name) != "" {
			list = append(list, slog.String(name, "(set)"))
		}
	}
	return list
}

// defaultNode is this machine's name.
func defaultNode() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}

// portOf returns the port of a host:port address.
func portOf(addr string) (string, error) {
	_, port, err := net.SplitHostPort(addr)
	if err == nil && port == "" {
		err = errors.New("no port")
	}
	if err != nil {
		return "", usagef("address %q: %w", addr, err)
	}
	return port, nil
}
