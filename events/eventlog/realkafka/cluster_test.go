package realkafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// A record that was acknowledged by a leader is there after that leader was killed, and all replicas are in sync again after
// it came back.
func TestClusterSurvivesItsLeader(t *testing.T) {
	began := time.Now()
	c := realkafka.StartCluster(t, 3)
	t.Logf("three brokers after %s", time.Since(began).Round(100*time.Millisecond))
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Addrs(), ",")...), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2*time.Second), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce := func(value string) {
		t.Helper()
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("before")
	leader := c.Leader("t", 0)
	if leader == nil {
		t.Fatal("no leader")
	}
	leader.Kill()
	killed := time.Now()
	produce("meanwhile")
	t.Logf("appends go on %s after the leader was killed", time.Since(killed).Round(10*time.Millisecond))
	if other := c.Leader("t", 0); other == nil || other == leader {
		t.Errorf("the leader is %v, was %v", other, leader)
	}
	killed = time.Now()
	leader.Restart()
	c.AwaitInSync()
	t.Logf("all in sync %s after the restart", time.Since(killed).Round(10*time.Millisecond))
	var got []string
	for len(got) < 2 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if strings.Join(got, " ") != "before meanwhile" {
		t.Errorf("the log holds %v", got)
	}
}
