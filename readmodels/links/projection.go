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
	key       []byte // reused by Apply
	value     []byte
}

// Name implements runner.Projection.
func (*projection) Name() string { return "links/1" }

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
	p.key = appendHistoryKey(p.key[:0], ref.GetNamespace(), ref.GetCode())
	p.key = binary.BigEndian.AppendUint64(p.key, events.VersionOf(event))
	if err := w.SetMessage(p.key, entry); err != nil {
		return err
	}
	p.key = appendLinkKey(p.key[:0], ref)
	before, err := p.before(w, event)
	if err != nil {
		return err
	}
	return w.SetMessage(p.key, projections.EvolveLink(before, entry))
}

// before reads the record that an event changes. A created link has none: codes are never given out again.
func (p *projection) before(w *runner.Write, event *pb.Event) (*pb.Link, error) {
	if event.GetLinkCreated() != nil {
		return nil, nil
	}
	value, err := w.Get(p.key)
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, fmt.Errorf("%s changes a link that was never created", events.EventType(event))
	}
	link := &pb.Link{}
	if err := link.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("decoding the stored record: %w", err)
	}
	return link, nil
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
