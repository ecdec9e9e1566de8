package eventlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// TestSecure: TLS and every SASL mechanism against a real Kafka, and what happens with a wrong password or certificate.
func TestSecure(t *testing.T) {
	s := realkafka.StartSecure(t).Security()
	cfg := eventlog.Config{Brokers: []string{s.Addr}, TLS: eventlog.TLSConfig{Enabled: true, CAFile: s.CAFile}}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			cfg := cfg
			cfg.SASL = eventlog.SASLConfig{Mechanism: mechanism, User: s.User, Password: s.Password}
			l := openBare(t, cfg)
			if err := l.EnsureTopics(soon(t), eventlog.TopicPlan{Partitions: 2}); err != nil {
				t.Fatal(err)
			}
			from := end(t, l, eventlog.EventsLink, 0)
			if err := appender(t, l, eventlog.EventsLink).Append(soon(t), 0, values("x", 3), from); err != nil {
				t.Fatal(err)
			}
			read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{0: from}), 0, 3)

			cfg.SASL.Password = "wrong"
			refused(t, cfg, "SASL")
		})
	}
	t.Run("unknown authority", func(t *testing.T) {
		refused(t, eventlog.Config{Brokers: cfg.Brokers, TLS: eventlog.TLSConfig{Enabled: true},
			SASL: eventlog.SASLConfig{Mechanism: "PLAIN", User: s.User, Password: s.Password}}, "certificate")
	})
	if text := fmt.Sprintf("%v %+v", eventlog.SASLConfig{Password: "pw"}, eventlog.Config{SASL: eventlog.SASLConfig{Password: "pw"}}); strings.Contains(text, "pw") {
		t.Errorf("a password is printed: %s", text)
	}
}

func refused(t *testing.T, cfg eventlog.Config, why string) {
	t.Helper()
	l, err := eventlog.Open(cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for end := time.Now().Add(patient); ; {
		err = l.WaitReady(within(t, 2*time.Second), 1)
		switch {
		case err != nil && strings.Contains(err.Error(), why):
			return
		case err == nil || time.Now().After(end): // a busy broker may not even refuse in time
			t.Fatalf("the broker should have refused us because of %s: %v", why, err)
		}
	}
}
