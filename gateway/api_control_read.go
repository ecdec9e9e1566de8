package gateway

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Pages of the control plane.
const (
	defaultControlPage = 100
	maxControlPage     = 1000
)

// ListDenylist answers GET /v1/denylist.
func (a *api) ListDenylist(c *gin.Context, p ListDenylistParams) {
	a.listEntries(c, pb.ListName_DENYLIST, entryQuery{p.Kind, p.Q, p.Cursor, p.Limit}, p.HoplogPosition)
}

// ListAllowlist answers GET /v1/allowlist.
func (a *api) ListAllowlist(c *gin.Context, p ListAllowlistParams) {
	a.listEntries(c, pb.ListName_ALLOWLIST, entryQuery{p.Kind, p.Q, p.Cursor, p.Limit}, p.HoplogPosition)
}

// ListTrust answers GET /v1/trust.
func (a *api) ListTrust(c *gin.Context, p ListTrustParams) {
	a.listEntries(c, pb.ListName_TRUST, entryQuery{p.Kind, p.Q, p.Cursor, p.Limit}, p.HoplogPosition)
}

// GetFromDenylist answers GET /v1/denylist/{id}.
func (a *api) GetFromDenylist(c *gin.Context, id EntryID, p GetFromDenylistParams) {
	a.getEntry(c, pb.ListName_DENYLIST, id, p.HoplogPosition)
}

// GetFromAllowlist answers GET /v1/allowlist/{id}.
func (a *api) GetFromAllowlist(c *gin.Context, id EntryID, p GetFromAllowlistParams) {
	a.getEntry(c, pb.ListName_ALLOWLIST, id, p.HoplogPosition)
}

// GetTrust answers GET /v1/trust/{id}.
func (a *api) GetTrust(c *gin.Context, id EntryID, p GetTrustParams) {
	a.getEntry(c, pb.ListName_TRUST, id, p.HoplogPosition)
}

// controlAt returns the control state for a read by an administrator, at the position that the read names or later.
func (a *api) controlAt(c *gin.Context, position *string) (*commands.Control, error) {
	if err := a.admin(c); err != nil {
		return nil, err
	}
	// Positions of links have no effect here.
	if err := a.awaitPosition(c.Request.Context(), position); err != nil {
		return nil, err
	}
	return a.Control.Current(), nil
}

func (a *api) getEntry(c *gin.Context, list pb.ListName, id string, position *string) {
	state, err := a.controlAt(c, position)
	if err != nil {
		a.fail(c, err)
		return
	}
	item := a.itemOf(state, list, id)
	if item == nil {
		a.fail(c, a.missing(notFound("the list has no such entry")))
		return
	}
	writeJSON(c, http.StatusOK, a.showEntry(item))
}

// entryQuery is what a list is asked for.
type entryQuery struct {
	kind, part, cursor *string
	limit              *int32
}

func (a *api) listEntries(c *gin.Context, list pb.ListName, q entryQuery, position *string) {
	state, err := a.controlAt(c, position)
	if err != nil {
		a.fail(c, err)
		return
	}
	limit, err := controlLimit(q.limit)
	if err != nil {
		a.fail(c, err)
		return
	}
	kind := orZero(q.kind)
	if _, known := commands.ParseListKind(list, kind); kind != "" && !known {
		a.fail(c, invalid(fieldKind, "kind must be "+oneOf(commands.ListKinds(list))))
		return
	}
	after, err := nameCursor(q.cursor)
	if err != nil {
		a.fail(c, err)
		return
	}
	page := ListPage{Entries: []ListEntry{}, Position: controlPosition(state.Seq)}
	items := entriesAfter(state.Lists(), list, kind, strings.ToLower(orZero(q.part)), after)
	for _, item := range items[:min(limit, len(items))] {
		page.Entries = append(page.Entries, a.showEntry(item))
	}
	if len(items) > limit {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(entryOrder(items[limit-1])))
		page.NextCursor = &cursor
	}
	writeJSON(c, http.StatusOK, page)
}

// entryOrder is what a list is sorted by.
func entryOrder(i *commands.ListItem) string {
	return commands.ListKindOf(i.GetKind()) + "\x00" + i.GetValue()
}

// entriesAfter returns the entries of a list that match, in order.
func entriesAfter(lists *commands.Lists, list pb.ListName, kind, part, after string) (items []*commands.ListItem) {
	lists.Each(list, func(i *commands.ListItem) bool {
		if (kind == "" || commands.ListKindOf(i.GetKind()) == kind) && strings.Contains(strings.ToLower(i.GetValue()), part) && entryOrder(i) > after {
			items = append(items, i)
		}
		return true
	})
	slices.SortFunc(items, func(x, y *commands.ListItem) int { return cmp.Compare(entryOrder(x), entryOrder(y)) })
	return items
}

func controlLimit(given *int32) (int, error) {
	if given == nil {
		return defaultControlPage, nil
	}
	if *given < 1 || *given > maxControlPage {
		return 0, invalid("limit", "limit must be 1 to "+strconv.Itoa(maxControlPage))
	}
	return int(*given), nil
}

// sequenceCursor reads the cursor of a list that goes by control positions; 0: its beginning.
func sequenceCursor(cursor *string) (uint64, error) {
	seq, err := strconv.ParseUint(cmp.Or(orZero(cursor), "0"), 10, 64)
	if err != nil {
		return 0, invalidCursor()
	}
	return seq, nil
}

// nameCursor reads the cursor of a list that goes by names; empty: its beginning.
func nameCursor(cursor *string) (string, error) {
	name, err := base64.RawURLEncoding.DecodeString(orZero(cursor))
	if err != nil {
		return "", invalidCursor()
	}
	return string(name), nil
}

func invalidCursor() *commands.Refusal {
	return invalid("cursor", "the cursor is not one of this list")
}

func controlPosition(seq uint64) string {
	return events.Position{Stream: events.StreamControl, Bucket: events.ControlBucket, Seq: seq}.String()
}

// showEntry returns the API's form of an entry.
func (a *api) showEntry(i *commands.ListItem) ListEntry {
	shown := ListEntry{Id: commands.ListID(i.GetList(), i.GetKind(), i.GetValue()), List: commands.ListNameOf(i.GetList()), Kind: commands.ListKindOf(i.GetKind()),
		Value: i.GetValue(), Note: i.GetNote(), ExpiresAt: optionalTime(i.GetExpiresUs()), Active: i.Counts(a.Now().UnixMicro()), AddedAt: utc(i.AddedUS),
		Actor: i.Actor, Position: controlPosition(i.Seq)}
	shown.Reason, shown.Tier = judgementOf(i.ListEntry)
	return shown
}

func judgementOf(e *pb.ListEntry) (reason *DenyReason, tier *TrustTier) {
	switch e.GetList() {
	case pb.ListName_DENYLIST:
		r := DenyReasonAbuse
		if e.GetLegal() {
			r = DenyReasonLegal
		}
		return &r, nil
	case pb.ListName_TRUST:
		t := TrustTier(commands.TierName(e.GetTier()))
		return nil, &t
	}
	return nil, nil
}

// ListSwitches answers GET /v1/switches.
func (a *api) ListSwitches(c *gin.Context, p ListSwitchesParams) {
	state, err := a.controlAt(c, p.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	list := SwitchList{}
	for _, tier := range commands.TrustTiers {
		list.Switches = append(list.Switches, a.showSwitch(state, tier))
	}
	writeJSON(c, http.StatusOK, list)
}

// showSwitch returns the API's form of a tier's switch.
func (a *api) showSwitch(state *commands.Control, tier pb.TrustTier) Switch {
	now := a.Now().UnixMicro()
	s := state.Switch(tier)
	shown := Switch{Tier: TrustTier(commands.TierName(tier)), State: switchState(s.Closed), Summary: commands.SwitchAnswer(s, now), Note: s.Note, Actors: []string{},
		ChangedAt: optionalTime(s.ChangedUS)}
	if s.ChangedUS != 0 {
		shown.Actors = s.Actors[:]
	}
	if p := s.Pending; p.Counts(now) {
		shown.Pending = &SwitchPending{State: switchState(p.Closed), Actor: p.Actor, At: utc(p.TimeUS), Until: utc(p.TimeUS + commands.SwitchWindow), Note: p.Note}
	}
	return shown
}

func switchState(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}

// ListAudit answers GET /v1/audit.
func (a *api) ListAudit(c *gin.Context, p ListAuditParams) {
	state, err := a.controlAt(c, p.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	limit, err := controlLimit(p.Limit)
	if err != nil {
		a.fail(c, err)
		return
	}
	before, err := sequenceCursor(p.Cursor)
	if err != nil {
		a.fail(c, err)
		return
	}
	of, known := auditedAs(orZero(p.Of))
	if !known {
		a.fail(c, invalid("of", "of must be denylist, allowlist, trust, switches, keys or domains"))
		return
	}
	page := AuditPage{Events: []AuditEvent{}, Position: controlPosition(state.Seq)}
	last := uint64(0)
	state.Changes(before, func(change *commands.ControlChange) bool {
		shown, matches := auditEvent(change, of, strings.ToLower(orZero(p.Q)))
		if !matches {
			return true
		}
		if len(page.Events) == limit {
			cursor := strconv.FormatUint(last, 10)
			page.NextCursor = &cursor
			return false
		}
		page.Events, last = append(page.Events, shown), change.Seq
		return true
	})
	writeJSON(c, http.StatusOK, page)
}

// auditedAs returns how the types of events begin that an audit is asked for.
func auditedAs(of string) (prefix string, known bool) {
	switch of {
	case "":
		return "", true
	case "switches":
		return "switch.", true
	case "keys":
		return "key.", true
	case "domains":
		return "domain.", true
	}
	_, known = commands.ParseListName(of)
	return of + ".", known
}

// auditEvent returns the API's form of a change, and whether it is of what is asked for.
func auditEvent(change *commands.ControlChange, of, part string) (AuditEvent, bool) {
	shown := AuditEvent{Type: events.EventType(change.Event), Time: utc(change.TimeUS), Actor: change.Actor, Position: controlPosition(change.Seq)}
	about := ""
	if key, note := keyOf(change.Event); key != nil {
		id, owner, admin := key.GetId(), key.GetOwner(), key.GetAdmin()
		shown.Id, shown.Owner, shown.Admin, shown.Note = &id, &owner, &admin, note
		about = id + " " + owner
	} else if d := change.GetDomainUpdated().GetDomain(); d != nil {
		namespace := d.GetNamespace()
		shown.Domain, shown.Owner, shown.NotFoundUrl = &namespace, optionalText(d.GetOwner()), optionalText(d.GetNotFoundUrl())
		about = namespace
	} else if s := change.GetSwitchChanged(); s != nil {
		tier, state := TrustTier(commands.TierName(s.GetTier())), switchState(s.GetClosed())
		shown.Tier, shown.State, shown.Note = &tier, &state, s.GetNote()
		about = string(tier)
	} else {
		entry := change.GetListEntryAdded().GetEntry()
		shown.Note = entry.GetNote()
		if removed := change.GetListEntryRemoved(); removed != nil {
			entry, shown.Note = removed.GetEntry(), removed.GetNote()
		}
		id, kind, value := commands.ListID(entry.GetList(), entry.GetKind(), entry.GetValue()), commands.ListKindOf(entry.GetKind()), entry.GetValue()
		shown.Id, shown.Kind, shown.Value, shown.ExpiresAt = &id, &kind, &value, optionalTime(entry.GetExpiresUs())
		shown.Reason, shown.Tier = judgementOf(entry)
		about = value
	}
	return shown, strings.HasPrefix(shown.Type, of) && strings.Contains(strings.ToLower(about), part)
}

// keyOf returns the key that an event is about, nil if it is about none, and why it happened.
func keyOf(event *pb.Event) (*pb.ApiKey, string) {
	switch kind := event.GetKind().(type) {
	case *pb.Event_KeyAdded:
		return kind.KeyAdded.GetKey(), kind.KeyAdded.GetKey().GetNote()
	case *pb.Event_KeyRevoked:
		return kind.KeyRevoked.GetKey(), kind.KeyRevoked.GetNote()
	}
	return nil, ""
}
