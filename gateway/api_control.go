package gateway

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Writes to the control plane: for admin keys, decided by the writer of the control stream as links are by theirs.

// AddToDenylist answers POST /v1/denylist.
func (a *api) AddToDenylist(c *gin.Context, p AddToDenylistParams) {
	a.addEntry(c, pb.ListName_DENYLIST, p.IdempotencyKey)
}

// AddToAllowlist answers POST /v1/allowlist.
func (a *api) AddToAllowlist(c *gin.Context, p AddToAllowlistParams) {
	a.addEntry(c, pb.ListName_ALLOWLIST, p.IdempotencyKey)
}

// AddTrust answers POST /v1/trust.
func (a *api) AddTrust(c *gin.Context, p AddTrustParams) {
	a.addEntry(c, pb.ListName_TRUST, p.IdempotencyKey)
}

// RemoveFromDenylist answers DELETE /v1/denylist/{id}.
func (a *api) RemoveFromDenylist(c *gin.Context, id EntryID, p RemoveFromDenylistParams) {
	a.removeEntry(c, pb.ListName_DENYLIST, id, p.IdempotencyKey, p.Note)
}

// RemoveFromAllowlist answers DELETE /v1/allowlist/{id}.
func (a *api) RemoveFromAllowlist(c *gin.Context, id EntryID, p RemoveFromAllowlistParams) {
	a.removeEntry(c, pb.ListName_ALLOWLIST, id, p.IdempotencyKey, p.Note)
}

// RemoveTrust answers DELETE /v1/trust/{id}.
func (a *api) RemoveTrust(c *gin.Context, id EntryID, p RemoveTrustParams) {
	a.removeEntry(c, pb.ListName_TRUST, id, p.IdempotencyKey, p.Note)
}

// CloseSwitch answers POST /v1/switches/{tier}/close.
func (a *api) CloseSwitch(c *gin.Context, tier string, p CloseSwitchParams) {
	a.changeSwitch(c, tier, true, p.IdempotencyKey)
}

// OpenSwitch answers POST /v1/switches/{tier}/open.
func (a *api) OpenSwitch(c *gin.Context, tier string, p OpenSwitchParams) {
	a.changeSwitch(c, tier, false, p.IdempotencyKey)
}

func (a *api) addEntry(c *gin.Context, list pb.ListName, key *string) {
	d, err := a.controlDraft(c, key)
	if err != nil {
		a.fail(c, err)
		return
	}
	body, err := readBody(c, maxBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	entry, err := decodeEntry(body, list, d.control)
	if err != nil {
		a.fail(c, err)
		return
	}
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_AddListEntry{AddListEntry: entry}}, func(o controlOutcome) (int, any) {
		status := http.StatusOK
		if len(o.events) > 0 && !o.replayed {
			status = http.StatusCreated
		}
		return status, a.showEntry(o.item(a.Control.Current().Lists(), entry))
	})
}

func (a *api) removeEntry(c *gin.Context, list pb.ListName, id string, key, note *string) {
	d, err := a.controlDraft(c, key)
	if err != nil {
		a.fail(c, err)
		return
	}
	item := a.itemOf(d.control, list, id)
	if stored := d.control.Request(d.caller.GetOwner(), d.key); item == nil && stored != nil {
		item = (&controlOutcome{events: stored.Events}).item(nil, nil) // a repeat of what removed it
	}
	if item == nil || commands.ListID(list, item.GetKind(), item.GetValue()) != id {
		a.fail(c, a.missing(notFound("the list has no such entry")))
		return
	}
	command := &pb.RemoveListEntry{List: list, Kind: item.GetKind(), Value: item.GetValue(), Note: orZero(note)}
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_RemoveListEntry{RemoveListEntry: command}}, func(o controlOutcome) (int, any) {
		shown := a.showEntry(o.item(nil, item.ListEntry))
		shown.Active = false
		return http.StatusOK, shown
	})
}

func (a *api) changeSwitch(c *gin.Context, name string, closed bool, key *string) {
	d, err := a.controlDraft(c, key)
	if err != nil {
		a.fail(c, err)
		return
	}
	tier, known := commands.ParseTier(name)
	if !known {
		a.fail(c, notFound("there is no such tier; there are low, standard and high"))
		return
	}
	body, err := readBody(c, maxBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	note, err := decodeNote(body)
	if err != nil {
		a.fail(c, err)
		return
	}
	change := &pb.ChangeSwitch{Tier: tier, Closed: closed, Note: note}
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_ChangeSwitch{ChangeSwitch: change}}, func(controlOutcome) (int, any) {
		return http.StatusOK, a.showSwitch(a.Control.Current(), tier)
	})
}

// admin refuses callers whose key is not an administrator's.
func (a *api) admin(c *gin.Context) error {
	if !callerOf(c).GetAdmin() {
		return commands.Refuse(commands.CodeForbidden, "", "this takes an admin key")
	}
	return nil
}

// controlDraft reads what all writes to the control plane have in common.
func (a *api) controlDraft(c *gin.Context, key *string) (*draft, error) {
	if err := a.admin(c); err != nil {
		return nil, err
	}
	if a.ControlSubmitter == nil {
		return nil, commands.Refuse(commands.CodeUnavailable, "", "this server takes no writes to the control plane")
	}
	return a.draft(c, key, nil)
}

// controlOutcome is what a decided control command led to.
type controlOutcome struct {
	events   []*pb.Event
	actor    string
	timeUS   int64
	seq      uint64
	replayed bool
}

// item returns the entry that the outcome is about: the event's, else the one that is there, else as it was asked for.
func (o controlOutcome) item(lists *commands.Lists, asked *pb.ListEntry) *commands.ListItem {
	for _, event := range o.events {
		entry := event.GetListEntryAdded().GetEntry()
		if entry == nil {
			entry = event.GetListEntryRemoved().GetEntry()
		}
		if entry != nil {
			return &commands.ListItem{ListEntry: entry, AddedUS: o.timeUS, Actor: o.actor, Seq: o.seq}
		}
	}
	if there := lists.Item(asked.GetList(), asked.GetKind(), asked.GetValue()); there != nil {
		return there
	}
	if asked == nil {
		return nil
	}
	return &commands.ListItem{ListEntry: asked, AddedUS: o.timeUS, Actor: o.actor, Seq: o.seq}
}

// submitControl sends a command and answers with its outcome as shown tells it.
func (a *api) submitControl(c *gin.Context, d *draft, command *pb.ControlCommand, shown func(controlOutcome) (status int, body any)) {
	err := a.controlAnswerable(d)
	if err != nil {
		a.fail(c, err)
		return
	}
	command.SchemaVersion, command.CommandId = events.SchemaVersion, newCommandID()
	command.TimeUs, command.Actor = d.now.UnixMicro(), "key:"+d.caller.GetId()
	command.Request = &pb.RequestRef{Owner: d.caller.GetOwner(), Key: d.key, BodyHash: commands.ControlBodyHash(command)}
	answer := a.ControlSubmitter.Submit(c.Request.Context(), command, writeWait)
	e := answer.Envelope
	if e == nil {
		a.fail(c, controlUndecided(answer))
		return
	}
	c.Header(headerPosition, e.Position(events.StreamControl).String())
	if e.GetOutcome().GetReplayed() {
		c.Header(headerReplayed, "true")
	}
	if o := e.GetOutcome(); o.GetError() != "" {
		a.fail(c, commands.Refuse(o.GetError(), o.GetField(), o.GetDetail()))
		return
	}
	outcome := controlOutcome{events: e.GetEvents(), actor: e.GetActor(), timeUS: e.GetStamp().GetTimeUs(), seq: e.GetSeq(), replayed: e.GetOutcome().GetReplayed()}
	if first := a.Control.Current().Request(d.caller.GetOwner(), d.key); outcome.replayed && first != nil {
		outcome.events, outcome.actor, outcome.timeUS, outcome.seq = first.Events, first.Actor, first.GetTimeUs(), first.Seq
	}
	status, body := shown(outcome)
	writeJSON(c, status, body)
}

// controlAnswerable refuses a write that the disk has no room for, and one whose key was used for links.
func (a *api) controlAnswerable(d *draft) error {
	if a.Writable != nil {
		if err := a.Writable(); err != nil {
			return commands.Refuse(commands.CodeUnavailable, "", "nothing was sent: "+err.Error())
		}
	}
	if !d.keyGiven {
		return nil
	}
	found, err := a.Links.Request(d.caller.GetOwner(), d.key)
	if err != nil {
		return err
	}
	rows, err := a.Links.RequestRows(d.caller.GetOwner(), d.key)
	if err == nil && len(a.counting(found))+len(a.counting(rows)) > 0 {
		err = keyUsed()
	}
	return err
}

func controlUndecided(answer Answer) error {
	switch {
	case errors.Is(answer.Err, errTooLarge):
		return commands.Refuse(commands.CodeTooLarge, "", "the command is larger than the log takes")
	case errors.Is(answer.Err, errNotSent):
		return commands.Refuse(commands.CodeUnavailable, "", "the log does not take the command now; nothing was sent")
	}
	return undecided()
}

// itemOf returns the entry of an id, nil if the list has none.
func (a *api) itemOf(control *commands.Control, list pb.ListName, rawID string) (found *commands.ListItem) {
	id, err := url.PathUnescape(rawID)
	if err != nil {
		return nil
	}
	return control.Lists().ByID(list, strings.ToLower(id))
}
