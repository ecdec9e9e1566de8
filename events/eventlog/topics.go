package eventlog

import (
	"strconv"
	"time"
)

// The topics, all of them.
const (
	CommandsLink    = "hoplog.commands.link"    // link commands, by bucket
	CommandsControl = "hoplog.commands.control" // control commands, one partition
	EventsLink      = "hoplog.events.link"      // link envelopes, kept for ever
	EventsControl   = "hoplog.events.control"   // control envelopes, kept for ever
	Pulse           = "hoplog.pulse"            // heartbeats, one partition
	Clicks          = "hoplog.clicks"           // click blocks
	Sink            = "hoplog.sink"             // the click sink's intents, kept for ever
	EffectsDead     = "hoplog.effects.dead"     // effects that were given up, one partition
	EffectsRetry    = "hoplog.effects.retry"    // what is to be done beside events: given up ones that an operator wants tried again, links that lists concern; one partition
)

// TopicNames lists the topics in the order in which they are shown.
func TopicNames() []string {
	return []string{CommandsLink, CommandsControl, EventsLink, EventsControl, Pulse, Clicks, Sink, EffectsDead, EffectsRetry}
}

// TopicPlan is what a deployment may choose about the topics. It is fixed when they are made: another number of
// partitions is a migration to new topics.
type TopicPlan struct {
	Partitions        int           // of the links', clicks' and sink's topics: a power of two up to 4096
	ReplicationFactor int           // default 1; the embedded broker has one
	MinISR            int           // default 1
	ClickRetention    time.Duration // default 30 days
}

// Largest record batch of a topic, in bytes. A command is a request body of at most 1 MiB and what was added to it; its
// envelope may be four times that.
const (
	MaxCommandBytes = 2 << 20
	MaxEventBytes   = 5 << 20
	maxClickBytes   = 2 << 20
	maxSmallBytes   = 1 << 20
)

const (
	commandRetention = 7 * 24 * time.Hour
	pulseRetention   = time.Hour
	clickRetention   = 30 * 24 * time.Hour
	deadRetention    = 30 * 24 * time.Hour
	retryRetention   = 7 * 24 * time.Hour
	forever          = time.Duration(-1)
)

// topicSpec is what one topic has to look like.
type topicSpec struct {
	name       string
	partitions int
	replicas   int
	minISR     int
	retention  time.Duration // forever, or how long records are promised to stay
	maxBytes   int
}

func (p TopicPlan) withDefaults() TopicPlan {
	setDefault(&p.ReplicationFactor, 1)
	setDefault(&p.MinISR, 1)
	setDefault(&p.ClickRetention, clickRetention)
	return p
}

func (p TopicPlan) specs() []topicSpec {
	p = p.withDefaults()
	spec := func(name string, partitions int, retention time.Duration, maxBytes int) topicSpec {
		return topicSpec{name, partitions, p.ReplicationFactor, p.MinISR, retention, maxBytes}
	}
	return []topicSpec{
		spec(CommandsLink, p.Partitions, commandRetention, MaxCommandBytes),
		spec(CommandsControl, 1, commandRetention, MaxCommandBytes),
		spec(EventsLink, p.Partitions, forever, MaxEventBytes),
		spec(EventsControl, 1, forever, MaxEventBytes),
		spec(Pulse, 1, pulseRetention, maxSmallBytes),
		spec(Clicks, p.Partitions, p.ClickRetention, maxClickBytes),
		spec(Sink, p.Partitions, forever, maxSmallBytes),
		spec(EffectsDead, 1, deadRetention, maxSmallBytes),
		spec(EffectsRetry, 1, retryRetention, maxSmallBytes),
	}
}

// maxBatchBytes is what a topic takes at once; topics that are not ours take Kafka's default.
func maxBatchBytes(topic string) int {
	for _, s := range (TopicPlan{}).specs() {
		if s.name == topic {
			return s.maxBytes
		}
	}
	return maxSmallBytes
}

// setting is one topic configuration entry.
type setting struct {
	key, value string
	atLeast    bool // more than wanted is fine too
}

func (s topicSpec) settings() []setting {
	retention := "-1"
	if s.retention >= 0 {
		retention = strconv.FormatInt(s.retention.Milliseconds(), 10)
	}
	out := []setting{
		{key: "cleanup.policy", value: "delete"},
		{key: "retention.ms", value: retention},
		{key: "retention.bytes", value: "-1"},
		{key: "max.message.bytes", value: strconv.Itoa(s.maxBytes), atLeast: true},
		{key: "min.insync.replicas", value: strconv.Itoa(s.minISR), atLeast: true},
		{key: "message.timestamp.type", value: "CreateTime"},
		{key: "unclean.leader.election.enable", value: "false"},
	}
	if s.name == Pulse {
		// Kafka deletes whole segments only, and a segment that is written every second is not rolled by age before 7 days.
		out = append(out, setting{key: "segment.ms", value: retention})
	}
	return out
}

// matches compares what was found with what is wanted.
func (s setting) matches(found string) bool {
	if found == s.value || !s.atLeast {
		return found == s.value
	}
	have, err1 := strconv.ParseInt(found, 10, 64)
	want, err2 := strconv.ParseInt(s.value, 10, 64)
	return err1 == nil && err2 == nil && have >= want
}
