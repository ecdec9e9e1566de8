package segments

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
)

// Logs of framed entries: what the broker knows of groups and producers. Nothing of ours rests on them (no offset is ever
// committed to a group, and a producer session ends with its process), so a bad entry and what follows is cut, with a copy of
// the whole file. Left alone, everything that the broker appends behind a bad entry would be lost at the next start.
var framedLogs = []string{"groups.log", "pids.log"}

// Files of the broker that it can do without, and does not start with if it cannot read them.
var sideFiles = []string{"seq_windows.json", "acls.json", "sasl.json", "quotas.json", "broker_configs.json"}

// A frame: length of what follows the checksum, CRC-32C, then version and entry.
const frameHeader = 8

func (k *keeper) framed(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	good := wholeFrames(text)
	if good == len(text) {
		return nil
	}
	if err := k.setAside(path, text, "what the broker knows of its clients; it is cut at the first entry that is not whole"); err != nil {
		return err
	}
	return truncate(path, int64(good))
}

func wholeFrames(text []byte) (bytes int) {
	for at := 0; ; {
		if at+frameHeader > len(text) {
			return at
		}
		length, sum := int(binary.LittleEndian.Uint32(text[at:])), binary.LittleEndian.Uint32(text[at+4:])
		if length < 2 || length > len(text)-at-frameHeader || crc32.Checksum(text[at+frameHeader:at+frameHeader+length], castagnoli) != sum {
			return at
		}
		at += frameHeader + length
	}
}

func (k *keeper) sideFile(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && json.Valid(text) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := k.setAside(path, text, "what the broker knows of its clients cannot be read; it is removed"); err != nil {
		return err
	}
	return removeIfThere(path)
}
