package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/segments"
)

// ErrDamaged says that the embedded broker's files hold what no crash leaves behind. The text names every place; nothing was changed.
var ErrDamaged = segments.ErrDamaged

// logDir and damagedDir lie in the embedded broker's directory: its files, and copies of what was cut of them.
const (
	logDir     = "log"
	damagedDir = "damaged"
)

// verifyFiles checks the broker's files before it opens them, and returns what was found and what had been recorded.
func verifyFiles(cfg EmbeddedConfig, logger *slog.Logger) (*segments.Report, segments.Acknowledged, error) {
	acknowledged, err := segments.ReadAcknowledged(filepath.Join(cfg.Dir, recordFile))
	if err != nil {
		logger.Warn("the log's ends are checked against stored positions only", "error", err)
	}
	settings, forEver := safeSettings()
	report, err := segments.Check(context.Background(), segments.Config{
		Dir: filepath.Join(cfg.Dir, logDir), Aside: filepath.Join(cfg.Dir, damagedDir), ClusterID: embeddedClusterID, Prefix: "hoplog.",
		Settings: settings, Forever: forEver, Acknowledged: acknowledged, Progress: cfg.Progress, Logger: logger, Now: time.Now(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("verifying the log: %w", err)
	}
	return report, acknowledged, nil
}

// safeSettings are the settings without which the broker would delete or merge records, and the topics that nobody trims.
func safeSettings() (settings map[string]map[string]string, forEver []string) {
	settings = map[string]map[string]string{}
	for _, s := range (TopicPlan{}).specs() {
		if s.retention == forever {
			forEver = append(forEver, s.name)
		}
		for _, spec := range forEmbedded([]topicSpec{s}) {
			settings[s.name] = map[string]string{}
			for _, set := range spec.settings() {
				switch set.key {
				case "cleanup.policy", "retention.ms", "retention.bytes":
					settings[s.name][set.key] = set.value
				}
			}
		}
	}
	return settings, forEver
}

// errLoaded: the broker holds less than its files.
var errLoaded = errors.New("the embedded broker loaded less than its files hold")

// compareLoaded makes sure that the broker holds what was verified. Clients may have appended since.
func compareLoaded(ctx context.Context, log *Log, report *segments.Report) error {
	ends := map[string][]int64{}
	for _, f := range report.Partitions {
		if ends[f.Topic] == nil {
			found, err := log.Ends(ctx, f.Topic)
			if err != nil {
				return fmt.Errorf("asking for the end of %s: %w", f.Topic, err)
			}
			ends[f.Topic] = found
		}
		if found := ends[f.Topic]; int(f.Partition) >= len(found) || found[f.Partition] < f.End {
			return fmt.Errorf("%w: %s partition %d reaches to offset %d, its topic's partitions were loaded to %v", errLoaded, f.Topic, f.Partition, f.End, found)
		}
	}
	return nil
}
