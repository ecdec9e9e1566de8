package projections

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrIntent says that a record of the sink topic is not an intent that this binary can read, or that the topic lost some.
var ErrIntent = errors.New("not a readable sink intent")

// ClickIntents folds one partition of the sink topic, from its beginning: how far the clicks are, and which range may not
// have been inserted to its end.
//
// The rule: an intent counts if and only if it begins where the one before it ended; one that begins earlier comes from a
// writer that was no longer the partition's, and is void. Whoever wrote an intent that counts, it says the truth, because it
// is a function of the clicks and of the intents before it. An intent is open until the next one that counts: its writer
// went on only when its range was inserted.
//
// An intent of an empty range is a hold: a range whose intent has an earlier time than the hold does not count, so until
// then nobody begins one, and whoever does not know of the hold cannot. Its rows field is the offset at which it was to lie;
// elsewhere it is void.
type ClickIntents struct {
	partition int32
	next      int64
	open      *pb.SinkIntent
	before    *Clicks
	holdUS    int64

	// Totals over the intents that count.
	Rows, Repeats, Gaps uint64
	// Voids counts those that do not.
	Voids uint64
}

// NewClickIntents starts the fold of a partition.
func NewClickIntents(partition int32) *ClickIntents {
	return &ClickIntents{partition: partition, before: NewClicks(partition)}
}

// Next returns the offset of the clicks topic at which the next range begins.
func (s *ClickIntents) Next() int64 { return s.next }

// Open returns the last intent with a range, nil if there is none yet, and the fold as it was before that range. Both belong
// to s.
func (s *ClickIntents) Open() (*pb.SinkIntent, *Clicks) { return s.open, s.before }

// HeldUntil returns the time before which no intent of a range counts.
func (s *ClickIntents) HeldUntil() time.Time { return time.UnixMicro(s.holdUS) }

// Hold returns the intent that holds the partition until a time, to be appended at this offset.
func (s *ClickIntents) Hold(offset int64, until time.Time) *pb.SinkIntent {
	return &pb.SinkIntent{SchemaVersion: ClickSchemaVersion, Partition: uint32(s.partition), From: s.next, To: s.next,
		Rows: uint64(offset), TimeUs: until.UnixMicro()}
}

// Add folds the next record, which lies at this offset, and returns its intent when it counts, nil when it is void. The error, an ErrIntent, says that
// the topic cannot be trusted.
func (s *ClickIntents) Add(offset int64, value []byte) (*pb.SinkIntent, error) {
	intent := &pb.SinkIntent{}
	if err := intent.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	if err := s.check(intent); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	if s.isVoid(intent, offset) {
		s.Voids++
		return nil, nil
	}
	return intent, s.Take(intent)
}

func (s *ClickIntents) isVoid(i *pb.SinkIntent, offset int64) bool {
	if isHold(i) {
		return i.GetFrom() < s.next || i.GetRows() != uint64(offset)
	}
	return i.GetFrom() < s.next || i.GetTimeUs() < s.holdUS
}

func isHold(i *pb.SinkIntent) bool { return i.GetFrom() == i.GetTo() }

func (s *ClickIntents) check(i *pb.SinkIntent) error {
	switch {
	case i.GetSchemaVersion() != ClickSchemaVersion:
		return fmt.Errorf("schema version %d, this binary reads %d", i.GetSchemaVersion(), ClickSchemaVersion)
	case int32(i.GetPartition()) != s.partition:
		return fmt.Errorf("it is of partition %d", i.GetPartition())
	case i.GetFrom() < 0 || i.GetTo() < i.GetFrom():
		return fmt.Errorf("range [%d, %d)", i.GetFrom(), i.GetTo())
	case i.GetFrom() > s.next:
		return fmt.Errorf("it begins at %d, the one before it ended at %d", i.GetFrom(), s.next)
	}
	return nil
}

// Take folds an intent that is known to count: one that Add has read, or that its writer has just seen confirmed.
func (s *ClickIntents) Take(intent *pb.SinkIntent) error {
	if isHold(intent) {
		s.holdUS = intent.GetTimeUs()
		return nil
	}
	if err := s.before.Restore(s.open.GetLast()); err != nil {
		return fmt.Errorf("%w: %w", ErrIntent, err)
	}
	s.open, s.next = intent, intent.GetTo()
	s.Rows += intent.GetRows()
	s.Repeats += intent.GetRepeats()
	s.Gaps += intent.GetGaps()
	return nil
}

// JoinIntents returns what one intent would say of the ranges of two that follow each other. The time is the later one.
func JoinIntents(a, b *pb.SinkIntent) *pb.SinkIntent {
	last := slices.Clone(b.GetLast())
	for _, l := range a.GetLast() {
		if _, moved := slices.BinarySearchFunc(b.GetLast(), l, compareSources); !moved {
			last = append(last, l)
		}
	}
	slices.SortFunc(last, compareSources)
	return &pb.SinkIntent{SchemaVersion: ClickSchemaVersion, Partition: a.GetPartition(), From: a.GetFrom(), To: b.GetTo(), Last: last,
		Rows: a.GetRows() + b.GetRows(), Repeats: a.GetRepeats() + b.GetRepeats(), Gaps: a.GetGaps() + b.GetGaps(), TimeUs: max(a.GetTimeUs(), b.GetTimeUs())}
}
