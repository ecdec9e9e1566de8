package spool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Config is a spool's size and place.
type Config struct {
	Path         string // of the file; empty: memory of this process alone
	Bytes        int64  // bound of the file, rounded down to whole segments
	SegmentBytes int    // a multiple of 4096, at most MaxSegmentBytes
}

// The first page of the file says what it is.
const (
	pageBytes   = 4096
	magic       = "HOPSPOOL"
	fileVersion = 1
)

// Spool is a bounded set of segments. Safe for concurrent use.
type Spool struct {
	config Config
	file   *os.File
	memory []byte // the map

	mu    sync.Mutex
	idle  []*Segment // the one used last is used first: its pages are hot
	count int
	stamp uint64
}

// Left is what an earlier process left behind.
type Left struct {
	Segments []*Segment // whole ones with records, in the order in which they were taken; to be released like any other
	Damaged  int        // segments whose contents are not what was committed; they are free again
	Lost     uint64     // records that these claimed to hold
}

// Open opens the file at config.Path, or makes and allocates it, or reserves memory if there is no path. A file that holds
// records beyond a smaller bound keeps its size until a start finds them gone.
//
// Errors: ErrForeign, ErrTooSmall, and those of the file system, a full disk among them.
func Open(config Config) (*Spool, *Left, error) {
	if config.SegmentBytes%pageBytes != 0 || config.SegmentBytes <= 0 || config.SegmentBytes > MaxSegmentBytes {
		return nil, nil, fmt.Errorf("segments of %d bytes: %w", config.SegmentBytes, ErrTooSmall)
	}
	s := &Spool{config: config}
	s.count = int((config.Bytes - pageBytes) / int64(config.SegmentBytes))
	if s.count < 1 {
		return nil, nil, fmt.Errorf("%d bytes with segments of %d: %w", config.Bytes, config.SegmentBytes, ErrTooSmall)
	}
	if err := s.mapMemory(); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	left := s.scan()
	if err := s.shrink(left); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, left, nil
}

func (s *Spool) mapMemory() (err error) {
	if s.config.Path == "" {
		s.memory, err = mapPrivate(s.size())
		return err
	}
	if err := s.openFile(); err != nil {
		return err
	}
	s.memory, err = mapShared(s.file, s.size())
	if err != nil {
		return fmt.Errorf("mapping click spool: %w", err)
	}
	s.writeHeader()
	return nil
}

func (s *Spool) size() int { return pageBytes + s.count*s.config.SegmentBytes }

// openFile leaves s.file with every byte of s.size allocated. A file that is longer counts in full.
func (s *Spool) openFile() (err error) {
	if err := os.MkdirAll(filepath.Dir(s.config.Path), 0o750); err != nil {
		return fmt.Errorf("making the click spool's directory: %w", err)
	}
	if s.file, err = os.OpenFile(s.config.Path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("opening click spool: %w", err)
	}
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("opening click spool: %w", err)
	}
	if info.Size() > 0 {
		if err := s.checkHeader(); err != nil {
			return err
		}
		s.count = max(s.count, int((info.Size()-pageBytes)/int64(s.config.SegmentBytes)))
	}
	// Also what is there already: a hole in the file would kill the process when the disk is full.
	if err := allocate(s.file, info.Size(), int64(s.size())); err != nil {
		if info.Size() == 0 {
			err = errors.Join(err, os.Remove(s.config.Path))
		}
		return fmt.Errorf("allocating click spool of %d bytes: %w", s.size(), err)
	}
	return nil
}

// checkHeader accepts a file of the same form, and one of zeros only: its maker died before it wrote the first word.
func (s *Spool) checkHeader() error {
	var head [24]byte
	if _, err := s.file.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("reading click spool: %w", err)
	}
	if head == ([24]byte{}) {
		return nil
	}
	version, segment := binary.LittleEndian.Uint64(head[8:]), binary.LittleEndian.Uint64(head[16:])
	if string(head[:8]) != magic || version != fileVersion || segment != uint64(s.config.SegmentBytes) {
		return fmt.Errorf("%s: %w", s.config.Path, ErrForeign)
	}
	return nil
}

func (s *Spool) writeHeader() {
	binary.LittleEndian.PutUint64(s.memory[8:], fileVersion)
	binary.LittleEndian.PutUint64(s.memory[16:], uint64(s.config.SegmentBytes))
	copy(s.memory, magic)
}

func (s *Spool) segment(i int) *Segment {
	at := pageBytes + i*s.config.SegmentBytes
	return &Segment{memory: s.memory[at : at+s.config.SegmentBytes : at+s.config.SegmentBytes]}
}

// scan sorts the segments into those that hold something and the idle ones.
func (s *Spool) scan() *Left {
	left := &Left{}
	stamps := map[*Segment]uint64{}
	for i := s.count - 1; i >= 0; i-- {
		segment := s.segment(i)
		stamp, ok := segment.found()
		s.stamp = max(s.stamp, stamp)
		switch {
		case !ok:
			left.Damaged++
			left.Lost += segment.Records()
		case segment.records > 0:
			stamps[segment] = stamp
			left.Segments = append(left.Segments, segment)
			continue
		}
		if stamp != 0 {
			segment.free()
		}
		s.idle = append(s.idle, segment)
	}
	slices.SortFunc(left.Segments, func(a, b *Segment) int { return cmp.Compare(stamps[a], stamps[b]) })
	return left
}

// shrink cuts a file that is longer than its bound, once nothing is left in it.
func (s *Spool) shrink(left *Left) error {
	wanted := int((s.config.Bytes - pageBytes) / int64(s.config.SegmentBytes))
	if s.file == nil || s.count <= wanted || len(left.Segments) > 0 {
		return nil
	}
	s.idle = s.idle[s.count-wanted:] // they lie from the last to the first
	s.count = wanted
	if err := s.file.Truncate(int64(s.size())); err != nil {
		return fmt.Errorf("shrinking click spool: %w", err)
	}
	return nil
}

// Take opens an idle segment whose contents begin with prefix, which counts as no record. Nil: the spool is full.
func (s *Spool) Take(id Identity, prefix []byte) *Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	segment := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	s.stamp++
	segment.open(id, s.stamp, prefix, time.Now())
	return segment
}

// Release gives a segment back: its records are in the log, or given up.
func (s *Spool) Release(segment *Segment) {
	segment.free()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, segment)
}

// Used returns the bytes of the segments that are taken.
func (s *Spool) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.count - len(s.idle)) * s.config.SegmentBytes
}

// Bytes returns the size of all segments.
func (s *Spool) Bytes() int { return s.count * s.config.SegmentBytes }

// Sync brings what was committed to the disk: against a power cut, not against the end of the process.
func (s *Spool) Sync() error {
	if s.file == nil {
		return nil
	}
	if err := syncMap(s.memory); err != nil {
		return fmt.Errorf("syncing click spool: %w", err)
	}
	return nil
}

// Close unmaps the spool. No segment of it may be touched any more.
func (s *Spool) Close() (err error) {
	if s.memory != nil {
		err = unmap(s.memory)
		s.memory = nil
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}
