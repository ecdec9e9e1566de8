package h2

import (
	"bytes"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// Writer takes one answer.
type Writer struct {
	block   *bytes.Buffer
	encoder *hpack.Encoder
	body    []byte
}

// newWriter makes a Writer that keeps no table of what it wrote before: a target in it would only push out what repeats.
func newWriter() Writer {
	w := Writer{block: &bytes.Buffer{}}
	w.encoder = hpack.NewEncoder(w.block)
	w.encoder.SetMaxDynamicTableSize(0)
	return w
}

func (w *Writer) begin() {
	w.block.Reset()
	w.body = nil
}

// Begin begins an answer.
func (w *Writer) Begin(status int) { w.Field(":status", strconv.Itoa(status)) }

// Field adds a header; the name is in lower case.
func (w *Writer) Field(name, value string) {
	_ = w.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
}

// End ends an answer with its body, which must never change.
func (w *Writer) End(body []byte) { w.body = body }
