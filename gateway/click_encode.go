package gateway

import (
	"unsafe"

	"github.com/hoplog/hoplog/schemas/pb"
)

// clickSchemaVersion is that of pb.ClickBlock as written here.
const clickSchemaVersion = 1

// clickEncoder turns one partition's raw blocks into records, one at a time, in memory that it uses again. Here, off the
// path of the visitor, is where a click loses what must not be kept: the full address, the referrer's path, the
// User-Agent.
type clickEncoder struct {
	block    pb.ClickBlock
	clicks   []*pb.Click
	agents   *clickAgents
	visitors *clickVisitors
	value    []byte
}

func newClickEncoder(r *ClickRecorder, partition int32) *clickEncoder {
	return &clickEncoder{
		block: pb.ClickBlock{
			SchemaVersion: clickSchemaVersion, Node: r.config.Node, Boot: r.boot[:], Partition: uint32(partition), Region: r.config.Region,
		},
		agents: r.agents, visitors: newClickVisitors(r.config.VisitorSecret),
	}
}

// encode returns the record's value, valid until the next call. It changes the block's arena.
func (e *clickEncoder) encode(block clickBlock) []byte {
	e.grow(int(block.clicks))
	rest := block.arena
	for i := range block.clicks {
		var raw Click
		raw, rest = cutRawClick(rest)
		e.fill(int(i), &raw, block.first+i)
	}
	e.block.Clicks = e.clicks[:block.clicks]
	size := e.block.SizeVT()
	if cap(e.value) < size {
		e.value = make([]byte, size+size/4)
	}
	n, err := e.block.MarshalToSizedBufferVT(e.value[:size])
	if err != nil || n != size {
		panic("click block does not fit the size it reported") // a bug of the generated code: nothing sent could be trusted
	}
	return e.value[:size]
}

func (e *clickEncoder) grow(clicks int) {
	for len(e.clicks) < clicks {
		e.clicks = append(e.clicks, &pb.Click{Ip: make([]byte, 0, 16)})
	}
}

func (e *clickEncoder) fill(i int, raw *Click, sequence uint64) {
	c := e.clicks[i]
	ip := c.Ip[:0]
	c.Reset()
	agent := e.agents.of(raw.UserAgent)
	c.Sequence, c.LinkId, c.Version, c.TimeUs, c.Status = sequence, raw.LinkID, raw.Version, raw.TimeUS, uint32(raw.Status)
	c.Namespace, c.Code = raw.Namespace, clickView(raw.Code)
	c.Class, c.Device, c.Os, c.Browser = agent.class, agent.device, agent.os, agent.browser
	if raw.Prefetch && c.Class == pb.ClickClass_HUMAN {
		c.Class = pb.ClickClass_PREVIEW
	}
	c.Visitor = e.visitors.number(raw.TimeUS, raw.Address, raw.UserAgent)
	c.Ip = clickTruncate(raw.Address, ip)
	c.ReferrerHost = clickView(clickReferrerHost(raw.Referrer))
	clickReadUTM(c, raw.Query)
}

// clickView lets bytes of an arena pass as a string. The arena lives, unchanged, until its block's record is made.
func clickView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
