package realkafka

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds waiting for a cluster. A busy machine takes a minute to start three brokers.
const patience = 3 * time.Minute

// Cluster is a number of brokers, each a controller too, that keep their internal topics on as many replicas as there are
// brokers, with all but one of them in sync.
type Cluster struct {
	t      testing.TB
	Nodes  []*Broker
	client *kgo.Client
}

// StartCluster starts a cluster of n brokers (3: RF 3, min ISR 2) and waits until they know each other. The test is skipped
// when Java or the jars are missing.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var voters []string
	for node := 1; node <= n; node++ {
		b := newBroker(t, node)
		b.extra = clusterSettings(n)
		c.Nodes, voters = append(c.Nodes, b), append(voters, b.vote())
	}
	var preparing sync.WaitGroup
	for _, b := range c.Nodes {
		b.voters = strings.Join(voters, ",")
		preparing.Go(b.prepare)
	}
	preparing.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, b := range c.Nodes {
		b.Launch()
	}
	c.connect()
	c.await("all brokers know each other", patience, func(ctx context.Context) error {
		meta, err := c.metadata(ctx)
		if err == nil && len(meta.Brokers) < n {
			err = fmt.Errorf("%d of %d brokers", len(meta.Brokers), n)
		}
		return err
	})
	return c
}

// clusterSettings differ from those of a lone broker: replicas, and controllers that miss a killed one soon.
func clusterSettings(n int) []string {
	settings := []string{
		"controller.quorum.election.timeout.ms=500",
		"controller.quorum.fetch.timeout.ms=1000",
		"controller.quorum.election.backoff.max.ms=500",
		"replica.lag.time.max.ms=5000",
		"unclean.leader.election.enable=false",
	}
	for name, value := range map[string]int{
		"default.replication.factor": n, "min.insync.replicas": n - 1,
		"offsets.topic.replication.factor":         n,
		"transaction.state.log.replication.factor": n, "transaction.state.log.min.isr": n - 1,
		"share.coordinator.state.topic.replication.factor": n, "share.coordinator.state.topic.min.isr": n - 1,
	} {
		settings = append(settings, fmt.Sprintf("%s=%d", name, value))
	}
	return settings
}

func (c *Cluster) connect() {
	c.t.Helper()
	var err error
	c.client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Addrs(), ",")...), kgo.DialTimeout(time.Second),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.RetryTimeout(3*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		c.t.Fatalf("connecting to the cluster: %v", err)
	}
	c.t.Cleanup(c.client.Close)
}

// metadata asks a broker for all that it knows. The client's own answer may be an old one.
func (c *Cluster) metadata(ctx context.Context) (*kmsg.MetadataResponse, error) {
	return kmsg.NewPtrMetadataRequest().RequestWith(ctx, c.client)
}

// Addrs are the plain listeners of all brokers, host:port, comma separated.
func (c *Cluster) Addrs() string {
	addrs := make([]string, len(c.Nodes))
	for i, b := range c.Nodes {
		addrs[i] = b.Addr()
	}
	return strings.Join(addrs, ",")
}

// Leader returns the broker that leads a partition, nil while none does.
func (c *Cluster) Leader(topic string, partition int32) *Broker {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all, err := c.metadata(ctx)
	if err != nil {
		c.t.Logf("asking for the leader of %s/%d: %v", topic, partition, err)
		return nil
	}
	for _, found := range all.Topics {
		for _, p := range found.Partitions {
			for _, b := range c.Nodes {
				if *found.Topic == topic && p.Partition == partition && int(p.Leader) == b.node {
					return b
				}
			}
		}
	}
	return nil
}

// AwaitInSync waits until every replica of every partition is in sync.
func (c *Cluster) AwaitInSync() {
	c.t.Helper()
	c.await("all replicas are in sync", patience, func(ctx context.Context) error {
		all, err := c.metadata(ctx) // internal topics too
		if err != nil {
			return err
		}
		for _, topic := range all.Topics {
			for _, p := range topic.Partitions {
				if len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("%s/%d has %v of %v in sync", *topic.Topic, p.Partition, p.ISR, p.Replicas)
				}
			}
		}
		return nil
	})
}

func (c *Cluster) await(what string, within time.Duration, try func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("not within %s: %s: %v", within, what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// String names the broker in reports.
func (b *Broker) String() string { return fmt.Sprintf("broker %d", b.node) }
