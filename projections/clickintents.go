package projections

import (
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrIntent: a record of the sink topic is not an intent that this binary can read, or says that the topic lost some.
var ErrIntent = errors.New("not a readable sink intent")

// ClickIntents folds one partition of the sink topic, from its beginning: how far the clicks are, and which range may not
// have been inserted to its end.
//
// The rule: an intent counts if and only if it begins where the one before it ended; one that begins earlier comes from a
// writer that was no longer the partition's, and is void. Whoever wrote an intent that counts, it says the truth, because it
// is a function of the clicks and of the intents before it. An intent is open until the next one that counts: its writer
// went on only when its range was inserted.
//
// An intent of an empty range is a hold: until its time nobody but its writer begins another range.
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

// HeldUntil returns the time until which only the writer of the last hold begins a range; zero: nobody holds.
func (s *ClickIntents) HeldUntil() time.Time {
	if s.holdUS == 0 {
		return time.Time{}
	}
	return time.UnixMicro(s.holdUS)
}

// Add folds the next record and returns its intent when it counts, nil when it is void. The error, an ErrIntent, says that
// the topic cannot be trusted.
func (s *ClickIntents) Add(value []byte) (*pb.SinkIntent, error) {
	intent := &pb.SinkIntent{}
	if err := intent.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	if err := s.check(intent); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	if intent.GetFrom() < s.next {
		s.Voids++
		return nil, nil
	}
	return intent, s.Take(intent)
}

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
	if intent.GetFrom() == intent.GetTo() {
		s.holdUS = intent.GetTimeUs()
		return nil
	}
	if err := s.before.Restore(s.open.GetLast()); err != nil {
		return fmt.Errorf("%w: %w", ErrIntent, err)
	}
	s.open, s.next, s.holdUS = intent, intent.GetTo(), 0
	s.Rows += intent.GetRows()
	s.Repeats += intent.GetRepeats()
	s.Gaps += intent.GetGaps()
	return nil
}
