package eventlog

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// wire writes a record as brokers keep it.
func wire(key, value []byte, headers ...Header) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, -70_000)
	body = binary.AppendVarint(body, 3)
	for _, b := range [][]byte{key, value} {
		if b == nil {
			body = binary.AppendVarint(body, -1)
			continue
		}
		body = append(binary.AppendVarint(body, int64(len(b))), b...)
	}
	body = binary.AppendVarint(body, int64(len(headers)))
	for _, h := range headers {
		body = append(binary.AppendVarint(body, int64(len(h.Key))), h.Key...)
		body = append(binary.AppendVarint(body, int64(len(h.Value))), h.Value...)
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func TestHeadersAreRemoved(t *testing.T) {
	header := Header{Key: "ce_id", Value: bytes.Repeat([]byte{7}, 40)}
	long := bytes.Repeat([]byte("v"), 40)
	with := bytes.Join([][]byte{wire([]byte{1, 2}, long, header, header), wire(nil, nil, header), wire([]byte{3}, []byte{}), wire(nil, bytes.Repeat(long, 300), header)}, nil)
	want := bytes.Join([][]byte{wire([]byte{1, 2}, long), wire(nil, nil), wire([]byte{3}, []byte{}), wire(nil, bytes.Repeat(long, 300))}, nil)
	if got := withoutHeaders(with); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestWhatCannotBeReadStays(t *testing.T) {
	header := Header{Key: "ce_id", Value: []byte("x")}
	good, bad := wire([]byte{1}, []byte("value"), header), wire([]byte{1}, []byte("value"), header)
	for _, bad := range [][]byte{bad[:len(bad)-1], bad[:3], {0x7f}, {0}, {1}, {0xff, 0xff}} {
		want := append(wire([]byte{1}, []byte("value")), bad...)
		if got := withoutHeaders(append(bytes.Clone(good), bad...)); !bytes.Equal(got, want) {
			t.Errorf("%x: got %x, want %x", bad, got, want)
		}
	}
}

func FuzzWithoutHeaders(f *testing.F) {
	f.Add(append(wire([]byte{1, 2}, []byte("value"), Header{Key: "k", Value: []byte("v")}), wire(nil, nil)...))
	f.Add([]byte{0xff, 0x01})
	f.Fuzz(func(t *testing.T, in []byte) {
		out := withoutHeaders(bytes.Clone(in))
		if len(out) > len(in) {
			t.Fatalf("%d bytes became %d", len(in), len(out))
		}
		if again := withoutHeaders(bytes.Clone(out)); !bytes.Equal(again, out) {
			t.Fatalf("twice: %x, once: %x", again, out)
		}
	})
}
