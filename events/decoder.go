package events

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Decoder decodes envelopes one after the other into the same memory: what DecodeEnvelope says of a record, it says too, at
// a third of the cost. The zero value is ready. It is not safe for concurrent use.
//
// It knows the common form, one event about a link at most and every field once, and leaves all others to DecodeEnvelope.
type Decoder struct {
	envelope  Envelope
	message   pb.Envelope
	stamp     pb.Stamp
	outcome   pb.Outcome
	request   pb.RequestRef
	list      [1]*pb.Event
	event     pb.Event
	created   pb.LinkCreated
	updated   pb.LinkUpdated
	changed   pb.LinkStatusChanged
	asCreated pb.Event_LinkCreated
	asUpdated pb.Event_LinkUpdated
	asChanged pb.Event_LinkStatusChanged
	link      pb.LinkRef
	content   pb.LinkContent
}

// Decode reads a record value. The envelope is lent until the next call, and shares memory with value. Errors are those of
// DecodeEnvelope.
func (d *Decoder) Decode(value []byte) (*Envelope, error) {
	if !d.plain(value) {
		return DecodeEnvelope(value)
	}
	if err := accept(&d.message); err != nil {
		return nil, err
	}
	d.envelope.Envelope, d.envelope.Hash = &d.message, sha256.Sum256(value)
	return &d.envelope, nil
}

// The wire types of the fields of an envelope.
const (
	varintType = 0
	bytesType  = 2
)

// plain decodes a value of the common form; it reports whether it is of it, down to its last byte.
func (d *Decoder) plain(value []byte) bool {
	d.reset()
	seen := uint32(0)
	for len(value) > 0 {
		tag := value[0]
		if tag >= 0x80 || seen&(1<<(tag>>3)) != 0 {
			return false
		}
		seen |= 1 << (tag >> 3)
		ok := false
		switch tag & 7 {
		case varintType:
			var n uint64
			n, value, ok = cutVarint(value[1:])
			ok = ok && d.number(tag>>3, n)
		case bytesType:
			var field []byte
			field, value, ok = cutBytes(value[1:])
			ok = ok && d.field(tag>>3, field)
		}
		if !ok {
			return false
		}
	}
	return true
}

// reset forgets the last envelope, but for what is always written over.
func (d *Decoder) reset() {
	d.message, d.stamp, d.outcome, d.request = pb.Envelope{}, pb.Stamp{}, pb.Outcome{}, pb.RequestRef{}
	d.event, d.created, d.updated, d.changed = pb.Event{}, pb.LinkCreated{}, pb.LinkUpdated{}, pb.LinkStatusChanged{}
	d.link, d.content = pb.LinkRef{}, pb.LinkContent{}
}

func (d *Decoder) number(field byte, n uint64) bool {
	switch field {
	case 1:
		d.message.SchemaVersion = uint32(n)
	case 2:
		d.message.Bucket = uint32(n)
	case 3:
		d.message.Seq = n
	case 5:
		d.message.CommandOffset = int64(n)
	case 10:
		d.message.LowWatermark = int64(n)
	default:
		return false
	}
	return true
}

func (d *Decoder) field(field byte, in []byte) bool {
	switch field {
	case 4:
		d.message.PrevHash = in
	case 6:
		d.message.CommandId = in
	case 7:
		d.message.Stamp = &d.stamp
		return d.stamp.UnmarshalVTUnsafe(in) == nil
	case 8:
		d.list[0] = &d.event
		d.message.Events = d.list[:]
		return d.plainEvent(in)
	case 9:
		d.message.Outcome = &d.outcome
		return d.outcome.UnmarshalVTUnsafe(in) == nil
	case 11:
		d.message.Actor = unsafe.String(unsafe.SliceData(in), len(in))
	case 12:
		d.message.Request = &d.request
		return d.request.UnmarshalVTUnsafe(in) == nil
	default:
		return false
	}
	return true
}

// plainEvent decodes an event about a link that names all it is about.
func (d *Decoder) plainEvent(in []byte) bool {
	if len(in) == 0 {
		return false
	}
	field, rest, ok := cutBytes(in[1:])
	if !ok || len(rest) > 0 {
		return false
	}
	switch in[0] {
	case 1<<3 | bytesType:
		d.created.Link, d.created.Content = &d.link, &d.content
		d.asCreated.LinkCreated, d.event.Kind = &d.created, &d.asCreated
		return d.created.UnmarshalVTUnsafe(field) == nil && contains(field, 1) && contains(field, 2)
	case 2<<3 | bytesType:
		d.updated.Link, d.updated.Content = &d.link, &d.content
		d.asUpdated.LinkUpdated, d.event.Kind = &d.updated, &d.asUpdated
		return d.updated.UnmarshalVTUnsafe(field) == nil && contains(field, 1) && contains(field, 3)
	case 3<<3 | bytesType:
		d.changed.Link = &d.link
		d.asChanged.LinkStatusChanged, d.event.Kind = &d.changed, &d.asChanged
		return d.changed.UnmarshalVTUnsafe(field) == nil && contains(field, 1)
	}
	return false
}

// contains reports whether a message has the field, a message itself. Absent is not the same as empty.
func contains(in []byte, field byte) bool {
	for len(in) > 0 {
		ok := false
		switch tag := in[0]; tag & 7 {
		case bytesType:
			if tag == field<<3|bytesType {
				return true
			}
			_, in, ok = cutBytes(in[1:])
		case varintType:
			_, in, ok = cutVarint(in[1:])
		}
		if !ok {
			return false
		}
	}
	return false
}

func cutVarint(in []byte) (n uint64, rest []byte, ok bool) {
	if len(in) > 0 && in[0] < 0x80 {
		return uint64(in[0]), in[1:], true
	}
	n, size := binary.Uvarint(in)
	if size <= 0 {
		return 0, nil, false
	}
	return n, in[size:], true
}

func cutBytes(in []byte) (field, rest []byte, ok bool) {
	n, in, ok := cutVarint(in)
	if !ok || n > uint64(len(in)) {
		return nil, nil, false
	}
	return in[:n:n], in[n:], true
}
