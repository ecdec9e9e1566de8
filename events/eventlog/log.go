package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Log is a handle on the brokers: one shared connection for administration and look-ups. Appenders, tails and
// memberships made from it have connections of their own and outlive nothing but themselves.
type Log struct {
	cfg    Config
	logger *slog.Logger
	said   *clientLogger
	client *kgo.Client
	admin  *kadm.Client
	status connStatus
}

// adminDeadline bounds a look-up whose context has no deadline.
const adminDeadline = 10 * time.Second

// Open checks the configuration and makes the handle. It sends nothing yet; see WaitReady.
func Open(cfg Config, logger *slog.Logger) (*Log, error) {
	cfg = cfg.withDefaults()
	l := &Log{cfg: cfg, logger: logger, said: newClientLogger(logger)}
	if _, err := cfg.compression(); err != nil {
		return nil, err
	}
	client, err := l.newClient(kgo.WithHooks(&l.status))
	if err != nil {
		return nil, err
	}
	l.client, l.admin = client, kadm.NewClient(client)
	return l, nil
}

// Close ends the shared connection.
func (l *Log) Close() { l.client.Close() }

func (l *Log) newClient(extra ...kgo.Opt) (*kgo.Client, error) {
	opts, err := l.cfg.clientOptions(l.said)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("making kafka client: %w", err)
	}
	return client, nil
}

// WaitReady returns when metadata names at least that many brokers, or with the last reason when ctx is done. An open
// port is not enough: a broker listens before it can answer.
func (l *Log) WaitReady(ctx context.Context, brokers int) error {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second) // one that hangs must not take all the time
		found, err := l.admin.ListBrokers(try)
		cancel()
		if err == nil && len(found) >= brokers {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%d of %d brokers answer", len(found), brokers)
		}
		if why := l.status.get(); why != nil {
			err = why // the client retries for ever and knows why; the attempt only knows that its time ran out
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for kafka at %v: %w", l.cfg.Brokers, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Starts returns the first offset that each partition still holds, indexed by partition.
func (l *Log) Starts(ctx context.Context, topic string) ([]int64, error) {
	return l.offsets(ctx, topic, l.admin.ListStartOffsets)
}

// Ends returns the offset after the last record of each partition, indexed by partition: the log end as the leader has
// it (ListOffsets latest, read uncommitted), never a fetch's high watermark.
func (l *Log) Ends(ctx context.Context, topic string) ([]int64, error) {
	return l.offsets(ctx, topic, l.admin.ListEndOffsets)
}

// Partitions returns how many partitions the topic has.
func (l *Log) Partitions(ctx context.Context, topic string) (int, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var n int
	err := retry(ctx, func() error {
		details, err := l.admin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if err := details[topic].Err; err != nil {
			return err
		}
		n = len(details[topic].Partitions)
		return nil
	})
	return n, topicErr("listing partitions", topic, err)
}

type listOffsets func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

func (l *Log) offsets(ctx context.Context, topic string, list listOffsets) ([]int64, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var out []int64
	err := retry(ctx, func() error {
		listed, err := list(ctx, topic)
		if err != nil {
			return err
		}
		out, err = perPartition(listed[topic])
		return err
	})
	return out, topicErr("listing offsets", topic, err)
}

func perPartition(listed map[int32]kadm.ListedOffset) ([]int64, error) {
	if len(listed) == 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	out := make([]int64, len(listed))
	for p, o := range listed {
		if o.Err != nil {
			return nil, o.Err
		}
		if int(p) >= len(out) {
			return nil, fmt.Errorf("partition %d is missing", len(out)-1)
		}
		out[p] = o.Offset
	}
	return out, nil
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, adminDeadline)
}

// retry repeats what failed for a reason that may pass, such as a leader election or a lost connection, until ctx is
// done. What a broker says for good, among that an unknown topic, ends it.
func retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func final(err error) bool {
	var said *kerr.Error
	return errors.As(err, &said) && (!said.Retriable || errors.Is(err, kerr.UnknownTopicOrPartition))
}

func topicErr(doing, topic string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("%s of %s: %w", doing, topic, ErrNoTopic)
	}
	return fmt.Errorf("%s of %s: %w", doing, topic, err)
}
