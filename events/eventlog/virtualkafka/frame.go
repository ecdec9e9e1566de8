package virtualkafka

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind says what a request is for.
type Kind uint8

// The kinds of requests.
const (
	Other   Kind = iota // metadata, offsets, sessions
	Produce             // appends
	Fetch               // reads
	Group               // membership: joins and heartbeats
)

// frame is one request or answer as it travels: its length and its bytes.
type frame []byte

const maxFrame = 64 << 20

func readFrame(r io.Reader) (frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	f := make(frame, 4+n)
	copy(f, length[:])
	_, err := io.ReadFull(r, f[4:])
	return f, err
}

func (f frame) key() int16 {
	if len(f) < 8 {
		return -1
	}
	return int16(binary.BigEndian.Uint16(f[4:]))
}

func (f frame) kind() Kind {
	switch kmsg.Key(f.key()) {
	case kmsg.Produce:
		return Produce
	case kmsg.Fetch:
		return Fetch
	case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup:
		return Group
	}
	return Other
}

// topic returns the topic of a produce or fetch request, "" if the request names none: one client of the product has one.
func (f frame) topic(nameOf func(id [16]byte) string) string {
	request := kmsg.RequestForKey(f.key())
	reader := kbin.Reader{Src: f[4:]}
	reader.Int16()
	request.SetVersion(reader.Int16())
	reader.Int32()
	reader.NullableString()
	if request.IsFlexible() {
		kmsg.SkipTags(&reader)
	}
	if request.ReadFrom(reader.Src) != nil {
		return ""
	}
	switch r := request.(type) {
	case *kmsg.ProduceRequest:
		for i := range r.Topics {
			return orName(r.Topics[i].Topic, nameOf(r.Topics[i].TopicID))
		}
	case *kmsg.FetchRequest:
		for i := range r.Topics {
			return orName(r.Topics[i].Topic, nameOf(r.Topics[i].TopicID))
		}
	}
	return ""
}

func orName(name, otherwise string) string {
	if name != "" {
		return name
	}
	return otherwise
}
