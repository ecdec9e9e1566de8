package systemtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// Creating links on a real Kafka: a broker alone, and three with a copy on each. The scenario says what it measured and whether
// its floors were kept; it fails on a wrong answer.
func BenchmarkCreateOnKafka(b *testing.B) {
	b.Run("one broker", func(b *testing.B) { benchCreate(b, realkafka.Start(b).Addr(), "500") })
	b.Run("three brokers", func(b *testing.B) { benchCreate(b, realkafka.StartCluster(b, 3).Addrs(), "100") })
}

func benchCreate(b *testing.B, brokers, rate string) {
	for b.Loop() {
		c := exec.Command(binary(b), "bench", "create", "--brokers", brokers, "--rate", rate)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
