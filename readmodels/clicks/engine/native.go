package engine

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The Native format differs by protocol revision. The library writes revision 0; a server writes what the
// client_protocol_version of the request asks for: from revision 1 on a block info before each block, from 54454 on
// a byte after each column's type that says whether a special serialization follows (we never have one). All other
// bytes are equal, so blocks are not decoded: columns are measured and copied.
const revisionCustomSerialization = 54454

var blockInfo = []byte{1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0} // not overflowed, no bucket

// writeNative copies the blocks of data, which must be whole, to w as the given revision has them.
func writeNative(w io.Writer, data []byte, revision uint64) error {
	if revision == 0 {
		_, err := w.Write(data)
		return err
	}
	r := &nativeReader{data: data}
	for r.pos < len(r.data) {
		if err := writeBlock(w, r, revision); err != nil {
			return err
		}
	}
	return nil
}

func writeBlock(w io.Writer, r *nativeReader, revision uint64) error {
	if _, err := w.Write(blockInfo); err != nil {
		return err
	}
	start := r.pos
	columns, rows := r.uvarint(), r.uvarint()
	for range columns {
		r.str()
		typeName := r.str()
		if r.err != nil {
			return r.err
		}
		if revision >= revisionCustomSerialization {
			if err := writeParts(w, r.data[start:r.pos], []byte{0}); err != nil {
				return err
			}
			start = r.pos
		}
		t, err := parseType(string(typeName))
		if err != nil {
			return err
		}
		if rows > 0 {
			t.skipPrefix(r)
			t.skip(r, rows)
		}
		if r.err != nil {
			return fmt.Errorf("reading column of type %s: %w", typeName, r.err)
		}
	}
	if r.err != nil {
		return r.err
	}
	return writeParts(w, r.data[start:r.pos])
}

func writeParts(w io.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// nativeReader walks over a block; after an error everything reads as zero.
type nativeReader struct {
	data []byte
	pos  int
	err  error
}

func (r *nativeReader) advance(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.data)-r.pos) {
		if r.err == nil {
			r.err = io.ErrUnexpectedEOF
		}
		return nil
	}
	start := r.pos
	r.pos += int(n)
	return r.data[start:r.pos]
}

// skip moves over count values of size bytes each.
func (r *nativeReader) skip(count, size uint64) {
	if size != 0 && count > uint64(len(r.data))/size+1 {
		count = uint64(len(r.data)) + 1 // too many in any case; the product below must not overflow
		size = 1
	}
	r.advance(count * size)
}

func (r *nativeReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.data[r.pos:])
	if n <= 0 {
		r.err = io.ErrUnexpectedEOF
		return 0
	}
	r.pos += n
	return v
}

func (r *nativeReader) uint64() uint64 {
	b := r.advance(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (r *nativeReader) str() []byte { return r.advance(r.uvarint()) }
