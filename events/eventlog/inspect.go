package eventlog

import (
	"context"
)

// TopicInfo is a topic as an operator sees it.
type TopicInfo struct {
	Topic      string
	Partitions int
	Replicas   int
	Starts     []int64 // first offset held, by partition
	Ends       []int64 // offset after the last record, by partition
	Records    int64   // sum of Ends − Starts
	Settings   map[string]string
}

// Topics describes the topics of ours that exist, in the order of TopicNames.
func (l *Log) Topics(ctx context.Context) ([]TopicInfo, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	details, err := l.admin.ListTopics(ctx, TopicNames()...)
	if err != nil {
		return nil, topicErr("listing topics", "hoplog", err)
	}
	var out []TopicInfo
	for _, name := range TopicNames() {
		if !details.Has(name) {
			continue
		}
		info, err := l.describe(ctx, name)
		if err != nil {
			return nil, err
		}
		info.Partitions = len(details[name].Partitions)
		info.Replicas = details[name].Partitions.NumReplicas()
		out = append(out, info)
	}
	return out, nil
}

func (l *Log) describe(ctx context.Context, topic string) (TopicInfo, error) {
	info := TopicInfo{Topic: topic, Settings: make(map[string]string)}
	var err error
	if info.Starts, err = l.Starts(ctx, topic); err != nil {
		return info, err
	}
	if info.Ends, err = l.Ends(ctx, topic); err != nil {
		return info, err
	}
	for p := range info.Ends {
		info.Records += info.Ends[p] - info.Starts[p]
	}
	all, err := l.topicConfigs(ctx, topic)
	if err != nil {
		return info, err
	}
	for _, s := range (topicSpec{name: topic}).settings() {
		if v, ok := all[s.key]; ok {
			info.Settings[s.key] = v
		}
	}
	return info, nil
}
