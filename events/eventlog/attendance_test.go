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
)

// rawMember speaks the classic group protocol step by step, so that a test can stop between two of them.
type rawMember struct {
	t      *testing.T
	client *kgo.Client
	group  string
	id     string
	// rebalance is how long the group waits for members by itself.
	rebalance time.Duration
}

func newRawMember(t *testing.T, addr, group string) *rawMember {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	m := &rawMember{t: t, client: client, group: group, rebalance: 5 * time.Second}
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
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = 2000, int32(m.rebalance.Milliseconds())
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
	if err := m.sync(joined.Generation); err != nil {
		m.t.Fatalf("syncing: %v", err)
	}
	return joined.Generation, len(joined.Members)
}

func (m *rawMember) sync(generation int32) error {
	request := kmsg.NewPtrSyncGroupRequest()
	request.Group, request.MemberID, request.Generation = m.group, m.id, generation
	answer, err := request.RequestWith(context.Background(), m.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// dieJoining joins in the background, and dies once it waits for the answer.
func (m *rawMember) dieJoining() {
	m.t.Helper()
	waiting := make(chan error)
	go func() {
		_, err := m.join()
		waiting <- err
	}()
	eventually(m.t, "the group waits for the others", m.rebalancing)
	m.client.Close()
	if err := <-waiting; err == nil {
		m.t.Fatal("the member did not wait")
	}
}

// rebalancing reports whether the group waits for members to join again.
func (m *rawMember) rebalancing() bool {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{m.group}
	answer, err := request.RequestWith(context.Background(), m.client)
	return err == nil && len(answer.Groups) == 1 && answer.Groups[0].State == "PreparingRebalance"
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
	e := embeddedIn(t, t.TempDir())
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
	newRawMember(t, addr, group).dieJoining()
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

// TestEmbeddedForgetsWhoDiedBeforeLeading: a group does not wait for a rebalance timeout, which others choose, for a member that
// died joining, whether it was made the leader or not: that is by chance, hence several groups.
func TestEmbeddedForgetsWhoDiedBeforeLeading(t *testing.T) {
	e := embeddedIn(t, t.TempDir())
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			group := fmt.Sprint("group", i)
			member := func() *rawMember {
				m := newRawMember(t, e.Addr(), group)
				m.rebalance = time.Minute
				return m
			}
			// given a leader and a second member, that waits for it: both die
			leader := member()
			leader.lead()
			member().dieJoining()
			leader.client.Close()
			// then a third is alone in the group soon
			third := member()
			took := eventually(t, "the third is alone", func() bool { return third.alone() })
			t.Logf("alone after %v", took)
		})
	}
}

// alone joins, gives signs of life while it may stay, and reports whether it was the only member.
func (m *rawMember) alone() bool {
	joined, err := m.join()
	if err != nil || joined.ErrorCode != 0 {
		m.t.Fatalf("joining: %+v, %v", joined, err)
	}
	for err = m.sync(joined.Generation); err == nil && len(joined.Members) != 1; err = m.heartbeat(joined.Generation) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
		m.t.Fatalf("staying in the group: %v", err)
	}
	return err == nil
}

// TestEmbeddedAnswersWhoWaits: who waits for the answer to a join for longer than its session is answered, and stays.
func TestEmbeddedAnswersWhoWaits(t *testing.T) {
	e := embeddedIn(t, t.TempDir())
	leader, second, third := newRawMember(t, e.Addr(), "group"), newRawMember(t, e.Addr(), "group"), newRawMember(t, e.Addr(), "group")
	for _, m := range []*rawMember{leader, second, third} {
		m.rebalance = time.Minute
	}
	type answer struct {
		joined *kmsg.JoinGroupResponse
		err    error
	}
	join := func(m *rawMember) chan answer {
		answered := make(chan answer, 1)
		go func() {
			joined, err := m.join()
			answered <- answer{joined, err}
		}()
		time.Sleep(100 * time.Millisecond)
		return answered
	}
	generationOf := func(answered chan answer) (generation int32) {
		t.Helper()
		a := <-answered
		if a.err != nil || a.joined.ErrorCode != 0 {
			t.Fatalf("joining: %+v, %v", a.joined, a.err)
		}
		return a.joined.Generation
	}
	// given a leader and a second member, that has a session
	leader.lead()
	waits := join(second)
	generation, _ := leader.lead()
	if err := second.sync(generationOf(waits)); err != nil {
		t.Fatal(err)
	}
	// when a third joins, and the second joins again, and the leader takes longer than a session to do so
	alsoWaits := join(third)
	waits = join(second)
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		if err := leader.heartbeat(generation); !errors.Is(err, kerr.RebalanceInProgress) {
			t.Fatalf("the leader's heartbeat: %v", err)
		}
	}
	// then all three are members
	if _, members := leader.lead(); members != 3 {
		t.Errorf("the leader sees %d members, want 3", members)
	}
	for _, answered := range []chan answer{waits, alsoWaits} {
		generationOf(answered)
	}
}
