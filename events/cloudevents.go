package events

import (
	"strconv"
	"time"
)

// Attribute is one CloudEvents attribute as a record header.
type Attribute struct {
	Key   string
	Value string
}

// CloudEvent returns the headers of an envelope's record, in the binary mode of the CloudEvents Kafka protocol binding
// 1.0.2. The type is that of the first event, or says that the command was refused or repeated.
func CloudEvent(stream string, e *Envelope) []Attribute {
	kind := "envelope"
	if list := e.GetEvents(); len(list) > 0 {
		kind = EventType(list[0])
	}
	position := e.Position(stream).String()
	return []Attribute{
		{"ce_specversion", "1.0"},
		{"ce_id", position + "/" + strconv.FormatInt(e.GetCommandOffset(), 10)},
		{"ce_source", "/hoplog/" + stream},
		{"ce_type", "hoplog." + kind + ".v" + strconv.Itoa(SchemaVersion)},
		{"ce_subject", position},
		{"ce_time", time.UnixMicro(e.GetStamp().GetTimeUs()).UTC().Format(time.RFC3339Nano)},
		{"content-type", "application/protobuf"},
	}
}
