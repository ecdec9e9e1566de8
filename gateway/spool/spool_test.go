package spool

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

const testSegment = 8192

func openTest(t testing.TB, path string, segments int) (*Spool, *Left) {
	t.Helper()
	s, left, err := Open(Config{Path: path, Bytes: int64(pageBytes + segments*testSegment), SegmentBytes: testSegment})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, left
}

func fill(t testing.TB, s *Segment, records ...string) {
	t.Helper()
	for _, r := range records {
		if !s.Commit(append(s.Tail(), r...)) {
			t.Fatalf("no room for %q", r)
		}
	}
}

func TestSpoolGivesBackWhatWasCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "spool")
	// given: a process that filled three segments, gave one back, and died
	s, left := openTest(t, path, 4)
	if len(left.Segments)+left.Damaged != 0 {
		t.Fatalf("%+v", left)
	}
	id := Identity{Partition: 3, Boot: [16]byte{1, 2}, First: 41}
	a, b, c := s.Take(id, []byte("head:")), s.Take(Identity{Partition: 1, First: 7}, nil), s.Take(id, []byte("head:"))
	fill(t, a, "one", "two")
	fill(t, b, "x")
	fill(t, c, "three")
	s.Release(b)
	copy(c.Tail()[:100], "not committed") // it died while it wrote
	// when: the next one opens the file
	s, left = openTest(t, path, 4)
	// then: the committed records are there in order, and nothing else
	if len(left.Segments) != 2 || left.Damaged != 0 || left.Lost != 0 || s.Used() != 2*testSegment {
		t.Fatalf("%+v", left)
	}
	first, second := left.Segments[0], left.Segments[1]
	if string(first.Bytes()) != "head:onetwo" || first.Records() != 2 || first.Identity != id || string(second.Bytes()) != "head:three" {
		t.Errorf("%q %q %+v", first.Bytes(), second.Bytes(), first.Identity)
	}
	if d := s.Take(id, nil); d == nil || d.Len() != 0 {
		t.Error("the segment that was given back is not there")
	} else if e := s.Take(id, nil); e == nil || s.Take(id, nil) != nil {
		t.Error("not as many segments as the bound allows")
	}
	s.Release(first)
	s.Release(second)
	if _, left = openTest(t, path, 4); len(left.Segments) != 0 {
		t.Errorf("%+v", left)
	}
}

// A power cut may leave any page of a segment as it was earlier: then the segment is told by its checksum.
func TestSpoolFindsDamage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range 50 {
		path := filepath.Join(t.TempDir(), "spool")
		s, _ := openTest(t, path, 3)
		segment := s.Take(Identity{First: 1}, []byte("head"))
		n := 1 + random.IntN(60)
		for i := range n {
			fill(t, segment, fmt.Sprintf("record %d of some length %d", i, random.Uint64()))
		}
		healthy := s.Take(Identity{First: 1, Partition: 1}, []byte("head"))
		fill(t, healthy, "whole")
		segment.Bytes()[random.IntN(segment.Len())] ^= byte(1 + random.IntN(255))
		_, left := openTest(t, path, 3)
		if left.Damaged != 1 || left.Lost != uint64(n) || len(left.Segments) != 1 || left.Segments[0].Partition != 1 {
			t.Fatalf("round %d: %+v", round, left)
		}
		if _, left = openTest(t, path, 3); left.Damaged != 0 {
			t.Fatal("damage is reported twice")
		}
	}
}

// Whatever is in the file's segments, opening it does no harm, and nothing passes that its checksum does not cover.
func FuzzSpoolOpen(f *testing.F) {
	f.Add([]byte("x"), 0)
	f.Add(bytes.Repeat([]byte{0xFF}, 200), pageBytes)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		path := filepath.Join(t.TempDir(), "spool")
		s, _ := openTest(t, path, 2)
		fill(t, s.Take(Identity{First: 1}, nil), "record")
		size := s.size()
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		at = max(0, at) % size
		_, _ = file.WriteAt(data[:min(len(data), size-at)], int64(at))
		_ = file.Close()
		again, left, err := Open(Config{Path: path, Bytes: int64(size), SegmentBytes: testSegment})
		if errors.Is(err, ErrForeign) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = again.Close() }()
		for _, segment := range left.Segments {
			if segment.Len() > testSegment-segmentHeader {
				t.Fatal("longer than a segment")
			}
			_ = bytes.Clone(segment.Bytes())
		}
	})
}

func TestSpoolBounds(t *testing.T) {
	s, _ := openTest(t, "", 2)
	segment := s.Take(Identity{}, []byte("head"))
	record := bytes.Repeat([]byte("r"), 100)
	n := 0
	for segment.Fits(len(record)) {
		fill(t, segment, string(record))
		n++
	}
	if want := (testSegment - segmentHeader - 4) / 100; n != want {
		t.Errorf("%d records, want %d", n, want)
	}
	if segment.Commit(append(segment.Tail(), record...)) || segment.Records() != uint64(n) {
		t.Error("a record that does not fit was taken")
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{{Bytes: 1 << 20}, {Bytes: 1 << 20, SegmentBytes: 5000}, {Bytes: 8192, SegmentBytes: 8192}, {Bytes: 1 << 30, SegmentBytes: 2 << 20}} {
		if _, _, err := Open(c); !errors.Is(err, ErrTooSmall) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Another size at the next start: more is taken at once, less when nothing is left.
func TestSpoolResizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s, _ := openTest(t, path, 4)
	var taken []*Segment
	for range 4 {
		taken = append(taken, s.Take(Identity{First: 1}, nil))
	}
	fill(t, taken[3], "kept")
	s, left := openTest(t, path, 2)
	if len(left.Segments) != 1 || s.Bytes() != 4*testSegment {
		t.Fatalf("shrunk over what it holds: %d, %+v", s.Bytes(), left)
	}
	s.Release(left.Segments[0])
	for _, segments := range []int{2, 6} {
		s, _ = openTest(t, path, segments)
		for range segments {
			if segment := s.Take(Identity{}, nil); segment == nil {
				t.Fatal("full too early")
			} else {
				fill(t, segment, "x")
			}
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(s.size()) || s.Take(Identity{}, nil) != nil {
			t.Errorf("%d segments: %v %v", segments, info.Size(), err)
		}
		_, left = openTest(t, path, segments)
		for _, segment := range left.Segments {
			segment.free()
		}
	}
}

func TestSpoolLeavesForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	if err := os.WriteFile(path, bytes.Repeat([]byte("text"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(Config{Path: path, Bytes: 1 << 20, SegmentBytes: testSegment}); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	openTest(t, filepath.Join(filepath.Dir(path), "other"), 2)
	if _, _, err := Open(Config{Path: filepath.Join(filepath.Dir(path), "other"), Bytes: 1 << 20, SegmentBytes: 2 * testSegment}); !errors.Is(err, ErrForeign) {
		t.Errorf("another form: %v", err)
	}
}
