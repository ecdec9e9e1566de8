package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

// GetLink answers GET /v1/links/{domain}/{code}.
func (a *api) GetLink(c *gin.Context, domain LinkDomain, code LinkCode, params GetLinkParams) {
	link, err := a.readable(c, domain, code, params.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	c.Header("ETag", etag(link.GetVersion()))
	writeJSON(c, http.StatusOK, a.show(link))
}

// GetLinkHistory answers GET …/history.
func (a *api) GetLinkHistory(c *gin.Context, domain LinkDomain, code LinkCode, params GetLinkHistoryParams) {
	link, err := a.readable(c, domain, code, params.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	ref := link.GetRef()
	entries, err := a.Links.History(ref.GetNamespace(), ref.GetCode())
	if err != nil {
		a.fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, History{Domain: ref.GetNamespace(), Code: ref.GetCode(), Events: ShowHistory(entries)})
}

// ShowHistory returns the API's form of a link's history: it folds the entries, oldest first, and tells what each changed.
func ShowHistory(entries []*pb.HistoryEntry) []HistoryEvent {
	out := make([]HistoryEvent, len(entries))
	var before *pb.Link
	for i, entry := range entries {
		after := projections.EvolveLink(before, entry)
		out[i] = HistoryEvent{
			Version: after.GetVersion(), Type: events.EventType(entry.GetEvent()), Time: utc(entry.GetTimeUs()), Actor: entry.GetActor(),
			Reason: reasonOf(entry.GetEvent()), Changes: map[string]FieldChange{}, Hash: hex.EncodeToString(entry.GetHash()),
			Position: events.Position{Stream: events.StreamLink, Bucket: entry.GetBucket(), Seq: entry.GetSeq()}.String(),
		}
		for _, change := range readmodels.Changes(before, after) {
			out[i].Changes[change.Field] = FieldChange{From: change.From, To: change.To}
		}
		before = after
	}
	return out
}

func reasonOf(event *pb.Event) string {
	if updated := event.GetLinkUpdated(); updated != nil {
		return updated.GetReason()
	}
	return event.GetLinkStatusChanged().GetReason()
}

// readable waits for the position that a read names and returns the link at a path, if it is there for the caller.
func (a *api) readable(c *gin.Context, domain, code string, position *string) (*pb.Link, error) {
	if err := a.awaitPosition(c.Request.Context(), position); err != nil {
		return nil, err
	}
	namespace, code, err := a.addressed(a.Control.Current(), domain, code)
	if refusal, missing := errors.AsType[*commands.Refusal](err); missing {
		return nil, a.missing(refusal)
	}
	if err != nil {
		return nil, err
	}
	link, err := a.Links.Get(namespace, code)
	if errors.Is(err, links.ErrNotFound) {
		return nil, a.missing(noSuchLink(namespace, code))
	}
	if err == nil && !sees(callerOf(c), link) {
		return nil, noSuchLink(namespace, code)
	}
	return link, err
}

// sees reports whether a link is there for a caller: his own, or any for an administrator.
func sees(caller *pb.ApiKey, link *pb.Link) bool {
	return caller.GetAdmin() || caller.GetOwner() == link.GetRef().GetOwner()
}

// addressed decodes the link that a path names. A domain or code that cannot be is a link that is not there.
//
// Links and domains come by different logs: a link that can be read is there, though its domain was not heard of yet.
func (a *api) addressed(control *commands.Control, rawDomain, rawCode string) (namespace, code string, err error) {
	namespace, code, known, err := target(control, rawDomain, rawCode)
	if err != nil || known {
		return namespace, code, err
	}
	if _, err := a.Links.Get(namespace, code); errors.Is(err, links.ErrNotFound) {
		return "", "", noSuchLink(namespace, code)
	}
	return namespace, code, nil
}

// target decodes a path, and says whether its domain is known here.
func target(control *commands.Control, rawDomain, rawCode string) (namespace, code string, known bool, err error) {
	domain, errDomain := url.PathUnescape(rawDomain)
	typed, errCode := url.PathUnescape(rawCode)
	if errDomain != nil || errCode != nil {
		return "", "", false, notFound("there is nothing at this path")
	}
	if namespace, err = events.NormalizeNamespace(domain); err != nil {
		return "", "", false, notFound("there is no such domain: " + err.Error())
	}
	if code, err = events.NormalizeCode(typed); err != nil {
		return "", "", false, notFound("there is no such link: " + err.Error())
	}
	if found := control.Resolve(namespace); found != nil {
		return found.GetNamespace(), code, true, nil
	}
	return namespace, code, false, nil
}

func noSuchLink(namespace, code string) *commands.Refusal {
	return notFound("there is no link " + namespace + "/" + code)
}

// awaitPosition waits until what stands at a read's Hoplog-Position can be read.
func (a *api) awaitPosition(ctx context.Context, given *string) error {
	p, err := parsePosition(given)
	if err != nil || given == nil {
		return err
	}
	if p.Stream == events.StreamControl {
		return await(ctx, a.ControlAt, p)
	}
	return await(ctx, a.LinksAt, p)
}

func await(ctx context.Context, model PositionWaiter, p events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, positionWait)
	defer cancel()
	if err := model.WaitFor(ctx, p); err != nil {
		return commands.Refuse(commands.CodeUnavailable, headerPosition, "this server has not read "+p.String()+" yet")
	}
	return nil
}
