package clicks

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The recount decides on its own which clicks of the log count: its decoder knows the wire format and the fields it needs,
// and shares nothing with the fold of the sink. When the two disagree, one of them is wrong.

// errUnreadable: a record is not a block of clicks. Nothing behind it can be counted.
var errUnreadable = errors.New("unreadable click record")

// recount counts one partition of the clicks topic, record by record from where it begins.
type recount struct {
	// highest sequence per source: node, boot and the block's partition, length-prefixed.
	highest map[string]uint64
	// fromUS ≤ time < toUS counts. What is outside moves the sequences all the same.
	fromUS, toUS int64
	minutes      map[int64]classCounts // by Unix minute
}

// classCounts are clicks by class: human, bot, preview, probe.
type classCounts [4]uint64

const classProbe = 3

func (c classCounts) clicks() uint64 { return c[0] + c[1] + c[2] }

// recordCount is what one record comes to.
type recordCount struct {
	offset int64
	clicks uint64 // without probes
	fingerprint
}

// click is what the recount needs of one.
type click struct {
	sequence, link, visitor uint64
	timeUS                  int64
	class                   uint64
}

func newRecount(fromUS, toUS int64) *recount {
	return &recount{highest: map[string]uint64{}, fromUS: fromUS, toUS: toUS, minutes: map[int64]classCounts{}}
}

func sourceKey(node, boot []byte, partition uint64) string {
	key := protowire.AppendVarint(nil, partition)
	key = protowire.AppendBytes(key, node)
	return string(protowire.AppendBytes(key, boot))
}

// seed says what was seen of a source before the first record.
func (r *recount) seed(node, boot []byte, partition, sequence uint64) {
	key := sourceKey(node, boot, partition)
	r.highest[key] = max(r.highest[key], sequence)
}

// add counts one record.
func (r *recount) add(offset int64, value []byte) (recordCount, error) {
	out := recordCount{offset: offset}
	source, clicks, err := decodeRecord(value)
	if err != nil {
		return out, fmt.Errorf("%w at offset %d: %w", errUnreadable, offset, err)
	}
	for _, c := range clicks {
		if c.sequence <= r.highest[source] {
			continue
		}
		r.highest[source] = c.sequence
		if c.timeUS >= r.fromUS && c.timeUS < r.toUS {
			r.count(&out, c)
		}
	}
	return out, nil
}

func (r *recount) count(to *recordCount, c click) {
	to.rows++
	to.distinct++
	to.links += c.link
	to.sequences += c.sequence
	to.times += uint64(c.timeUS)
	to.visitors += c.visitor
	to.classes += c.class * c.sequence
	if c.class != classProbe {
		to.clicks++
	}
	const minuteUS = 60_000_000
	minute := c.timeUS / minuteUS
	counts := r.minutes[minute]
	counts[c.class]++
	r.minutes[minute] = counts
}

// Field numbers of click.proto.
const (
	blockVersion, blockNode, blockBoot, blockPartition, blockClicks        = 1, 2, 3, 4, 6
	clickSequence, clickLink, clickTime, clickClass, clickVisitor          = 1, 2, 6, 8, 21
	knownVersion                                                    uint64 = 1
)

func decodeRecord(value []byte) (source string, clicks []click, err error) {
	var version, partition uint64
	var node, boot []byte
	err = eachField(value, func(number protowire.Number, scalar uint64, bytes []byte) error {
		switch number {
		case blockVersion:
			version = scalar
		case blockNode:
			node = bytes
		case blockBoot:
			boot = bytes
		case blockPartition:
			partition = uint64(uint32(scalar))
		case blockClicks:
			c, err := decodeClick(bytes)
			clicks = append(clicks, c)
			return err
		}
		return nil
	})
	switch {
	case err != nil:
		return "", nil, err
	case version != knownVersion:
		return "", nil, fmt.Errorf("schema version %d", version)
	case len(boot) != 16:
		return "", nil, fmt.Errorf("boot id of %d bytes", len(boot))
	}
	return sourceKey(node, boot, partition), clicks, nil
}

func decodeClick(value []byte) (c click, err error) {
	err = eachField(value, func(number protowire.Number, scalar uint64, _ []byte) error {
		switch number {
		case clickSequence:
			c.sequence = scalar
		case clickLink:
			c.link = scalar
		case clickTime:
			c.timeUS = int64(scalar)
		case clickClass:
			c.class = scalar
		case clickVisitor:
			c.visitor = scalar
		}
		return nil
	})
	if err == nil && (c.sequence == 0 || c.class > classProbe || c.timeUS < 0) {
		err = fmt.Errorf("sequence %d, class %d, time %d", c.sequence, c.class, c.timeUS)
	}
	return c, err
}

// eachField walks a message: scalars of any width as uint64, everything with a length as bytes.
func eachField(message []byte, field func(number protowire.Number, scalar uint64, bytes []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		scalar, bytes, n := consume(kind, number, message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := field(number, scalar, bytes); err != nil {
			return err
		}
	}
	return nil
}

func consume(kind protowire.Type, number protowire.Number, from []byte) (scalar uint64, bytes []byte, n int) {
	switch kind {
	case protowire.VarintType:
		scalar, n = protowire.ConsumeVarint(from)
	case protowire.Fixed64Type:
		scalar, n = protowire.ConsumeFixed64(from)
	case protowire.BytesType:
		bytes, n = protowire.ConsumeBytes(from)
	default:
		n = protowire.ConsumeFieldValue(number, kind, from)
	}
	return scalar, bytes, n
}

// forever are bounds that hold every time a click can have: until 2100.
func forever() (fromUS, toUS int64) { return 0, 4_102_444_800_000_000 }
