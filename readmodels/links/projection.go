package links

import (
	"encoding/binary"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

type projection struct {
	committed func([]runner.Accepted)
	row       []byte // key of the row at hand; reused by Apply, as what follows
	key       []byte
	value     []byte
}

// storeName has another number whenever the same log leads to other keys or values.
const storeName = "links/2"

// Name implements runner.Projection.
func (*projection) Name() string { return storeName }

// Committed implements runner.Projection.
func (p *projection) Committed(accepted []runner.Accepted) {
	if p.committed != nil {
		p.committed(accepted)
	}
}

// Apply implements runner.Projection.
func (p *projection) Apply(w *runner.Write, a runner.Accepted) error {
	for _, event := range a.GetEvents() {
		if err := p.applyEvent(w, a, event); err != nil {
			return err
		}
	}
	return p.applyRequest(w, a)
}

func (p *projection) applyEvent(w *runner.Write, a runner.Accepted, event *pb.Event) error {
	ref := events.LinkOf(event)
	if ref == nil {
		return nil
	}
	entry := projections.HistoryEntry(a.Envelope, event)
	if event.GetLinkCreated() != nil {
		return p.create(w, ref, entry)
	}
	return p.change(w, ref, entry)
}

// create writes a link that was not there before: codes are never given out again.
func (p *projection) create(w *runner.Write, ref *pb.LinkRef, entry *pb.HistoryEntry) (err error) {
	is := projections.ListingOf(projections.EvolveLink(nil, entry))
	p.row = appendRowKey(p.row[:0], is)
	p.key = appendRouteKey(p.key[:0], ref.GetNamespace(), ref.GetCode())
	w.Set(p.key, p.row)
	if p.value, err = appendRow(p.value[:0], formCreated, entry); err != nil {
		return err
	}
	w.Set(p.row, p.value)
	return p.retag(w, projections.Listing{}, is)
}

// change writes what an event made of a link. Its first change brings its first entry to the history, too.
func (p *projection) change(w *runner.Write, ref *pb.LinkRef, entry *pb.HistoryEntry) error {
	row, err := p.find(w, ref, entry.GetEvent())
	if err != nil {
		return err
	}
	before, err := decodeRow(row)
	if err != nil {
		return err
	}
	if first := firstEntry(row); first != nil {
		p.key = appendEntryKey(p.key[:0], ref.GetNamespace(), ref.GetCode(), 1)
		w.Set(p.key, first)
	}
	after := projections.EvolveLink(before, entry)
	p.key = appendEntryKey(p.key[:0], ref.GetNamespace(), ref.GetCode(), after.GetVersion())
	if err := w.SetMessage(p.key, entry); err != nil {
		return err
	}
	if p.value, err = appendRow(p.value[:0], formChanged, after); err != nil {
		return err
	}
	w.Set(p.row, p.value) // at its old place: neither the owner nor the time of creation ever changes
	return p.retag(w, projections.ListingOf(before), projections.ListingOf(after))
}

// find reads the row of the link that an event changes, and leaves its key in p.row.
func (p *projection) find(w *runner.Write, ref *pb.LinkRef, event *pb.Event) ([]byte, error) {
	p.key = appendRouteKey(p.key[:0], ref.GetNamespace(), ref.GetCode())
	at, err := w.Get(p.key)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return nil, fmt.Errorf("%s changes a link that was never created", events.EventType(event))
	}
	p.row = append(p.row[:0], at...)
	row, err := w.Get(p.row)
	if err == nil && row == nil {
		err = errNoRow
	}
	return row, err
}

func (p *projection) applyRequest(w *runner.Write, a runner.Accepted) error {
	stored := projections.StoredRequest(a.Envelope.Envelope)
	if stored == nil {
		return nil
	}
	p.key = appendRequestKey(p.key[:0], a.GetRequest().GetOwner(), a.GetRequest().GetKey())
	p.key = appendRequestBucket(p.key, a.GetBucket())
	n := stored.SizeVT()
	p.value = binary.BigEndian.AppendUint64(p.value[:0], a.GetSeq())
	p.value = append(p.value, make([]byte, n)...)
	if _, err := stored.MarshalToSizedBufferVT(p.value[8:]); err != nil {
		return fmt.Errorf("encoding a request's outcome: %w", err)
	}
	w.Set(p.key, p.value)
	return nil
}
