package gateway

import "net/netip"

// Click is one redirect that was answered, as the data plane hands it to the recorder. All slices are borrowed: the
// recorder copies what it needs before Record returns.
//
// UserAgent, Referrer, Query and Address are what the visitor sent. None of them reaches the spool or the log: what is kept
// of them is said at pb.Click.
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

// Bytes of a click that are looked at. What is longer is cut: no User-Agent of a browser is that long, of a referrer only
// the host counts, and namespaces and codes are shorter by their rules.
const (
	clickMaxNamespace = 512
	clickMaxCode      = 1024
	clickMaxUserAgent = 512
	clickMaxReferrer  = 512
	clickMaxQuery     = 4096
)

// clickMaxBytes bounds one encoded click: the strings above, five campaign values, a referrer's host, and what is short.
const clickMaxBytes = 4096

func clickCut(s []byte, most int) []byte {
	if len(s) > most {
		return s[:most]
	}
	return s
}
