package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Membership is one member of a consumer group that is used for assignment only: nothing is fetched, no offset is
// committed. It says who should work on which partitions; that nobody else does is the chain rule's business.
type Membership struct {
	log    *Log
	group  string
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
	status connStatus
	once   sync.Once
}

const (
	// kafkaMinSession is what an unchanged Kafka demands at least (group.min.session.timeout.ms).
	kafkaMinSession = 6 * time.Second
	// rebalanceTimeout is how long a member may take to let go of its partitions before they are given away regardless.
	rebalanceTimeout = 10 * time.Second
	minSessionConfig = "group.min.session.timeout.ms"
)

// Join enters the group. onAssigned gets the partitions that are newly ours, onLost those that no longer are: taken away
// in a rebalance (they are given to another member only after onLost returned), lost because we were silent too long,
// or given up by Close. Both are called from one goroutine, one at a time. A partition that stays is not mentioned.
//
// Membership is dynamic: a member of a previous life is forgotten after the session timeout (see Config). The embedded
// broker forgets all members when its process ends, so nobody waits there.
//
// ctx bounds the look-ups before joining. The group itself is joined in the background and rejoined for ever.
func (l *Log) Join(ctx context.Context, group string, topics []string, onAssigned, onLost func(topic string, partitions []int32)) (*Membership, error) {
	session, err := l.sessionTimeout(ctx)
	if err != nil {
		return nil, fmt.Errorf("joining group %s: %w", group, err)
	}
	m := &Membership{log: l, group: group, done: make(chan struct{})}
	each := func(call func(string, []int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			for topic, partitions := range moved {
				if len(partitions) > 0 {
					call(topic, partitions)
				}
			}
		}
	}
	m.client, err = l.newClient(
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(session/6),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		kgo.OnPartitionsAssigned(each(onAssigned)),
		kgo.OnPartitionsRevoked(each(onLost)),
		kgo.OnPartitionsLost(each(onLost)),
	)
	if err != nil {
		return nil, err
	}
	m.client.PauseFetchTopics(topics...)
	life, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.watch(life)
	return m, nil
}

// watch collects the client's errors: with every topic paused a poll returns nothing else.
func (m *Membership) watch(life context.Context) {
	defer close(m.done)
	for life.Err() == nil {
		for _, e := range m.client.PollFetches(life).Errors() {
			var session *kgo.ErrGroupSession
			if errors.As(e.Err, &session) {
				m.status.set(fmt.Errorf("group %s: %w", m.group, session.Err))
				m.log.logger.Warn("group session lost", "group", m.group, "error", session.Err)
			}
		}
	}
}

// sessionTimeout is what was configured, or what the broker demands if that is more.
func (l *Log) sessionTimeout(ctx context.Context) (time.Duration, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	meta, err := l.admin.BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking for the cluster: %w", err)
	}
	if len(meta.Brokers) == 0 {
		return 0, errors.New("no broker answers")
	}
	least := l.leastSession(ctx, meta.Brokers)
	if l.cfg.SessionTimeout >= least {
		return l.cfg.SessionTimeout, nil
	}
	l.logger.Warn("broker demands a longer session: partitions of a killed process are taken over later",
		"setting", minSessionConfig, "wanted", l.cfg.SessionTimeout, "demanded", least)
	return least, nil
}

// leastSession asks the brokers, until one answers, how short a session may be. One of them may be away.
func (l *Log) leastSession(ctx context.Context, brokers kadm.BrokerDetails) time.Duration {
	for _, broker := range brokers {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		described, err := l.admin.DescribeBrokerConfigs(one, broker.NodeID)
		cancel()
		if err != nil || len(described) == 0 {
			continue
		}
		for _, c := range described[0].Configs {
			if ms, err := strconv.Atoi(c.MaybeValue()); c.Key == minSessionConfig && err == nil {
				return time.Duration(ms) * time.Millisecond
			}
		}
	}
	return kafkaMinSession // if we are not allowed to ask
}

// LastError is the latest loss of the group session, nil if there was none.
func (m *Membership) LastError() error { return m.status.get() }

// Close gives up the partitions (onLost is called for them), leaves the group, so that others take over at once, and ends.
func (m *Membership) Close() {
	m.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), rebalanceTimeout)
		defer cancel()
		if err := m.client.LeaveGroupContext(ctx); err != nil {
			m.log.logger.Warn("leaving group failed", "group", m.group, "error", err)
		}
		m.stop()
		m.client.Close()
		<-m.done
	})
}
