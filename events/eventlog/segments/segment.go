package segments

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// segment is one file of a partition, its name being the offset that it begins at.
type segment struct {
	base    int64
	path    string
	size    int64
	next    int64 // offset after its last good batch
	batches int64
	good    int64 // bytes of whole good batches at its beginning
	maxTime int64 // milliseconds, of its batches
	first   int64 // milliseconds, of its first batch
	fault   string
}

const readBuffer = 1 << 20

// read goes over the segment's batches up to the first that is not good, which it leaves in fault.
func (s *segment) read(told func(bytes int64)) error {
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("opening segment: %w", err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, readBuffer)
	for s.good < s.size && s.fault == "" {
		if err := s.batch(in); err != nil {
			return fmt.Errorf("reading segment %s: %w", s.path, err)
		}
		told(s.good)
	}
	return nil
}

// batch takes the next batch or notes its fault.
func (s *segment) batch(in *bufio.Reader) error {
	left := s.size - s.good
	head, err := in.Peek(headerSize)
	if errors.Is(err, io.EOF) {
		s.fault = fmt.Sprintf("%d bytes that are too few for a batch", left)
		return nil
	}
	if err != nil {
		return err
	}
	h := parseHeader(head)
	if s.fault = h.fault(left, s.next); s.fault != "" {
		return nil
	}
	sum, err := checksum(in, h.length)
	if err != nil {
		return err
	}
	switch {
	case sum != h.crc:
		s.fault = fmt.Sprintf("a batch whose bytes do not match its checksum (%08x, they give %08x)", h.crc, sum)
	case h.epoch != leaderEpoch:
		s.fault = fmt.Sprintf("a batch of leader epoch %d, where %d belongs", h.epoch, leaderEpoch)
	default:
		s.take(&h)
	}
	return nil
}

func (s *segment) take(h *header) {
	if s.batches == 0 {
		s.first = h.firstTime
	}
	s.next += int64(h.records)
	s.good += h.length
	s.batches++
	s.maxTime = max(s.maxTime, h.maxTime)
}

// checksum reads a batch of that length and returns the CRC of what its own covers.
func checksum(in *bufio.Reader, length int64) (sum uint32, err error) {
	for at := int64(0); at < length; {
		chunk, err := in.Peek(int(min(length-at, readBuffer)))
		if err != nil {
			return 0, err
		}
		covered := chunk[min(int64(len(chunk)), max(0, crcFrom-at)):]
		sum = crc32.Update(sum, castagnoli, covered)
		at += int64(len(chunk))
		if _, err := in.Discard(len(chunk)); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// rest returns what lies behind the good batches.
func (s *segment) rest() ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("opening segment: %w", err)
	}
	defer f.Close()
	rest := make([]byte, min(s.size-s.good, 2*maxBatch))
	if _, err := f.ReadAt(rest, s.good); err != nil {
		return nil, fmt.Errorf("reading segment %s: %w", s.path, err)
	}
	return rest, nil
}

func (s *segment) indexPath() string {
	return filepath.Join(filepath.Dir(s.path), fmt.Sprintf("%d.idx", s.base))
}
