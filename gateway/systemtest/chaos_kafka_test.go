package systemtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/realkafka"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

const (
	chaosPartitions = 8
	// shortKafkaRounds are the rounds of the short form: each kind of fault that a cluster adds, once.
	shortKafkaRounds = 6
)

// chaosFleet is every role in processes of its own, on three Kafka brokers with RF 3 and min ISR 2.
type chaosFleet struct {
	t                        testing.TB
	cluster                  *realkafka.Cluster
	clickhouse               string
	apis, writers, redirects []*chaosServer
	analytics                *chaosServer
	// zombies counts writers that woke up after another had taken their partitions over.
	zombies int
}

func startChaosFleet(t *testing.T) *chaosFleet {
	t.Helper()
	f := &chaosFleet{t: t, cluster: realkafka.StartCluster(t, 3)}
	options := enginetest.Options(t, t.TempDir())
	options.Command = []string{binary(t)}
	f.clickhouse = enginetest.StartWith(t, options).Addr()
	redirect := f.prepare("redirect", "redirect", "redirect")
	f.redirects = []*chaosServer{redirect}
	for i := range 2 {
		f.apis = append(f.apis, f.prepare(fmt.Sprint("api ", i+1), "api", "api"))
		f.writers = append(f.writers, f.prepare("commands", "commands"))
	}
	f.analytics = f.prepare("analytics", "analytics")
	for _, s := range f.all() {
		if s != redirect {
			s.ports["redirect"] = redirect.ports["redirect"]
		}
		s.launch()
	}
	for _, s := range f.all() {
		s.ready()
	}
	return f
}

// prepare makes a process of a role with an empty data directory.
func (f *chaosFleet) prepare(name, role string, listens ...string) *chaosServer {
	f.t.Helper()
	args := []string{"serve", "--roles", role, "--partitions", fmt.Sprint(chaosPartitions), "--replication-factor", "3", "--min-isr", "2"}
	if role == "commands" {
		args = append(args, "--domain", f.domain())
	}
	p := newProcess(f.t, args, append(listens, "admin")...)
	p.ports["kafka"], p.ports["clickhouse"] = f.cluster.Addrs(), f.clickhouse
	return newChaosServer(p, name)
}

func (f *chaosFleet) domain() string { return f.redirects[0].domain() }

func (f *chaosFleet) all() []*chaosServer {
	return append(append(append([]*chaosServer{f.analytics}, f.redirects...), f.apis...), f.writers...)
}

// writing is how many partitions of links a process writes, as it says itself.
func (s *chaosServer) writing() (n int) {
	_, body := s.get(s.ports["admin"], "/status")
	var status struct {
		Writers []struct{ Stream, Mode string }
	}
	if json.Unmarshal([]byte(body), &status) != nil {
		return 0
	}
	for _, w := range status.Writers {
		if w.Stream == "link" && w.Mode == "writing" {
			n++
		}
	}
	return n
}

// writer returns a process that writes, and the other one.
func (f *chaosFleet) writer(r *rand.Rand) (s, other *chaosServer) {
	i := r.IntN(2)
	if f.writers[i].writing() == 0 {
		i = 1 - i
	}
	return f.writers[i], f.writers[1-i]
}

// leader returns the broker that leads a partition at random, once all replicas are in sync: a second broker away would
// only stop all writes.
func (f *chaosFleet) leader(r *rand.Rand) *realkafka.Broker {
	f.t.Helper()
	f.cluster.AwaitInSync()
	topic := []string{"hoplog.events.link", "hoplog.commands.link"}[r.IntN(2)]
	for range 100 {
		if b := f.cluster.Leader(topic, int32(r.IntN(chaosPartitions))); b != nil {
			return b
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatalf("nobody leads %s", topic)
	return nil
}

// zombie freezes a writer until the other has taken its partitions over, and wakes it then.
func (f *chaosFleet) zombie(r *rand.Rand) blow {
	s, other := f.writer(r)
	b := freezing(s, r, 2500*time.Millisecond, 4*time.Second)
	b.what = "freeze writer"
	b.heal = func() {
		if other.writing() == chaosPartitions {
			f.zombies++
		}
		s.thaw()
	}
	return b
}

// The single blows of a round, by name of what they hit.
func (f *chaosFleet) blow(kind string, r *rand.Rand) blow {
	api := f.apis[r.IntN(2)]
	short := func(s *chaosServer) blow { return freezing(s, r, 100*time.Millisecond, 3*time.Second) }
	switch kind {
	case "kill leader":
		return killingBroker(f.leader(r), r)
	case "freeze leader":
		return freezingBroker(f.leader(r), r)
	case "kill writer":
		s, _ := f.writer(r)
		b := killing(s, r)
		b.what = "kill writer"
		return b
	case "zombie":
		return f.zombie(r)
	case "kill api":
		return killing(api, r)
	case "freeze api":
		return short(api)
	case "kill redirect":
		return killing(f.redirects[0], r)
	case "freeze redirect":
		return short(f.redirects[0])
	case "kill analytics":
		return killing(f.analytics, r)
	}
	return short(f.analytics)
}

// chaosCycle is what is done in each round; then it begins again. "two" is two of the others at once.
var chaosCycle = []string{
	"kill leader", "zombie", "two", "kill writer", "freeze leader", "kill api", "kill leader", "kill redirect", "two", "freeze api",
	"kill leader", "kill analytics", "zombie", "freeze redirect", "two", "kill writer", "kill leader", "freeze analytics", "two", "kill api",
}

func (f *chaosFleet) faults(round int, r *rand.Rand) []blow {
	kind := chaosCycle[round%len(chaosCycle)]
	if kind != "two" {
		return []blow{f.blow(kind, r)}
	}
	brokers, processes := []string{"kill leader", "freeze leader"}, []string{"zombie", "kill writer", "kill api", "freeze api", "kill redirect", "kill analytics"}
	first := f.blow(processes[r.IntN(len(processes))], r)
	for {
		second := f.blow(append(brokers, processes...)[r.IntN(len(brokers)+len(processes))], r)
		if second.target != first.target {
			return []blow{first, second}
		}
	}
}

// TestChaosKafka kills and freezes every role and the brokers that lead partitions, under load. Nothing acknowledged is lost,
// one key makes one link, zombies do no harm, and every history of a link is one that the contracts allow.
func TestChaosKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: three brokers take too long for -short")
	}
	rounds := chaosRounds(t, "KAFKA_ROUNDS", shortKafkaRounds)
	seed := chaosSeed(t)
	began := time.Now()
	f := startChaosFleet(t)
	t.Logf("three brokers, ClickHouse and six processes are ready after %s", time.Since(began).Round(100*time.Millisecond))
	run := &chaosRun{t: t, seed: seed, rounds: rounds, pace: chaosPace(), servers: f.all(), faults: f.faults}
	for _, b := range f.cluster.Nodes {
		run.logs = append(run.logs, b.LogFile())
	}
	run.load = newChaosLoad(t, f.domain(), chaosPartitions, f.apis, f.redirects)
	run.run()
	fresh := f.prepare("a fresh api", "api", "api")
	fresh.ports["redirect"] = f.redirects[0].ports["redirect"]
	fresh.launch()
	fresh.ready()
	run.summary(run.judge(fresh))
	t.Logf("%d zombies woke up after their partitions had been taken over", f.zombies)
}
