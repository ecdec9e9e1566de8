package owners

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

type projection struct{ key, row []byte } // reused by Apply

// Name implements runner.Projection.
func (*projection) Name() string { return "owners/1" }

// Committed implements runner.Projection.
func (*projection) Committed([]runner.Accepted) {}

// Apply implements runner.Projection.
func (p *projection) Apply(w *runner.Write, a runner.Accepted) error {
	for _, event := range a.GetEvents() {
		if ref := events.LinkOf(event); ref != nil {
			if err := p.applyEvent(w, ref, event, a.GetStamp().GetTimeUs()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *projection) applyEvent(w *runner.Write, ref *pb.LinkRef, event *pb.Event, timeUS int64) error {
	before, err := p.before(w, ref, event)
	if err != nil {
		return err
	}
	after := commands.EvolveLink(before, event, timeUS)
	after.Fingerprint = nil
	was, is := projections.ListingOf(before), projections.ListingOf(after)
	p.row = appendRowKey(p.row[:0], is)
	if !was.SamePlace(is) {
		p.move(w, before != nil, was, ref)
	}
	if err := w.SetMessage(p.row, after); err != nil {
		return err
	}
	return p.retag(w, was, is)
}

// before reads the row that an event changes. A created link has none: codes are never given out again.
func (p *projection) before(w *runner.Write, ref *pb.LinkRef, event *pb.Event) (*pb.Link, error) {
	if event.GetLinkCreated() != nil {
		return nil, nil
	}
	p.key = appendWhereKey(p.key[:0], ref)
	where, err := w.Get(p.key)
	if err != nil {
		return nil, err
	}
	if where == nil {
		return nil, fmt.Errorf("%s changes a link that was never created", events.EventType(event))
	}
	value, err := w.Get(where)
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, errors.New("the index names a row that is not there")
	}
	link := &pb.Link{}
	if err := link.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("decoding the stored row: %w", err)
	}
	return link, nil
}

// move takes the row from its old place, if it had one, and notes the new one.
func (p *projection) move(w *runner.Write, had bool, was projections.Listing, ref *pb.LinkRef) {
	if had {
		p.key = appendRowKey(p.key[:0], was)
		w.Delete(p.key)
	}
	p.key = appendWhereKey(p.key[:0], ref)
	w.Set(p.key, p.row)
}

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
