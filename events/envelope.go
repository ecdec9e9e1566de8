package events

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// SchemaVersion is the version of envelopes and commands that this binary writes, and the newest that it reads.
const SchemaVersion = 1

// Errors of decoding an envelope.
var (
	// ErrNewer: the record was written by a newer binary.
	ErrNewer = errors.New("record is of a newer schema version than this binary knows")
	// ErrMalformed: the record is not an envelope.
	ErrMalformed = errors.New("record is not an envelope")
)

// Hash is the SHA-256 of an envelope's bytes. The zero hash stands before a bucket's first envelope.
type Hash [sha256.Size]byte

// Envelope is one decoded record of an events topic. It is not changed after decoding.
type Envelope struct {
	*pb.Envelope
	Hash Hash
}

// Position returns where the envelope stands in its bucket's chain.
func (e *Envelope) Position(stream string) Position {
	return Position{Stream: stream, Bucket: e.GetBucket(), Seq: e.GetSeq()}
}

// EncodeEnvelope returns the record value of e and the hash that the next envelope of its bucket carries.
func EncodeEnvelope(e *pb.Envelope) ([]byte, Hash, error) {
	value, err := e.MarshalVT()
	if err != nil {
		return nil, Hash{}, fmt.Errorf("encoding envelope: %w", err)
	}
	return value, sha256.Sum256(value), nil
}

// DecodeEnvelope reads a record value: it decodes, brings older versions up to date and checks the form. The envelope
// shares memory with value, which must not be changed any more. Errors are ErrNewer or ErrMalformed.
func DecodeEnvelope(value []byte) (*Envelope, error) {
	e := new(pb.Envelope)
	if err := e.UnmarshalVTUnsafe(value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := accept(e); err != nil {
		return nil, err
	}
	return &Envelope{Envelope: e, Hash: sha256.Sum256(value)}, nil
}

// accept checks what was decoded, and brings it up to date.
func accept(e *pb.Envelope) error {
	if e.GetSchemaVersion() > SchemaVersion {
		return fmt.Errorf("%w: version %d", ErrNewer, e.GetSchemaVersion())
	}
	if err := checkForm(e); err != nil {
		return err
	}
	upcast(e)
	return nil
}

func checkForm(e *pb.Envelope) error {
	switch {
	case e.GetSchemaVersion() == 0:
		return fmt.Errorf("%w: no schema version", ErrMalformed)
	case len(e.GetPrevHash()) != len(Hash{}):
		return fmt.Errorf("%w: previous hash of %d bytes", ErrMalformed, len(e.GetPrevHash()))
	case e.GetSeq() == 0 || e.GetCommandOffset() < 0 || e.GetLowWatermark() < 0:
		return fmt.Errorf("%w: sequence 0 or a negative offset", ErrMalformed)
	case e.GetStamp() == nil || e.GetOutcome() == nil:
		return fmt.Errorf("%w: no stamp or no outcome", ErrMalformed)
	}
	for _, event := range e.GetEvents() {
		if EventType(event) == "" {
			return fmt.Errorf("%w: an event of unknown kind", ErrMalformed)
		}
	}
	return nil
}

// upcast turns what older schema versions wrote into what this one means. Version 1 is the first.
func upcast(*pb.Envelope) {}
