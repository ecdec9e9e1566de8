package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// EnsureTopics makes the topics that are missing, with every setting that matters said explicitly, and compares those
// that exist. A difference is an ErrTopicSettings; nothing that exists is ever changed.
func (l *Log) EnsureTopics(ctx context.Context, plan TopicPlan) error {
	if plan.Partitions < 1 || plan.Partitions > 4096 || plan.Partitions&(plan.Partitions-1) != 0 {
		return fmt.Errorf("%d partitions: want a power of two from 1 to 4096", plan.Partitions)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	meta, err := l.admin.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("asking for the cluster: %w", err)
	}
	specs := plan.specs()
	if meta.Cluster == embeddedClusterID {
		specs = forEmbedded(specs)
	}
	if err := l.createMissing(ctx, specs); err != nil {
		return err
	}
	return l.verifyTopics(ctx, specs)
}

// forEmbedded adapts the plan to the embedded broker: one replica, and no retention by the broker itself, which would
// start an idle topic's offsets again at 0 (see retention.go, which does it safely).
func forEmbedded(specs []topicSpec) []topicSpec {
	for i := range specs {
		specs[i].replicas, specs[i].minISR, specs[i].retention = 1, 1, forever
	}
	return specs
}

func (l *Log) createMissing(ctx context.Context, specs []topicSpec) error {
	for _, s := range specs {
		configs := make(map[string]*string)
		for _, c := range s.settings() {
			configs[c.key] = &c.value
		}
		err := retry(ctx, func() error {
			existing, err := l.admin.ListTopics(ctx, s.name)
			if err != nil || existing.Has(s.name) {
				return err
			}
			_, err = l.admin.CreateTopic(ctx, int32(s.partitions), int16(s.replicas), configs, s.name)
			if err == nil {
				l.logger.Info("topic created", "topic", s.name, "partitions", s.partitions, "replicas", s.replicas)
			}
			return err
		})
		// Another process may have been faster; whether it made the same topic is verified next.
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("creating topic %s: %w", s.name, err)
		}
	}
	return nil
}

func (l *Log) verifyTopics(ctx context.Context, specs []topicSpec) error {
	for _, s := range specs {
		if err := l.awaitLeaders(ctx, s); err != nil {
			return err
		}
		found, err := l.awaitConfigs(ctx, s.name)
		if err != nil {
			return err
		}
		for _, want := range s.settings() {
			if have, ok := found[want.key]; !ok || !want.matches(have) {
				if !ok {
					have = "nothing"
				}
				return &TopicSettingsError{Topic: s.name, Setting: want.key, Want: want.value, Found: have}
			}
		}
	}
	return nil
}

// awaitLeaders waits until every partition of the topic can be used, and compares the numbers. A new topic's metadata
// takes a moment to arrive at every broker.
func (l *Log) awaitLeaders(ctx context.Context, s topicSpec) error {
	for {
		details, err := l.admin.ListTopics(ctx, s.name)
		if err == nil {
			err = details[s.name].Err
		}
		if err == nil {
			err = s.compare(details[s.name])
		}
		if err == nil || errors.Is(err, ErrTopicSettings) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for topic %s: %w", s.name, errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitConfigs reads the settings of a topic that exists. Another broker than the one that told of it may be asked, which has
// not heard of a new topic yet.
func (l *Log) awaitConfigs(ctx context.Context, topic string) (map[string]string, error) {
	for {
		found, err := l.topicConfigs(ctx, topic)
		if !errors.Is(err, ErrNoTopic) {
			return found, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s topicSpec) compare(d kadm.TopicDetail) error {
	if n := len(d.Partitions); n != s.partitions {
		return &TopicSettingsError{s.name, "partitions", strconv.Itoa(s.partitions), strconv.Itoa(n)}
	}
	for _, p := range d.Partitions {
		if p.Err != nil {
			return p.Err
		}
		if n := len(p.Replicas); n < s.replicas {
			return &TopicSettingsError{s.name, "replication factor", strconv.Itoa(s.replicas), strconv.Itoa(n)}
		}
	}
	return nil
}

func (l *Log) topicConfigs(ctx context.Context, topic string) (map[string]string, error) {
	out := make(map[string]string)
	err := retry(ctx, func() error {
		described, err := l.admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		found, err := described.On(topic, nil)
		if err == nil {
			err = found.Err
		}
		if err != nil {
			return err
		}
		collectConfigs(out, found.Configs)
		return nil
	})
	return out, topicErr("describing settings", topic, err)
}

// collectConfigs keeps the value that counts: what was set for the topic itself before what it inherits.
func collectConfigs(out map[string]string, configs []kadm.Config) {
	source := make(map[string]int)
	for _, c := range configs {
		rank := sourceRank(c)
		if had, ok := source[c.Key]; c.Value != nil && (!ok || rank >= had) {
			out[c.Key], source[c.Key] = *c.Value, rank
		}
	}
}

func sourceRank(c kadm.Config) int {
	switch c.Source.String() {
	case "DYNAMIC_TOPIC_CONFIG":
		return 2
	case "DEFAULT_CONFIG":
		return 0
	}
	return 1
}
