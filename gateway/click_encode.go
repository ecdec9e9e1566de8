package gateway

import (
	"encoding/binary"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hoplog/hoplog/schemas/pb"
)

// clickSchemaVersion is that of pb.ClickBlock as written here.
const clickSchemaVersion = 1

// A block is a pb.ClickBlock as bytes: a prefix that says whose clicks follow, and then one entry of its field clicks per
// click. A segment of the spool is that from its first byte, so the sender does nothing but read it; and what must not be
// kept of a visitor (the full address, the referrer's path, the User-Agent) is left out before anything is stored.
//
// The fields are written by hand, in the order of their numbers: the generated code would have to be handed a pb.Click for
// each, which costs more than all else. A test holds it against the schema.

func clickBlockPrefix(node, region string, boot [16]byte, partition int32) []byte {
	block := pb.ClickBlock{SchemaVersion: clickSchemaVersion, Node: node, Boot: boot[:], Partition: uint32(partition), Region: region}
	prefix, err := block.MarshalVT()
	if err != nil {
		panic(err) // a bug of the generated code
	}
	return prefix
}

// Tags are one byte up to field 15, two bytes from 16.
const (
	clickVarint = 0
	clickFixed  = 1
	clickBytes  = 2

	clickEntryTag = 6<<3 | clickBytes
)

// clickEncoder writes the clicks of one partition. It is not safe for concurrent use.
type clickEncoder struct {
	referrer [clickMaxReferrer]byte
	query    [clickMaxQuery]byte
	campaign pb.Click // its campaign fields only
	network  [16]byte
}

// append appends the click as an entry of a block. agent and visitor are those of the click.
func (e *clickEncoder) append(to []byte, c *Click, sequence uint64, agent *clickKnownAgent, visitor uint64) []byte {
	start := len(to)
	to = append(to, clickEntryTag, 0, 0) // a length below 16384 in two bytes, the first of them padded
	to = appendClickNumber(to, 1, sequence)
	to = appendClickNumber(to, 2, c.LinkID)
	to = appendClickString(to, 3, c.Namespace[:min(len(c.Namespace), clickMaxNamespace)])
	to = appendClickString(to, 4, clickView(clickCut(c.Code, clickMaxCode)))
	to = appendClickNumber(to, 5, c.Version)
	to = appendClickNumber(to, 6, uint64(c.TimeUS))
	to = appendClickNumber(to, 7, uint64(uint32(c.Status)))
	class := agent.class
	if c.Prefetch && class == pb.ClickClass_HUMAN {
		class = pb.ClickClass_PREVIEW
	}
	to = appendClickNumber(to, 8, uint64(class))
	referrer := e.referrer[:copy(e.referrer[:], c.Referrer)]
	to = appendClickString(to, 11, clickView(clickReferrerHost(referrer)))
	to = append(to, agent.encoded...)
	to = e.appendCampaign(to, c.Query)
	if visitor != 0 {
		to = append(to, 21<<3&0x7F|clickFixed|0x80, 21>>4)
		to = binary.LittleEndian.AppendUint64(to, visitor)
	}
	to = appendClickString(to, 22, clickView(clickTruncate(c.Address, e.network[:0])))
	size := len(to) - start - 3
	to[start+1], to[start+2] = byte(size)|0x80, byte(size>>7)
	return to
}

func (e *clickEncoder) appendCampaign(to, query []byte) []byte {
	query = clickUsefulQuery(query)
	if query == nil {
		return to
	}
	c := &e.campaign
	c.UtmSource, c.UtmMedium, c.UtmCampaign, c.UtmTerm, c.UtmContent = "", "", "", "", ""
	clickReadUTM(c, e.query[:copy(e.query[:], query)])
	to = appendClickString(to, 15, c.UtmSource)
	to = appendClickString(to, 16, c.UtmMedium)
	to = appendClickString(to, 17, c.UtmCampaign)
	to = appendClickString(to, 18, c.UtmTerm)
	return appendClickString(to, 19, c.UtmContent)
}

// appendClickNumber and appendClickString leave out what is zero or empty, as proto3 does.
func appendClickNumber(to []byte, field byte, n uint64) []byte {
	if n == 0 {
		return to
	}
	return protowire.AppendVarint(append(to, field<<3|clickVarint), n) // only fields below 16 are numbers
}

func appendClickString(to []byte, field byte, s string) []byte {
	if s == "" {
		return to
	}
	if field < 16 {
		to = append(to, field<<3|clickBytes)
	} else {
		to = append(to, field<<3&0x7F|clickBytes|0x80, field>>4)
	}
	if len(s) < 0x80 {
		to = append(to, byte(len(s)))
	} else {
		to = append(to, byte(len(s))|0x80, byte(len(s)>>7)) // all strings are cut to fewer bytes than 16384
	}
	return append(to, s...)
}

// clickView lets bytes pass as a string. They stay unchanged while it is in use.
func clickView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
