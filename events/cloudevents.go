package events

import (
	"strconv"
	"time"
)

// Attribute is one CloudEvents attribute as a record header. The values share memory and must not be changed.
type Attribute struct {
	Key   string
	Value []byte
}

var (
	specVersion = []byte("1.0")
	contentType = []byte("application/protobuf")
)

// CloudEvent returns the headers of an envelope's record, in the binary mode of the CloudEvents Kafka protocol binding
// 1.0.2. The type is that of the first event, or says that the command was refused or repeated.
func CloudEvent(stream string, e *Envelope) []Attribute {
	kind := "envelope"
	if list := e.GetEvents(); len(list) > 0 {
		kind = EventType(list[0])
	}
	b := e.Position(stream).append(make([]byte, 0, 192))
	subject := len(b)
	b = strconv.AppendInt(append(b, '/'), e.GetCommandOffset(), 10)
	id := len(b)
	b = append(append(b, "/hoplog/"...), stream...)
	source := len(b)
	b = append(append(b, "hoplog."...), kind...)
	b = strconv.AppendInt(append(b, ".v"...), SchemaVersion, 10)
	name := len(b)
	b = time.UnixMicro(e.GetStamp().GetTimeUs()).UTC().AppendFormat(b, time.RFC3339Nano)
	return []Attribute{
		{"ce_specversion", specVersion},
		{"ce_id", b[:id:id]},
		{"ce_source", b[id:source:source]},
		{"ce_type", b[source:name:name]},
		{"ce_subject", b[:subject:subject]},
		{"ce_time", b[name:]},
		{"content-type", contentType},
	}
}
