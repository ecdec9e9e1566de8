package eventlog_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// TestCluster is what a cluster adds: processes that make the topics at once, brokers that know different things, and one
// that is killed.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: three Kafka brokers; make test runs it")
	}
	c := realkafka.StartCluster(t, 3)
	brokers := strings.Split(c.Addrs(), ",")
	plan := eventlog.TopicPlan{Partitions: 4, ReplicationFactor: 3, MinISR: 2}
	var making sync.WaitGroup
	for range 3 {
		l := openBare(t, eventlog.Config{Brokers: brokers})
		making.Go(func() {
			if err := l.EnsureTopics(soon(t), plan); err != nil {
				t.Errorf("making the topics beside others: %v", err)
			}
		})
	}
	making.Wait()

	first := c.Nodes[0]
	led := int32(-1)
	for p := range int32(plan.Partitions) {
		if c.Leader(eventlog.EventsLink, p) == first {
			led = p
		}
	}
	if led < 0 {
		t.Fatal("the first broker leads no partition of events")
	}
	l := openBare(t, eventlog.Config{Brokers: brokers})
	if err := appender(t, l, eventlog.EventsLink).Append(soon(t), led, values("before", 3), 0); err != nil {
		t.Fatal(err)
	}
	first.Kill()
	killed := time.Now()
	if other := awaitOtherLeader(t, c, led, first); other == nil {
		t.Fatal("nobody follows the killed leader")
	}
	if got := end(t, l, eventlog.EventsLink, led); got != 3 {
		t.Fatalf("the log ends at %d, 3 records were acknowledged", got)
	}
	if err := appender(t, l, eventlog.EventsLink).Append(soon(t), led, values("after", 1), 3); err != nil {
		t.Fatal(err)
	}
	t.Logf("appends go on %s after the leader was killed", time.Since(killed).Round(10*time.Millisecond))

	said := &said{}
	joining, err := eventlog.Open(eventlog.Config{Brokers: brokers}, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer joining.Close()
	m, err := joining.Join(soon(t), "g", []string{eventlog.CommandsLink}, func(string, []int32) {}, func(string, []int32) {})
	if err != nil {
		t.Fatalf("joining while a broker is away: %v", err)
	}
	m.Close()
	if strings.Contains(said.String(), "longer session") {
		t.Errorf("a broker that is away made the session longer: %s", said.String())
	}
	first.Restart()
	c.AwaitInSync()
}

// said is a log that clients write to while the test reads it.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func awaitOtherLeader(t *testing.T, c *realkafka.Cluster, partition int32, than *realkafka.Broker) *realkafka.Broker {
	t.Helper()
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b := c.Leader(eventlog.EventsLink, partition); b != nil && b != than {
			return b
		}
	}
	return nil
}
