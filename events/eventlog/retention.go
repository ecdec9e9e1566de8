package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Retention on the embedded broker.
//
// Its own retention is not crash safe: it deletes every expired batch, and when it deleted a partition's last one, the
// offsets start again at 0 after the next start. So its topics say retention.ms=-1, and this trimmer deletes what
// expired by DeleteRecords, but never a partition's last record. Then the segment that holds it stays on disk and keeps
// the offsets: the broker takes the log's end from its last batch. What is trimmed is recorded first (recorder.go), so that a
// start can tell it from files that are missing.
//
// The envelopes and the sink's intents are kept for ever and are never trimmed.

type trimmer struct {
	log    *Log
	record *recorder
	logger *slog.Logger
	keep   map[string]time.Duration
	stop   context.CancelFunc
	done   chan struct{}
}

func startTrimmer(log *Log, record *recorder, cfg EmbeddedConfig, logger *slog.Logger) *trimmer {
	t := &trimmer{log: log, record: record, logger: logger, keep: make(map[string]time.Duration), done: make(chan struct{})}
	for _, s := range (TopicPlan{ClickRetention: cfg.ClickRetention}).specs() {
		if s.retention != forever {
			t.keep[s.name] = s.retention
		}
	}
	var life context.Context
	life, t.stop = context.WithCancel(context.Background())
	go t.run(life, cfg.TrimEvery)
	return t
}

func (t *trimmer) close() {
	t.stop()
	<-t.done
}

func (t *trimmer) run(life context.Context, every time.Duration) {
	defer close(t.done)
	for {
		select {
		case <-life.Done():
			return
		case now := <-time.After(every):
			if err := t.trim(life, now); err != nil && life.Err() == nil {
				t.logger.Warn("trimming expired records failed", "error", err)
			}
		}
	}
}

// trim deletes what was expired at that time.
func (t *trimmer) trim(ctx context.Context, now time.Time) error {
	details, err := t.log.admin.ListTopics(ctx, TopicNames()...)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	for topic, keep := range t.keep {
		if !details.Has(topic) {
			continue
		}
		if err := t.trimTopic(ctx, topic, now.Add(-keep)); err != nil {
			return fmt.Errorf("trimming %s: %w", topic, err)
		}
	}
	return nil
}

func (t *trimmer) trimTopic(ctx context.Context, topic string, before time.Time) error {
	starts, err := t.log.Starts(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := t.log.Ends(ctx, topic)
	if err != nil {
		return err
	}
	young, err := t.log.admin.ListOffsetsAfterMilli(ctx, before.UnixMilli(), topic)
	if err != nil {
		return err
	}
	upTo, allowed := make(kadm.Offsets), make(map[int32]int64)
	young.Each(func(o kadm.ListedOffset) {
		p := o.Partition
		if o.Err != nil || int(p) >= len(ends) {
			return
		}
		if to := min(o.Offset, ends[p]-1); to > starts[p] {
			upTo.AddOffset(topic, p, to, -1)
			allowed[p] = to
		}
	})
	if len(upTo) == 0 {
		return nil
	}
	if err := t.record.allow(topic, allowed); err != nil {
		return err // without the record the next start would miss what is deleted now
	}
	deleted, err := t.log.admin.DeleteRecords(ctx, upTo)
	if err != nil {
		return err
	}
	t.logger.Info("expired records trimmed", "topic", topic, "older_than", before.UTC())
	return deleted.Error()
}
