package segments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// topicsText and metaText are the broker's files that say what there is.
type topicsText struct {
	Topics []struct {
		Name       string            `json:"name"`
		Partitions int               `json:"partitions"`
		Configs    map[string]string `json:"configs"`
	} `json:"topics"`
}

type metaText struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
}

// survey finds the partitions, and compares what the broker's own files say of them with the directories and the record of
// what was acknowledged. A directory in which no broker has been holds none.
func survey(cfg *Config) (partitions []*partition, damages []*Damage, err error) {
	dirs, err := partitionDirs(cfg)
	if err != nil {
		return nil, nil, err
	}
	wrong := func(file, format string, args ...any) {
		damages = append(damages, &Damage{File: filepath.Join(cfg.Dir, file), Byte: -1, Offset: -1, What: fmt.Sprintf(format, args...)})
	}
	var meta metaText
	switch err := readJSON(filepath.Join(cfg.Dir, "meta.json"), &meta); {
	case errors.Is(err, fs.ErrNotExist) && len(dirs) == 0 && len(cfg.Acknowledged) == 0:
		return nil, nil, nil
	case err != nil:
		wrong("meta.json", "%v; it has to hold {\"version\":%d,\"cluster_id\":%q}", err, persistVersion, cfg.ClusterID)
	case meta.Version != persistVersion || meta.ClusterID != cfg.ClusterID:
		wrong("meta.json", "it says version %d, cluster %q; this broker's say %d, %q", meta.Version, meta.ClusterID, persistVersion, cfg.ClusterID)
	}
	var topics topicsText
	if err := readJSON(filepath.Join(cfg.Dir, "topics.json"), &topics); err != nil {
		wrong("topics.json", "%v", err)
		return nil, damages, nil
	}
	for _, t := range topics.Topics {
		if !strings.HasPrefix(t.Name, cfg.Prefix) {
			continue
		}
		if known := cfg.Acknowledged[t.Name]; known != nil && len(known) != t.Partitions {
			wrong("topics.json", "it says that %s has %d partitions; it had %d", t.Name, t.Partitions, len(known))
		}
		for _, key := range slices.Sorted(maps.Keys(cfg.Settings[t.Name])) {
			if have, want := t.Configs[key], cfg.Settings[t.Name][key]; have != want {
				wrong("topics.json", "it says %s=%s for %s, which has to be %s: the broker would delete or merge records", key, have, t.Name, want)
			}
		}
		for number := range int32(min(t.Partitions, maxPartitions)) {
			p := &partition{topic: t.Name, number: number, dir: partitionDir(cfg.Dir, t.Name, number), forever: slices.Contains(cfg.Forever, t.Name)}
			if known := cfg.Acknowledged[t.Name]; int(number) < len(known) {
				p.known, p.recorded = known[number], true
			}
			partitions = append(partitions, p)
			delete(dirs, filepath.Base(p.dir))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		wrong("topics.json", "it names no partition for the records in %s", filepath.Join(cfg.Dir, "partitions", name))
	}
	for _, topic := range slices.Sorted(maps.Keys(cfg.Acknowledged)) {
		if !slices.ContainsFunc(partitions, func(p *partition) bool { return p.topic == topic }) {
			wrong("topics.json", "the topic %s is missing in it", topic)
		}
	}
	return partitions, damages, nil
}

// maxPartitions is more than any topic of ours has.
const maxPartitions = 4096

// partitionDirs lists the directories that hold records of our topics.
func partitionDirs(cfg *Config) (map[string]struct{}, error) {
	entries, err := os.ReadDir(filepath.Join(cfg.Dir, "partitions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	found := map[string]struct{}{}
	for _, entry := range entries {
		cut := strings.LastIndexByte(entry.Name(), '-')
		if _, err := strconv.ParseUint(entry.Name()[cut+1:], 10, 31); err == nil && strings.HasPrefix(entry.Name(), cfg.Prefix) {
			found[entry.Name()] = struct{}{}
		}
	}
	return found, nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file is missing: %w", fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("it is no valid JSON (%w)", err)
	}
	return nil
}
