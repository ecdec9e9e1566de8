package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerConfig says who reads what.
type ConsumerConfig struct {
	Group, Topic string
	// AtEnd: a group that has no position begins where the topic ends now. Else it begins where the topic does. The end is
	// written down before the first record is read, so that whoever is killed before its first commit goes on from there.
	AtEnd bool
	// OnAssigned gets the partitions that are newly ours, OnLost those that no longer are. While ours is true they are not given
	// to anybody else before OnLost returns, and Commit still counts; else another member may have them already. OnLost has 10 s.
	OnAssigned func(partitions []int32)
	OnLost     func(partitions []int32, ours bool)
}

// Consumer is a member of a consumer group that reads its partitions and keeps its positions with the group: for side
// effects, which keep no state of their own to put a position beside. State never goes by it. One goroutine polls;
// everything else may be called from others.
type Consumer struct {
	cfg    ConsumerConfig
	client *kgo.Client
	abort  context.CancelFunc // ends requests that are under way
	status connStatus
	once   sync.Once
}

// consumerMaxWait is how long a broker may hold a fetch that finds nothing: one that is under way when a partition is resumed
// delays it by as much.
const consumerMaxWait = 200 * time.Millisecond

// Consume joins the group. ctx bounds the look-ups before joining; the group is joined in the background and rejoined for ever.
func (l *Log) Consume(ctx context.Context, cfg ConsumerConfig) (*Consumer, error) {
	if cfg.AtEnd {
		if err := l.beginAtEnd(ctx, cfg.Group, cfg.Topic); err != nil {
			return nil, fmt.Errorf("beginning at the end of %s: %w", cfg.Topic, err)
		}
	}
	session, err := l.sessionTimeout(ctx)
	if err != nil {
		return nil, fmt.Errorf("joining group %s: %w", cfg.Group, err)
	}
	c := &Consumer{cfg: cfg}
	var life context.Context
	life, c.abort = context.WithCancel(context.Background())
	moved := func(call func([]int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			if list := moved[cfg.Topic]; len(list) > 0 {
				call(list)
			}
		}
	}
	c.client, err = l.newClient(
		kgo.WithContext(life),
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(session/6),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // what was polled reaches its queue before its partition can be lost
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // retention was faster: what is left is still to be done
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(consumerMaxWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.WithHooks(&c.status),
		kgo.OnPartitionsAssigned(moved(cfg.OnAssigned)),
		kgo.OnPartitionsRevoked(moved(func(p []int32) { cfg.OnLost(p, true) })),
		kgo.OnPartitionsLost(moved(func(p []int32) { cfg.OnLost(p, false) })),
	)
	if err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}

// Poll waits for records and hands at most max of them to each, partition by partition in offset order. Partitions are neither
// assigned nor lost meanwhile, so each must not block. It returns ctx's error, or ErrClosed; trouble with brokers is retried
// inside and shown by LastError.
func (c *Consumer) Poll(ctx context.Context, max int, each func(Batch)) error {
	fetches := c.client.PollRecords(ctx, max)
	defer c.client.AllowRebalance()
	if fetches.IsClientClosed() {
		return fmt.Errorf("consumer of %s: %w", c.cfg.Topic, ErrClosed)
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if p.Err != nil && !errors.Is(p.Err, context.Canceled) && !errors.Is(p.Err, context.DeadlineExceeded) {
			c.status.set(fmt.Errorf("reading %s/%d: %w", c.cfg.Topic, p.Partition, p.Err))
		}
		if len(p.Records) > 0 {
			c.status.set(nil)
			next := p.Records[len(p.Records)-1].Offset + 1
			each(Batch{Topic: c.cfg.Topic, Partition: p.Partition, Records: fromKgo(p.Records), Behind: p.HighWatermark - next})
		}
	})
	return ctx.Err()
}

// Pause stops fetching a partition, Resume goes on.
func (c *Consumer) Pause(partition int32) { c.client.PauseFetchPartitions(c.only(partition)) }

// Resume ends a Pause.
func (c *Consumer) Resume(partition int32) { c.client.ResumeFetchPartitions(c.only(partition)) }

func (c *Consumer) only(partition int32) map[string][]int32 {
	return map[string][]int32{c.cfg.Topic: {partition}}
}

// Commit writes down for the group that everything before these offsets (partition → next) is done. A group whose members
// have changed refuses.
func (c *Consumer) Commit(ctx context.Context, next map[int32]int64) error {
	if len(next) == 0 {
		return nil
	}
	offsets := make(map[int32]kgo.EpochOffset, len(next))
	for p, o := range next {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: o}
	}
	var all error
	c.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{c.cfg.Topic: offsets}, commitDone(&all))
	if all != nil {
		return fmt.Errorf("committing positions of %s: %w", c.cfg.Group, all)
	}
	return nil
}

// LastError is the latest trouble with the brokers, nil since the last success.
func (c *Consumer) LastError() error { return c.status.get() }

// Close gives up the partitions (OnLost is called for them), leaves the group and ends. No Poll may be under way. ctx bounds all
// but OnLost: without an answer the group notices by itself, a session later.
func (c *Consumer) Close(ctx context.Context) {
	c.once.Do(func() {
		c.client.AllowRebalance()
		if err := c.client.LeaveGroupContext(ctx); err != nil {
			c.status.set(fmt.Errorf("leaving group %s: %w", c.cfg.Group, err))
			c.abort() // a join that no broker answers would be waited for
		}
		c.client.CloseAllowingRebalance()
		c.abort()
	})
}

// beginAtEnd gives the partitions that the group has no position for that of their end. While it tries, another member may
// have done the same, and the group then takes no positions from outside.
func (l *Log) beginAtEnd(ctx context.Context, group, topic string) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for {
		have, err := l.GroupPositions(ctx, group, topic)
		if err != nil {
			return err
		}
		ends, err := l.Ends(ctx, topic)
		if err != nil {
			return err
		}
		begin := map[int32]int64{}
		for p, end := range ends {
			if p >= len(have) || have[p] < 0 {
				begin[int32(p)] = end
			}
		}
		if len(begin) == 0 {
			return nil
		}
		if err = l.SetGroupPositions(ctx, group, topic, begin); err == nil {
			l.logger.Warn("a new consumer group begins at the end of its topic", "group", group, "topic", topic, "partitions", len(begin))
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// GroupPositions returns the next offset that a group has written down for each partition of a topic, -1 where there is none.
func (l *Log) GroupPositions(ctx context.Context, group, topic string) ([]int64, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	n, err := l.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make([]int64, n)
	err = retry(ctx, func() error {
		found, err := l.admin.FetchOffsets(ctx, group)
		if errors.Is(err, kerr.GroupIDNotFound) {
			found, err = nil, nil
		}
		if err != nil {
			return err
		}
		for p := range out {
			out[p] = -1
			if o, ok := found.Lookup(topic, int32(p)); ok && o.Err == nil {
				out[p] = o.At
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking for the positions of group %s: %w", group, err)
	}
	return out, nil
}

// SetGroupPositions writes down positions (partition → next offset) for a group that has no members now; one that has refuses.
func (l *Log) SetGroupPositions(ctx context.Context, group, topic string, next map[int32]int64) error {
	offsets := make(kadm.Offsets)
	for p, o := range next {
		offsets.AddOffset(topic, p, o, -1)
	}
	done, err := l.admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return fmt.Errorf("setting positions of group %s: %w", group, err)
	}
	return nil
}

// commitDone gathers what the brokers say to a commit.
func commitDone(all *error) func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {
	return func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			*all = err
			return
		}
		for _, t := range response.Topics {
			for _, p := range t.Partitions {
				*all = errors.Join(*all, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
}
