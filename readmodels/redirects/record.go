package redirects

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Record is a link as a redirect node serves it: one piece of memory without pointers, so that the collector has nothing to
// follow. It is shared and never changed.
//
// What has no fixed size follows the struct in the same allocation: times, if any is set, then route key and target, and what
// few links have: where visitors are sent once the link is no longer in use, after its length.
type Record struct {
	LinkID  uint64
	Version uint64
	// Owner stands for the owner's name (events.OwnerHash); 0: not known.
	Owner   uint64
	used    atomic.Uint32 // how often it was asked for since the hand passed, up to usedMost
	keySize uint16
	size    uint16 // of the target
	words   uint16 // of eight bytes that the record takes
	Bucket  uint16
	// Status is the HTTP status that the link is served with while it is active.
	Status uint16
	Query  uint8 // a pb.QueryPolicy
	Flags  Flags
	fresh  bool // of the shard's lock; see evict.go
}

// Flags say what is not as usual with a link; 0 is an active link without any times.
type Flags uint8

// The flags of a record.
const (
	Disabled Flags = 1 << iota
	Banned
	BannedLegal
	Deleted
	timed      // times follow the struct
	redirected // the length and the bytes of ExpiredURL follow the target
	absent     // no link: what was not found, until the time in Version
)

// times are what few links have.
type times struct {
	notBeforeUS, expiresUS int64
	cacheTTL               uint64
}

const (
	recordSize = unsafe.Sizeof(Record{})
	timesSize  = unsafe.Sizeof(times{})
	lengthSize = 2 // bytes of the length of ExpiredURL
)

// NewRecord packs what the store holds of a link; nil if it does not fit, which no decider lets happen. Nothing of what it is
// given is kept.
func NewRecord(routeKey []byte, bucket uint32, from *pb.Redirect) *Record {
	t := times{from.GetNotBeforeUs(), from.GetExpiresUs(), uint64(from.GetCacheTtl())}
	flags := flagsOf(from)
	if t != (times{}) {
		flags |= timed
	}
	if from.GetExpiredUrl() != "" {
		flags |= redirected
	}
	r := allocate(routeKey, from.GetTarget(), from.GetExpiredUrl(), flags)
	if r == nil {
		return nil
	}
	r.LinkID, r.Version, r.Owner, r.Bucket = from.GetLinkId(), from.GetVersion(), from.GetOwner(), uint16(bucket)
	r.Status, r.Query = uint16(readmodels.RedirectStatus(from.GetRedirectStatus())), uint8(from.GetQuery())
	if flags&timed != 0 {
		*r.times() = t
	}
	return r
}

// newAbsent is the record of a key that the store did not hold, which counts until a time on the store's clock.
func newAbsent(routeKey []byte, until int64) *Record {
	r := allocate(routeKey, "", "", absent)
	if r != nil {
		r.Version = uint64(until)
	}
	return r
}

// allocate makes a record with key, target and, with the flag redirected, the other URL. Memory of words has no pointers and is
// aligned for the struct.
func allocate(routeKey []byte, target, expired string, flags Flags) *Record {
	head := recordSize
	if flags&timed != 0 {
		head += timesSize
	}
	size := int(head) + len(routeKey) + len(target)
	if flags&redirected != 0 {
		size += lengthSize + len(expired)
	}
	if max(len(routeKey), len(target), len(expired), (size+7)/8) > math.MaxUint16 {
		return nil
	}
	words := slices.Grow([]uint64(nil), (size+7)/8)
	words = words[:cap(words)]
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	copy(memory[head:], routeKey)
	copy(memory[int(head)+len(routeKey):], target)
	if flags&redirected != 0 {
		tail := memory[int(head)+len(routeKey)+len(target):]
		binary.LittleEndian.PutUint16(tail, uint16(len(expired)))
		copy(tail[lengthSize:], expired)
	}
	r := (*Record)(unsafe.Pointer(unsafe.SliceData(words)))
	r.keySize, r.size, r.words, r.Flags = uint16(len(routeKey)), uint16(len(target)), uint16(len(words)), flags
	return r
}

func flagsOf(from *pb.Redirect) (f Flags) {
	for _, is := range [...]struct {
		set  bool
		flag Flags
	}{{from.GetDisabled(), Disabled}, {from.GetBanned(), Banned}, {from.GetBannedLegal(), BannedLegal}, {from.GetDeleted(), Deleted}} {
		if is.set {
			f |= is.flag
		}
	}
	return f
}

// at returns what lies behind the struct. The string holds on to the record, whose bytes never change.
func (r *Record) at(offset uintptr, size uint16) string {
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(r), offset)), int(size))
}

func (r *Record) times() *times { return (*times)(unsafe.Add(unsafe.Pointer(r), recordSize)) }

func (r *Record) head() uintptr {
	if r.Flags&timed != 0 {
		return recordSize + timesSize
	}
	return recordSize
}

// RouteKey returns the link's route key. It costs nothing.
func (r *Record) RouteKey() string { return r.at(r.head(), r.keySize) }

// Target returns where the link leads. It costs nothing.
func (r *Record) Target() string { return r.at(r.head()+uintptr(r.keySize), r.size) }

// ExpiredURL returns where visitors are sent once the link is no longer in use; "": nowhere. It costs nothing.
func (r *Record) ExpiredURL() string {
	if r.Flags&redirected == 0 {
		return ""
	}
	at := r.head() + uintptr(r.keySize) + uintptr(r.size)
	length := r.at(at, lengthSize)
	return r.at(at+lengthSize, uint16(length[0])|uint16(length[1])<<8)
}

// NotBeforeUS and ExpiresUS are the link's times in microseconds, 0 if it has none.
func (r *Record) NotBeforeUS() int64 {
	if r.Flags&timed == 0 {
		return 0
	}
	return r.times().notBeforeUS
}

// ExpiresUS is when the link ends; see NotBeforeUS.
func (r *Record) ExpiresUS() int64 {
	if r.Flags&timed == 0 {
		return 0
	}
	return r.times().expiresUS
}

// CacheTTL is how many seconds others may keep the answer, 0 if they may not.
func (r *Record) CacheTTL() uint32 {
	if r.Flags&timed == 0 {
		return 0
	}
	return uint32(r.times().cacheTTL)
}

// AnswerAt returns what a visitor meets at a time in microseconds; nil is an unknown link.
func (r *Record) AnswerAt(nowUS int64) readmodels.Answer {
	switch {
	case r == nil:
		return readmodels.NotFound
	case r.Flags&^redirected == 0:
		return readmodels.Serve
	}
	var m pb.Redirect
	r.Message(&m)
	return readmodels.AnswerAt(&m, nowUS)
}

// Message fills in the record as the store has it; the target's bytes are the record's.
func (r *Record) Message(m *pb.Redirect) {
	m.LinkId, m.Version, m.Owner, m.Target = r.LinkID, r.Version, r.Owner, r.Target()
	m.RedirectStatus, m.Query = uint32(r.Status), pb.QueryPolicy(r.Query)
	m.ExpiredUrl = r.ExpiredURL()
	m.CacheTtl, m.NotBeforeUs, m.ExpiresUs = r.CacheTTL(), r.NotBeforeUS(), r.ExpiresUS()
	m.Disabled, m.Deleted = r.Flags&Disabled != 0, r.Flags&Deleted != 0
	m.Banned, m.BannedLegal = r.Flags&Banned != 0, r.Flags&BannedLegal != 0
}

// bytes is how much memory the record takes.
func (r *Record) bytes() int { return int(r.words) * 8 }
