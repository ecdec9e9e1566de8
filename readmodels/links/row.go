package links

import (
	"fmt"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// A row is a link as it is: a byte for the form, and a message. Of a link that never changed, which most do not, the first entry
// of its history is all that is kept.
const (
	formCreated = 1 // pb.HistoryEntry of version 1
	formChanged = 2 // pb.Link; the history stands under keys of its own
)

// appendRow appends a row to dst.
func appendRow(dst []byte, form byte, m runner.Message) ([]byte, error) {
	from, n := len(dst)+1, m.SizeVT()
	dst = append(append(dst, form), make([]byte, n)...)
	if _, err := m.MarshalToSizedBufferVT(dst[from:]); err != nil {
		return dst, fmt.Errorf("encoding a link: %w", err)
	}
	return dst, nil
}

// firstEntry returns the entry in the row of a link that never changed; nil of one that did.
func firstEntry(row []byte) []byte {
	if len(row) == 0 || row[0] != formCreated {
		return nil
	}
	return row[1:]
}

// decodeRow returns the link of a row.
func decodeRow(row []byte) (*pb.Link, error) {
	if first := firstEntry(row); first != nil {
		entry, err := decodeEntry(first)
		return projections.EvolveLink(nil, entry), err
	}
	link := &pb.Link{}
	if len(row) == 0 || row[0] != formChanged {
		return nil, fmt.Errorf("stored link of an unknown form: %.8x", row)
	}
	if err := link.UnmarshalVT(row[1:]); err != nil {
		return nil, fmt.Errorf("decoding a stored link: %w", err)
	}
	return link, nil
}

func decodeEntry(value []byte) (*pb.HistoryEntry, error) {
	entry := &pb.HistoryEntry{}
	if err := entry.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("decoding an entry of a history: %w", err)
	}
	return entry, nil
}
