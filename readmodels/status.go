package readmodels

import (
	"cmp"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Status of a link at a moment, as the API shows it.
const (
	StatusScheduled = "scheduled"
	StatusActive    = "active"
	StatusExpired   = "expired"
	StatusDisabled  = "disabled"
	StatusBanned    = "banned"
	StatusDeleted   = "deleted"
)

// ValidStatus reports whether s is one of the statuses.
func ValidStatus(s string) bool {
	switch s {
	case StatusScheduled, StatusActive, StatusExpired, StatusDisabled, StatusBanned, StatusDeleted:
		return true
	}
	return false
}

// StatusAt returns a link's status at a time in microseconds. What somebody decided comes before what the clock says, and
// the harder to undo before the easier. A link is active from not_before on and expired from expires_at on.
func StatusAt(link *pb.Link, nowUS int64) string {
	return statusAt(link.GetDeleted(), link.GetBanned(), link.GetDisabled(),
		link.GetContent().GetNotBeforeUs(), link.GetContent().GetExpiresUs(), nowUS)
}

func statusAt(deleted, banned, disabled bool, notBeforeUS, expiresUS, nowUS int64) string {
	switch {
	case deleted:
		return StatusDeleted
	case banned:
		return StatusBanned
	case disabled:
		return StatusDisabled
	case expiresUS != 0 && nowUS >= expiresUS:
		return StatusExpired
	case notBeforeUS != 0 && nowUS < notBeforeUS:
		return StatusScheduled
	}
	return StatusActive
}

// Answer is what a visitor of a link meets.
type Answer uint8

// Answers, with the HTTP status that each stands for.
const (
	NotFound  Answer = iota // 404: no such link, or not yet valid
	Serve                   // the link's redirect status
	Gone                    // 410: expired, disabled or deleted
	Forbidden               // 403: banned
	Legal                   // 451: banned for a legal reason
)

// AnswerAt returns what a visitor meets at a time in microseconds; nil is an unknown link.
func AnswerAt(r *pb.Redirect, nowUS int64) Answer {
	if r == nil {
		return NotFound
	}
	switch statusAt(r.GetDeleted(), r.GetBanned(), r.GetDisabled(), r.GetNotBeforeUs(), r.GetExpiresUs(), nowUS) {
	case StatusActive:
		return Serve
	case StatusScheduled:
		return NotFound
	case StatusBanned:
		if r.GetBannedLegal() {
			return Legal
		}
		return Forbidden
	}
	return Gone
}

// RedirectStatus returns the HTTP status that a link is served with: what is stored of it, 302 for none.
func RedirectStatus(stored uint32) uint32 { return cmp.Or(stored, 302) }
