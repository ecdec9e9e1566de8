package segments

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
)

// Acknowledged is what the broker held when it was last asked: topic → span per partition. Its ends were acknowledged and
// synced; its starts are the highest that a partition may begin at.
type Acknowledged map[string][]Span

// acknowledgedText is the record's file: the spans as they were written, and their checksum.
type acknowledgedText struct {
	Version int             `json:"version"`
	CRC     uint32          `json:"crc32c"`
	Spans   json.RawMessage `json:"acknowledged"`
}

// ErrRecord says that the record of what was acknowledged cannot be read.
var ErrRecord = errors.New("the record of what was acknowledged cannot be read")

// ReadAcknowledged reads the record; nil when there is none. One that cannot be read is an ErrRecord.
func ReadAcknowledged(path string) (Acknowledged, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	var text acknowledgedText
	var a Acknowledged
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRecord, path, err)
	}
	if text.Version != persistVersion || crc32.Checksum(text.Spans, castagnoli) != text.CRC {
		return nil, fmt.Errorf("%w: %s: its checksum does not match", ErrRecord, path)
	}
	if err := json.Unmarshal(text.Spans, &a); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRecord, path, err)
	}
	return a, nil
}

// WriteAcknowledged replaces the record. It syncs the file.
func WriteAcknowledged(path string, a Acknowledged) error {
	spans, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("writing what was acknowledged: %w", err)
	}
	raw, err := json.Marshal(acknowledgedText{Version: persistVersion, CRC: crc32.Checksum(spans, castagnoli), Spans: spans})
	if err != nil {
		return fmt.Errorf("writing what was acknowledged: %w", err)
	}
	return replace(path, raw)
}
