package links

import (
	"encoding/binary"
	"fmt"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
)

// retag brings a link from the tags it had to those it has.
func (p *projection) retag(w *runner.Write, was, is projections.Listing) error {
	for _, tag := range was.Without(is) {
		p.key = appendTagKey(p.key[:0], was, tag)
		w.Delete(p.key)
		if err := p.count(w, was.Owner, tag, -1); err != nil {
			return err
		}
	}
	for _, tag := range is.Without(was) {
		p.key = appendTagKey(p.key[:0], is, tag)
		w.Set(p.key, nil)
		if err := p.count(w, is.Owner, tag, 1); err != nil {
			return err
		}
	}
	return nil
}

func (p *projection) count(w *runner.Write, owner, tag string, by int64) error {
	p.key = appendCountKey(p.key[:0], owner, tag)
	value, err := w.Get(p.key)
	if err != nil {
		return err
	}
	n := by
	if value != nil {
		have, err := decodeCount(value)
		if err != nil {
			return err
		}
		n += have
	}
	if n == 0 {
		w.Delete(p.key)
		return nil
	}
	w.Set(p.key, binary.AppendVarint(nil, n))
	return nil
}

func decodeCount(value []byte) (int64, error) {
	n, size := binary.Varint(value)
	if size <= 0 || n <= 0 {
		return 0, fmt.Errorf("stored count %x", value)
	}
	return n, nil
}

// TagCount is a tag with how many of an owner's links have it, tombstones not counted.
type TagCount struct {
	Tag   string
	Links int64
}

// Tags returns the tags that an owner uses, in byte order.
func (s *Store) Tags(owner string) (tags []TagCount, err error) {
	prefix := appendOwner(nil, countPrefix, owner)
	err = s.pebble.Scan(prefix, func(key, value []byte) error {
		n, err := decodeCount(value)
		tags = append(tags, TagCount{string(key[len(prefix):]), n})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading tags: %w", err)
	}
	return tags, nil
}
