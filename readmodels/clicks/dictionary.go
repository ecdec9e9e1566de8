package clicks

import (
	"bytes"
	"fmt"
	"math"

	"github.com/ClickHouse/ch-go/proto"
)

// dictionary collects a LowCardinality(String) column. The client appends to such a column value by value through
// reflection, which was a quarter of the sink's processor time; so the values are numbered here, and the column is given
// the bytes that it would have come to.
type dictionary struct {
	numbers map[string]uint32
	words   proto.Buffer
	keys    []uint32
	last    string
	number  uint32 // of last
}

// newDictionary has the default value as its first word, as ClickHouse wants it.
func newDictionary(rows int) *dictionary {
	d := &dictionary{numbers: map[string]uint32{"": 0}, keys: make([]uint32, 0, rows)}
	d.words.PutString("")
	return d
}

func (d *dictionary) add(value string) {
	if value != d.last {
		number, known := d.numbers[value]
		if !known {
			number = uint32(len(d.numbers))
			d.numbers[value] = number
			d.words.PutString(value)
		}
		d.last, d.number = value, number
	}
	d.keys = append(d.keys, d.number)
}

// Form of a LowCardinality column in blocks: a word of flags that ends in the width of the keys, the dictionary, the keys.
const (
	width8 = iota
	width16
	width32
	ownDictionary = 1<<9 | 1<<10 // the block brings its dictionary, and it replaces any before
)

// appendTo fills a column of the client, which must be empty.
func (d *dictionary) appendTo(to interface {
	Decode(from *proto.Reader, rows int) error
}) error {
	var b proto.Buffer
	width := d.width()
	b.PutUInt64(ownDictionary | uint64(width))
	b.PutInt64(int64(len(d.numbers)))
	b.PutRaw(d.words.Buf)
	b.PutInt64(int64(len(d.keys)))
	for _, k := range d.keys {
		switch width {
		case width8:
			b.PutUInt8(uint8(k))
		case width16:
			b.PutUInt16(uint16(k))
		default:
			b.PutUInt32(k)
		}
	}
	if err := to.Decode(proto.NewReader(bytes.NewReader(b.Buf)), len(d.keys)); err != nil {
		return fmt.Errorf("reading a dictionary: %w", err)
	}
	return nil
}

func (d *dictionary) width() int {
	switch n := len(d.numbers); {
	case n <= math.MaxUint8:
		return width8
	case n <= math.MaxUint16:
		return width16
	}
	return width32
}
