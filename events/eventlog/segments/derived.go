package segments

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// snapshot is what the broker writes of a partition at a clean stop, and what it starts from when the sizes fit. Without one
// that fits it holds the whole partition in memory while it starts, and forgets where the log was trimmed; so every start
// gets one that fits.
type snapshot struct {
	Version          int               `json:"version"`
	HighWatermark    int64             `json:"high_watermark"`
	LastStableOffset int64             `json:"last_stable_offset"`
	LogStartOffset   int64             `json:"log_start_offset"`
	Epoch            int32             `json:"epoch"`
	MaxTimestamp     int64             `json:"max_timestamp"`
	CreatedAt        time.Time         `json:"created_at"`
	Segments         []snapshotSegment `json:"segments"`
}

type snapshotSegment struct {
	BaseOffset int64 `json:"base_offset"`
	Size       int64 `json:"size"`
}

const (
	snapshotFile   = "snapshot.json"
	persistVersion = 1 // of the broker's files
)

// readSnapshot returns the snapshot in a partition's directory; nil when there is none that can be read.
func readSnapshot(dir string) *snapshot {
	text, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	var s snapshot
	if err != nil || json.Unmarshal(text, &s) != nil || s.Version != persistVersion {
		return nil
	}
	return &s
}

// snapshot is the one that fits what was read.
func (p *partition) snapshot() *snapshot {
	s := &snapshot{Version: persistVersion, HighWatermark: p.end(), LastStableOffset: p.end(), LogStartOffset: p.start(), Epoch: leaderEpoch}
	switch { // where it was trimmed, if it may be
	case p.forever:
	case p.recorded:
		s.LogStartOffset = min(max(p.start(), p.known.Start), p.end())
	case p.before != nil:
		s.LogStartOffset = min(max(p.start(), p.before.LogStartOffset), p.end())
	}
	for i, segment := range p.segments {
		if i == 0 {
			s.CreatedAt = time.UnixMilli(segment.first)
		}
		s.MaxTimestamp = max(s.MaxTimestamp, segment.maxTime)
		s.Segments = append(s.Segments, snapshotSegment{segment.base, segment.size})
	}
	return s
}

func (s *snapshot) fits(other *snapshot) bool {
	return other != nil && s.HighWatermark == other.HighWatermark && s.LastStableOffset == other.LastStableOffset &&
		s.LogStartOffset == other.LogStartOffset && s.Epoch == other.Epoch && slices.Equal(s.Segments, other.Segments)
}

// derive makes what the broker keeps beside the segments fit them.
func (k *keeper) derive(p *partition) error {
	if len(p.segments) == 0 {
		return nil
	}
	for _, s := range p.segments {
		if err := k.index(s); err != nil {
			return err
		}
	}
	path, want := filepath.Join(p.dir, snapshotFile), p.snapshot()
	if want.fits(p.before) {
		return nil
	}
	if found, err := os.ReadFile(path); err == nil && p.before == nil {
		if err := k.setAside(path, found, "a snapshot that cannot be read; it is made again"); err != nil {
			return err
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return replace(path, text)
}

// An entry of an index file: version, check sum (low byte), epoch, largest time before it, whether in a transaction.
const (
	entrySize     = 15
	entryChecked  = 2
	entryEpoch    = 2
	entryTime     = 6
	entryFlags    = 14
	entryChecksum = 1
)

// index makes a segment's index again if it does not fit; an index that is merely too short or too long is what a crash
// leaves.
func (k *keeper) index(s *segment) error {
	found, err := os.ReadFile(s.indexPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading index: %w", err)
	}
	if err == nil && int64(len(found)) == s.batches*entrySize && indexHolds(found) {
		return nil
	}
	if whole := len(found) / entrySize * entrySize; !indexHolds(found[:whole]) {
		if err := k.setAside(s.indexPath(), found, "an index that does not match its checksum; it is made again"); err != nil {
			return err
		}
	}
	return replace(s.indexPath(), bytes.Repeat(newEntry(s.maxTime), int(s.batches)))
}

func indexHolds(index []byte) bool {
	for ; len(index) > 0; index = index[entrySize:] {
		sum := byte(crc32.Checksum(index[entryChecked:entrySize], castagnoli))
		if index[0] != persistVersion || index[entryChecksum] != sum || index[entryFlags] != 0 || binary.LittleEndian.Uint32(index[entryEpoch:]) != leaderEpoch {
			return false
		}
	}
	return true
}

// newEntry is what stands for any batch: the broker takes times from the segment.
func newEntry(maxTime int64) []byte {
	entry := make([]byte, entrySize)
	entry[0] = persistVersion
	binary.LittleEndian.PutUint32(entry[entryEpoch:], leaderEpoch)
	binary.LittleEndian.PutUint64(entry[entryTime:], uint64(maxTime))
	entry[entryChecksum] = byte(crc32.Checksum(entry[entryChecked:], castagnoli))
	return entry
}
