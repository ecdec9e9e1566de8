package segments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// partition is one partition's directory: its segments, and what else says how far it reaches.
type partition struct {
	topic    string
	number   int32
	dir      string
	forever  bool // it is never trimmed
	segments []*segment
	known    Span // what the broker had acknowledged, if recorded
	recorded bool
	before   *snapshot // of the last clean stop; nil: none, or unreadable
	torn     *segment  // whose end has to be cut
}

// Span is what a partition holds: the offsets [Start, End).
type Span struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// list finds the segments of the partition. A directory that is not there holds none.
func (p *partition) list() (bytes int64, err error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing segments: %w", err)
	}
	for _, entry := range entries {
		name, isSegment := strings.CutSuffix(entry.Name(), ".dat")
		base, err := strconv.ParseInt(name, 10, 64)
		if !isSegment || err != nil {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return 0, fmt.Errorf("listing segments: %w", err)
		}
		bytes += info.Size()
		p.segments = append(p.segments, &segment{base: base, path: filepath.Join(p.dir, entry.Name()), size: info.Size()})
	}
	slices.SortFunc(p.segments, func(a, b *segment) int { return int(min(1, max(-1, a.base-b.base))) })
	return bytes, nil
}

func (p *partition) start() int64 {
	if len(p.segments) == 0 {
		return 0
	}
	return p.segments[0].base
}

func (p *partition) end() int64 {
	if len(p.segments) == 0 {
		return 0
	}
	return p.segments[len(p.segments)-1].next
}

// check reads all segments in order and returns the first damage.
func (p *partition) check(told func(bytes int64)) (*Damage, error) {
	p.before = readSnapshot(p.dir)
	if d := p.checkStart(); d != nil {
		return d, nil
	}
	next := p.start()
	for i, s := range p.segments {
		if s.base != next {
			return p.damage(s.path, 0, next, "the segment before it ends at offset %d: a file of the log is missing, or was cut", next), nil
		}
		s.next = next
		done := int64(0)
		if err := s.read(func(bytes int64) { told(bytes - done); done = bytes }); err != nil {
			return nil, err
		}
		if s.fault != "" {
			if d, err := p.judge(s, i == len(p.segments)-1); d != nil || err != nil {
				return d, err
			}
		}
		next = s.next
	}
	return p.checkEnd(), nil
}

// judge says whether what is wrong with a segment is a torn tail, or damage.
func (p *partition) judge(s *segment, last bool) (*Damage, error) {
	if !last {
		return p.damage(s.path, s.good, s.next, "%s, and the log goes on in later files", s.fault), nil
	}
	rest, err := s.rest()
	if err != nil {
		return nil, err
	}
	if at := findBatch(rest, s.next); at >= 0 {
		h := parseHeader(rest[at:])
		return p.damage(s.path, s.good, s.next, "%s, and the log goes on behind it with a good batch at byte %d, offset %d", s.fault, s.good+int64(at), h.offset), nil
	}
	if acked := p.acknowledged(); acked > s.next {
		return p.damage(s.path, s.good, s.next, "%s; it is no torn write, for everything below offset %d was acknowledged", s.fault, acked), nil
	}
	p.torn = s
	return nil, nil
}

// acknowledged is the highest end that the partition is known to have had.
func (p *partition) acknowledged() (end int64) {
	if p.recorded {
		end = p.known.End
	}
	if p.before != nil {
		end = max(end, p.before.HighWatermark)
	}
	return end
}

func (p *partition) checkStart() *Damage {
	if len(p.segments) == 0 {
		return nil
	}
	first := p.segments[0]
	switch {
	case p.forever && first.base != 0:
		return p.damage(first.path, -1, 0, "it is the first file and begins at offset %d; the topic is kept for ever: the files before it are missing", first.base)
	case p.recorded && first.base > p.known.Start:
		return p.damage(first.path, -1, p.known.Start, "it is the first file and begins at offset %d; the log began at %d: files before it are missing", first.base, p.known.Start)
	}
	return nil
}

func (p *partition) checkEnd() *Damage {
	acked := p.acknowledged()
	if p.end() >= acked {
		return nil
	}
	file, at := p.dir, int64(-1)
	if n := len(p.segments); n > 0 {
		file, at = p.segments[n-1].path, p.segments[n-1].good
	}
	return p.damage(file, at, p.end(), "the log ends here at offset %d, and everything below %d was acknowledged: its tail was cut, or a file is missing", p.end(), acked)
}

func (p *partition) damage(file string, at, offset int64, format string, args ...any) *Damage {
	return &Damage{Topic: p.topic, Partition: p.number, File: file, Byte: at, Offset: offset, What: fmt.Sprintf(format, args...)}
}
