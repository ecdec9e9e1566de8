package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hoplog/hoplog/events/eventlog"
)

// rawMember speaks the classic group protocol step by step, so that a test can stop between two of them.
type rawMember struct {
	t      *testing.T
	client *kgo.Client
	group  string
	id     string
}

func newRawMember(t *testing.T, addr, group string) *rawMember {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	m := &rawMember{t: t, client: client, group: group}
	answer, err := m.join()
	if err != nil || answer.MemberID == "" {
		t.Fatalf("asking for a member id: %v, %v", answer, err)
	}
	m.id = answer.MemberID
	return m
}

func (m *rawMember) join() (*kmsg.JoinGroupResponse, error) {
	request := kmsg.NewPtrJoinGroupRequest()
	request.Group, request.MemberID, request.ProtocolType = m.group, m.id, "test"
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = 2000, 5000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "test"
	request.Protocols = append(request.Protocols, protocol)
	return request.RequestWith(context.Background(), m.client)
}

// lead joins as leader and completes the rebalance; it returns how many members it saw.
func (m *rawMember) lead() (generation int32, members int) {
	m.t.Helper()
	joined, err := m.join()
	if err != nil || joined.ErrorCode != 0 || joined.LeaderID != m.id {
		m.t.Fatalf("joining as leader: %+v, %v", joined, err)
	}
	request := kmsg.NewPtrSyncGroupRequest()
	request.Group, request.MemberID, request.Generation = m.group, m.id, joined.Generation
	synced, err := request.RequestWith(context.Background(), m.client)
	if err != nil || synced.ErrorCode != 0 {
		m.t.Fatalf("syncing: %+v, %v", synced, err)
	}
	return joined.Generation, len(joined.Members)
}

func (m *rawMember) heartbeat(generation int32) error {
	request := kmsg.NewPtrHeartbeatRequest()
	request.Group, request.MemberID, request.Generation = m.group, m.id, generation
	answer, err := request.RequestWith(context.Background(), m.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// TestEmbeddedForgetsWhoDiedJoining: a member whose process ends while it waits for the answer to its first join keeps nothing.
// The broker forgets it by itself if it happens not to notice that the connection is gone, hence several groups.
func TestEmbeddedForgetsWhoDiedJoining(t *testing.T) {
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			diesJoining(t, e.Addr(), fmt.Sprint("group", i))
		})
	}
}

func diesJoining(t *testing.T, addr, group string) {
	// given a leader, and a second member that dies while it waits for the leader to join again
	leader := newRawMember(t, addr, group)
	if _, members := leader.lead(); members != 1 {
		t.Fatalf("%d members", members)
	}
	second := newRawMember(t, addr, group)
	waiting := make(chan error)
	go func() {
		_, err := second.join()
		waiting <- err
	}()
	time.Sleep(100 * time.Millisecond)
	second.client.Close()
	if err := <-waiting; err == nil {
		t.Fatal("the second member did not wait")
	}
	// when the leader joins again, then the dead one is a member
	generation, members := leader.lead()
	if members != 2 {
		t.Fatalf("the leader sees %d members, want 2", members)
	}
	// then it is removed soon, while the leader, which gives signs of life, stays
	took := eventually(t, "the dead member is removed", func() bool {
		err := leader.heartbeat(generation)
		if err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
			t.Fatalf("the leader's heartbeat: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
		return err != nil
	})
	if _, members := leader.lead(); members != 1 {
		t.Errorf("%d members are left, want 1", members)
	}
	t.Logf("removed after %v", took)
}
