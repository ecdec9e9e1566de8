package eventlog_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// createTopic makes a topic as an operator's tool would, not as we do.
func createTopic(t testing.TB, addr, topic string, partitions int32, settings map[string]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	configs := make(map[string]*string)
	for k, v := range settings {
		configs[k] = &v
	}
	if _, err := kadm.NewClient(client).CreateTopic(soon(t), partitions, 1, configs, topic); err != nil {
		t.Fatal(err)
	}
}
