package segments

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keeper changes the broker's files, and keeps a copy of everything that it cuts or replaces.
type keeper struct {
	dir    string // the broker's files
	aside  string // where copies go
	logger *slog.Logger
	now    time.Time
}

// cut ends a segment after its last good batch.
func (k *keeper) cut(p *partition) error {
	s := p.torn
	if s == nil {
		return nil
	}
	rest, err := s.rest()
	if err != nil {
		return err
	}
	kept, err := k.keep(s.path, rest)
	if err != nil {
		return err
	}
	if err := truncate(s.path, s.good); err != nil {
		return err
	}
	k.logger.Warn("a torn write at the end of the log was cut; nothing of it had been acknowledged", "topic", p.topic, "partition", p.number,
		"file", s.path, "byte", s.good, "offset", s.next, "bytes", len(rest), "found", s.fault, "copy", kept)
	s.size, s.fault = s.good, ""
	return nil
}

// dropEmpty removes a last segment without a batch: the broker makes it again with the next batch.
func (k *keeper) dropEmpty(p *partition) error {
	for n := len(p.segments); n > 0 && p.segments[n-1].size == 0; n-- {
		s := p.segments[n-1]
		if n == 1 && s.base != 0 {
			return nil // it alone says where the log stands; the broker would begin at 0 again without it
		}
		if err := errors.Join(os.Remove(s.path), removeIfThere(s.indexPath())); err != nil {
			return fmt.Errorf("removing empty segment: %w", err)
		}
		p.segments = p.segments[:n-1]
	}
	return nil
}

// setAside says what was found to be unfit and what is done about it, and keeps a copy.
func (k *keeper) setAside(path string, found []byte, what string) error {
	kept, err := k.keep(path, found)
	if err == nil {
		k.logger.Warn("a file that the log can do without was damaged", "file", path, "what", what, "copy", kept)
	}
	return err
}

// keep writes a copy of bytes that were found in a file, and returns its path.
func (k *keeper) keep(path string, found []byte) (kept string, err error) {
	name, err := filepath.Rel(k.dir, path)
	if err != nil {
		return "", fmt.Errorf("keeping a copy: %w", err)
	}
	name = strings.ReplaceAll(name, string(filepath.Separator), "_") + k.now.UTC().Format(".20060102T150405.000")
	if err := os.MkdirAll(k.aside, 0o755); err != nil {
		return "", fmt.Errorf("keeping a copy: %w", err)
	}
	kept = filepath.Join(k.aside, name)
	return kept, replace(kept, found)
}

// replace writes a file, whole or not at all.
func replace(path string, content []byte) (err error) {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), removeIfThere(path+".tmp"))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cutting %s: %w", path, err)
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cutting %s: %w", path, err)
	}
	return nil
}
