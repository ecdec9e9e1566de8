package projections

import (
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Stored is where records lie, as the events before have left them; nil: there is none.
type Stored interface {
	Get(key []byte) ([]byte, error)
}

// NextRedirect makes r the record of a link after an event that changes it: the one that is stored under key, evolved. A created
// link has none: codes are never given out again.
func NextRedirect(r *pb.Redirect, stored Stored, key []byte, event *pb.Event) error {
	r.Reset()
	if event.GetLinkCreated() == nil {
		value, err := stored.Get(key)
		if err != nil {
			return err
		}
		if value == nil {
			return fmt.Errorf("%s changes a link that was never created", events.EventType(event))
		}
		if err := r.UnmarshalVT(value); err != nil {
			return fmt.Errorf("decoding the stored record: %w", err)
		}
	}
	EvolveRedirect(r, event)
	return nil
}

// EvolveRedirect folds one event into the record that redirect nodes serve from, in place. The zero record is a link that
// does not exist yet. An event of the control stream changes nothing.
func EvolveRedirect(r *pb.Redirect, event *pb.Event) {
	switch kind := event.GetKind().(type) {
	case *pb.Event_LinkCreated:
		e := kind.LinkCreated
		r.LinkId, r.Version = e.GetLink().GetLinkId(), 1
		r.Owner = events.OwnerHash(e.GetLink().GetOwner())
		setContent(r, e.GetContent())
	case *pb.Event_LinkUpdated:
		e := kind.LinkUpdated
		r.Version = e.GetVersion()
		r.Owner = events.OwnerHash(e.GetLink().GetOwner())
		setContent(r, e.GetContent())
	case *pb.Event_LinkStatusChanged:
		e := kind.LinkStatusChanged
		r.Version = e.GetVersion()
		r.Owner = events.OwnerHash(e.GetLink().GetOwner())
		setStatus(r, e)
	}
}

func setContent(r *pb.Redirect, c *pb.LinkContent) {
	r.Target = c.GetTarget()
	r.RedirectStatus = c.GetRedirectStatus()
	r.Query = c.GetQuery()
	r.CacheTtl = c.GetCacheTtl()
	r.NotBeforeUs = c.GetNotBeforeUs()
	r.ExpiresUs = c.GetExpiresUs()
	r.ExpiredUrl = c.GetExpiredUrl()
}

func setStatus(r *pb.Redirect, e *pb.LinkStatusChanged) {
	switch e.GetAction() {
	case pb.StatusAction_DISABLE:
		r.Disabled = true
	case pb.StatusAction_ENABLE:
		r.Disabled = false
	case pb.StatusAction_BAN:
		r.Banned, r.BannedLegal = true, e.GetLegal()
	case pb.StatusAction_UNBAN:
		r.Banned, r.BannedLegal = false, false
	case pb.StatusAction_DELETE:
		r.Deleted = true
	}
}
