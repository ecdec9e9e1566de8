package eventlog

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connStatus learns from the client's hooks what a client that retries for ever would keep to itself.
type connStatus struct {
	mu   sync.Mutex
	last error
}

func (s *connStatus) set(err error) {
	s.mu.Lock()
	s.last = err
	s.mu.Unlock()
}

func (s *connStatus) get() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// OnBrokerConnect is a hook of the Kafka client.
func (s *connStatus) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		s.set(fmt.Errorf("connecting to kafka %s:%d: %w", meta.Host, meta.Port, err))
	}
}

// OnBrokerE2E is a hook of the Kafka client.
func (s *connStatus) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	switch err := e2e.Err(); {
	case err != nil:
		s.set(fmt.Errorf("asking kafka %s:%d: %w", meta.Host, meta.Port, err))
	case key != kmsg.SASLHandshake.Int16() && key != kmsg.SASLAuthenticate.Int16() && key != kmsg.ApiVersions.Int16():
		s.set(nil) // an answer to more than the greeting
	}
}
