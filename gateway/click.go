package gateway

import (
	"encoding/binary"
	"net/netip"
)

// Click is one redirect that was answered, as the data plane hands it to the recorder. All slices are borrowed: the
// recorder copies what it needs before Record returns.
//
// UserAgent, Referrer, Query and Address are what the visitor sent. None of them reaches the log: what is kept of them
// is said at pb.Click.
type Click struct {
	LinkID  uint64
	Version uint64 // of the link, as served
	TimeUS  int64
	Status  int // of the answer

	Namespace string
	Code      []byte
	UserAgent []byte
	Referrer  []byte
	Query     []byte // raw, without '?'
	Address   netip.Addr

	// Prefetch: the browser fetched the link on its own account (Sec-Purpose), so no person has clicked yet.
	Prefetch bool
}

// Bytes of a click that are kept until it is encoded. What is longer is cut: no User-Agent of a browser is that long, of
// a referrer only the host counts, and namespaces and codes are shorter by their rules.
const (
	clickMaxNamespace = 512
	clickMaxCode      = 1024
	clickMaxUserAgent = 512
	clickMaxReferrer  = 512
	clickMaxQuery     = 4096
)

// clickFixedBytes is the part of a raw click before its strings: link, version, time, status, prefetch, address and
// five lengths.
const clickFixedBytes = 8 + 8 + 8 + 2 + 1 + 1 + 16 + 5*2

// clickMaxRawBytes bounds one raw click.
const clickMaxRawBytes = clickFixedBytes + clickMaxNamespace + clickMaxCode + clickMaxUserAgent + clickMaxReferrer + clickMaxQuery

// appendRawClick appends the click in the form that a block's arena holds: no pointers, nothing interpreted. The sequence
// is not in it: a block's clicks count up from its first.
func appendRawClick(arena []byte, c *Click) []byte {
	var fixed [clickFixedBytes]byte
	binary.LittleEndian.PutUint64(fixed[0:], c.LinkID)
	binary.LittleEndian.PutUint64(fixed[8:], c.Version)
	binary.LittleEndian.PutUint64(fixed[16:], uint64(c.TimeUS))
	binary.LittleEndian.PutUint16(fixed[24:], uint16(c.Status))
	if c.Prefetch {
		fixed[26] = 1
	}
	if c.Address.IsValid() {
		fixed[27] = 1
		address := c.Address.As16()
		copy(fixed[28:], address[:])
	}
	parts := [4][]byte{
		clickCut(c.Code, clickMaxCode), clickCut(c.UserAgent, clickMaxUserAgent), clickCut(c.Referrer, clickMaxReferrer),
		clickCut(clickUsefulQuery(c.Query), clickMaxQuery),
	}
	namespace := c.Namespace[:min(len(c.Namespace), clickMaxNamespace)]
	binary.LittleEndian.PutUint16(fixed[44:], uint16(len(namespace)))
	for i, part := range parts {
		binary.LittleEndian.PutUint16(fixed[46+2*i:], uint16(len(part)))
	}
	arena = append(arena, fixed[:]...)
	arena = append(arena, namespace...)
	for _, part := range parts {
		arena = append(arena, part...)
	}
	return arena
}

// cutRawClick takes the first raw click off the arena. The slices of the result share the arena's memory and may be
// changed in place.
func cutRawClick(arena []byte) (c Click, rest []byte) {
	fixed, rest := arena[:clickFixedBytes], arena[clickFixedBytes:]
	c.LinkID = binary.LittleEndian.Uint64(fixed[0:])
	c.Version = binary.LittleEndian.Uint64(fixed[8:])
	c.TimeUS = int64(binary.LittleEndian.Uint64(fixed[16:]))
	c.Status = int(binary.LittleEndian.Uint16(fixed[24:]))
	c.Prefetch = fixed[26] == 1
	if fixed[27] == 1 {
		c.Address = netip.AddrFrom16([16]byte(fixed[28:44])).Unmap()
	}
	n := binary.LittleEndian.Uint16(fixed[44:])
	c.Namespace, rest = clickView(rest[:n]), rest[n:]
	for i, part := range [4]*[]byte{&c.Code, &c.UserAgent, &c.Referrer, &c.Query} {
		n := binary.LittleEndian.Uint16(fixed[46+2*i:])
		*part, rest = rest[:n:n], rest[n:]
	}
	return c, rest
}

func clickCut(s []byte, most int) []byte {
	if len(s) > most {
		return s[:most]
	}
	return s
}
