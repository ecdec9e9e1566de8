package projections

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ClickSchemaVersion is the newest version of ClickBlock and SinkIntent that this binary reads and the one it writes.
const ClickSchemaVersion = 1

// ErrClickBlock says that a record of the clicks topic is not a block of clicks that this binary can read in full.
var ErrClickBlock = errors.New("not a readable click block")

// Clicks of before this and from this on do not fit into the columns; no clock of a living node shows them.
const (
	firstClickUS = 0
	lastClickUS  = 4102444800 * int64(time.Second/time.Microsecond) // 2100-01-01
)

// ClickRow is one click that counts and its place in the log. It shares the memory of its block.
type ClickRow struct {
	Block  *pb.ClickBlock // node, boot, partition and region; Clicks must not be relied on
	Click  *pb.Click
	Offset int64
	Index  uint32 // place within the record
}

// ClickBatch is what a run of records of one partition of the clicks topic comes to: a function of these records and of the
// last sequences before them, and of nothing else.
type ClickBatch struct {
	Partition int32
	From, To  int64 // offsets [From, To)
	Rows      []ClickRow
	Repeats   uint64 // clicks seen before, not in Rows
	Gaps      uint64 // sequences that were skipped: clicks that a node dropped or lost
	moved     map[clickSource]struct{}
	last      []*pb.LastSequence
}

// clickSource is what sequences are dense in. The partition is the one that the block names.
type clickSource struct {
	node      string
	boot      [16]byte
	partition uint32
}

// Clicks folds one partition of the clicks topic: what is not above the last sequence seen of its source is a repeat and is
// dropped, what lies further above than the next one is a gap and is counted. It is not safe for concurrent use. After an
// error it is in no defined state: throw it away.
type Clicks struct {
	partition int32
	last      map[clickSource]uint64
}

// NewClicks starts the fold of a partition at offset 0.
func NewClicks(partition int32) *Clicks {
	return &Clicks{partition: partition, last: map[clickSource]uint64{}}
}

// Clone returns a fold that goes on from the same place, independently.
func (c *Clicks) Clone() *Clicks {
	return &Clicks{partition: c.partition, last: maps.Clone(c.last)}
}

// Restore takes over the last sequences that an intent wrote down.
func (c *Clicks) Restore(last []*pb.LastSequence) error {
	for _, l := range last {
		source, err := sourceOf(l.GetNode(), l.GetBoot(), l.GetPartition())
		if err != nil {
			return err
		}
		c.last[source] = l.GetSequence()
	}
	return nil
}

// Begin starts a batch at an offset.
func (c *Clicks) Begin(from int64) *ClickBatch {
	return &ClickBatch{Partition: c.partition, From: from, To: from, moved: map[clickSource]struct{}{}}
}

// Add folds the record at this offset into the batch. The error says that the record cannot be read (ErrClickBlock); nothing
// of it was added.
func (c *Clicks) Add(b *ClickBatch, offset int64, value []byte) error {
	block := &pb.ClickBlock{}
	if err := block.UnmarshalVT(value); err != nil {
		return fmt.Errorf("%w: %w", ErrClickBlock, err)
	}
	source, err := checkBlock(block)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClickBlock, err)
	}
	b.To = offset + 1
	last := c.last[source]
	for i, click := range block.GetClicks() {
		if click.GetSequence() <= last {
			b.Repeats++
			continue
		}
		b.Gaps += click.GetSequence() - last - 1
		last = click.GetSequence()
		b.Rows = append(b.Rows, ClickRow{Block: block, Click: click, Offset: offset, Index: uint32(i)})
	}
	if last != c.last[source] {
		c.last[source] = last
		b.moved[source] = struct{}{}
	}
	return nil
}

// Sources returns how many sources the batch has moved: the size of its intent.
func (b *ClickBatch) Sources() int { return len(b.moved) }

// End closes the batch: its intent can be asked for from now on, and no record may be added any more.
func (c *Clicks) End(b *ClickBatch) *ClickBatch {
	b.last = make([]*pb.LastSequence, 0, len(b.moved))
	for source := range b.moved {
		b.last = append(b.last, &pb.LastSequence{
			Node: source.node, Boot: slices.Clone(source.boot[:]), Partition: source.partition, Sequence: c.last[source]})
	}
	slices.SortFunc(b.last, compareSources)
	return b
}

// compareSources orders the last sequences of an intent, so that equal batches give equal bytes.
func compareSources(x, y *pb.LastSequence) int {
	return cmp.Or(strings.Compare(x.GetNode(), y.GetNode()), slices.Compare(x.GetBoot(), y.GetBoot()), cmp.Compare(x.GetPartition(), y.GetPartition()))
}

// Intent returns what the sink topic says of the batch. Its time is the writer's to set.
func (b *ClickBatch) Intent() *pb.SinkIntent {
	return &pb.SinkIntent{SchemaVersion: ClickSchemaVersion, Partition: uint32(b.Partition), From: b.From, To: b.To,
		Last: b.last, Rows: uint64(len(b.Rows)), Repeats: b.Repeats, Gaps: b.Gaps}
}

// Matches reports whether an intent says the same as this batch: the same range, and the same outcome of the fold.
func (b *ClickBatch) Matches(intent *pb.SinkIntent) error {
	own := b.Intent()
	own.TimeUs = intent.GetTimeUs()
	if proto.Equal(own, intent) {
		return nil
	}
	return fmt.Errorf("the intent of [%d, %d) says %d rows, %d repeats, %d gaps, %d sources; the log now gives [%d, %d) %d, %d, %d, %d",
		intent.GetFrom(), intent.GetTo(), intent.GetRows(), intent.GetRepeats(), intent.GetGaps(), len(intent.GetLast()),
		own.GetFrom(), own.GetTo(), own.GetRows(), own.GetRepeats(), own.GetGaps(), len(own.GetLast()))
}

func sourceOf(node string, boot []byte, partition uint32) (clickSource, error) {
	s := clickSource{node: node, partition: partition}
	if len(boot) != len(s.boot) {
		return s, fmt.Errorf("boot id of %d bytes", len(boot))
	}
	copy(s.boot[:], boot)
	return s, nil
}

func checkBlock(b *pb.ClickBlock) (clickSource, error) {
	if v := b.GetSchemaVersion(); v != ClickSchemaVersion {
		return clickSource{}, fmt.Errorf("schema version %d, this binary reads %d", v, ClickSchemaVersion)
	}
	for i, click := range b.GetClicks() {
		if err := checkClick(click); err != nil {
			return clickSource{}, fmt.Errorf("click %d: %w", i, err)
		}
	}
	return sourceOf(b.GetNode(), b.GetBoot(), b.GetPartition())
}

func checkClick(c *pb.Click) error {
	_, knownClass := pb.ClickClass_name[int32(c.GetClass())]
	_, knownChannel := pb.Channel_name[int32(c.GetChannel())]
	switch {
	case c.GetSequence() == 0:
		return errors.New("sequence 0")
	case !knownClass || !knownChannel:
		return fmt.Errorf("unknown class %d or channel %d", c.GetClass(), c.GetChannel())
	case c.GetTimeUs() < firstClickUS || c.GetTimeUs() >= lastClickUS:
		return fmt.Errorf("time %d µs is not a time of clicks", c.GetTimeUs())
	case c.GetStatus() > 999:
		return fmt.Errorf("status %d", c.GetStatus())
	case len(c.GetIp()) != 0 && len(c.GetIp()) != 4 && len(c.GetIp()) != 16:
		return fmt.Errorf("address of %d bytes", len(c.GetIp()))
	}
	return nil
}
