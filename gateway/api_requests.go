package gateway

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

// GetRequest answers GET /v1/requests/{key}: what became of a write of the caller's owner.
func (a *api) GetRequest(c *gin.Context, key string, params GetRequestParams) {
	key, err := url.PathUnescape(key)
	if err != nil || key == "" || len(key) > commands.MaxRequestKey || !isVisibleASCII(key) {
		a.fail(c, notFound("no request can have this key"))
		return
	}
	if err := a.awaitPosition(c.Request.Context(), params.HoplogPosition); err != nil {
		a.fail(c, err)
		return
	}
	report, err := a.requestReport(callerOf(c).GetOwner(), key)
	if err != nil {
		a.fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, report)
}

func (a *api) requestReport(owner, key string) (RequestReport, error) {
	report := RequestReport{Key: key, State: RequestStateUnknown, AsOf: a.Freshness.AsOf()}
	if stored := a.controlRequest(owner, key); stored != nil {
		a.reportControl(&report, stored)
		return report, nil
	}
	found, err := a.Links.Request(owner, key)
	if err != nil {
		return report, err
	}
	if found = a.counting(found); len(found) > 0 {
		row := a.requestRow(found[0])
		report.State, report.Status, report.Link, report.Error, report.Position = row.State, &row.Status, row.Link, row.Error, row.Position
		return report, nil
	}
	rows, err := a.Links.RequestRows(owner, key)
	if rows = a.counting(rows); err != nil || len(rows) == 0 {
		return report, err
	}
	list := make([]RequestRow, len(rows))
	for i, row := range rows {
		list[i] = a.requestRow(row)
	}
	report.State, report.Rows = batchState(list), &list
	return report, nil
}

// counting leaves the outcomes whose keys still count: 7 days, and the day of grace.
func (a *api) counting(found []links.Request) []links.Request {
	now := a.Now().UnixMicro()
	return slices.DeleteFunc(found, func(r links.Request) bool { return !commands.KeyCounts(r.GetTimeUs(), now) })
}

func (a *api) requestRow(stored links.Request) RequestRow {
	position := stored.Position.String()
	o := a.decided(stored.GetOutcome(), nil)
	row := RequestRow{Row: stored.Row, State: RequestStateSucceeded, Status: o.status, Link: o.link, Position: &position}
	if o.err != nil {
		p := a.problem(o.err)
		row.State, row.Status, row.Error = RequestStateFailed, p.Status, &p
	}
	return row
}

// batchState sums up rows: failed only if all of them are.
func batchState(rows []RequestRow) RequestState {
	for _, row := range rows {
		if row.State == RequestStateSucceeded {
			return RequestStateSucceeded
		}
	}
	return RequestStateFailed
}

// keyElsewhere refuses a command whose request key another request used where the writer of the command's bucket cannot know of
// it: in another bucket, or for a batch. In its own bucket the writer judges. It is exact up to what this server has read.
func (a *api) keyElsewhere(command *pb.LinkCommand) error {
	request, bucket := command.GetRequest(), commands.BucketFor(command)
	if a.controlRequest(request.GetOwner(), request.GetKey()) != nil {
		return keyUsed()
	}
	found, err := a.Links.Request(request.GetOwner(), request.GetKey())
	if err != nil {
		return err
	}
	found = a.counting(found)
	if slices.ContainsFunc(found, func(r links.Request) bool { return r.Position.Bucket == bucket }) {
		return nil
	}
	if len(found) == 0 {
		if found, err = a.Links.RequestRows(request.GetOwner(), request.GetKey()); err != nil {
			return err
		}
		found = a.counting(found)
	}
	if len(found) == 0 {
		return nil
	}
	return keyUsed()
}

func keyUsed() *commands.Refusal {
	return commands.Refuse(commands.CodeIdempotencyKeyReused, headerKey, "this Idempotency-Key was used for another request; use a new key")
}

// batchRepeated reports whether rows of a batch with this key were decided before. A key that a single write used is refused.
func (a *api) batchRepeated(d *draft) (bool, error) {
	if !d.keyGiven {
		return false, nil
	}
	if a.controlRequest(d.caller.GetOwner(), d.key) != nil {
		return false, keyUsed()
	}
	single, err := a.Links.Request(d.caller.GetOwner(), d.key)
	if err != nil {
		return false, err
	}
	if len(a.counting(single)) > 0 {
		return false, keyUsed()
	}
	rows, err := a.Links.RequestRows(d.caller.GetOwner(), d.key)
	return len(a.counting(rows)) > 0, err
}

// controlRequest returns a write to the control plane under this key, nil if there is none that counts.
func (a *api) controlRequest(owner, key string) *commands.ControlRequest {
	stored := a.Control.Current().Request(owner, key)
	if stored == nil || !commands.KeyCounts(stored.GetTimeUs(), a.Now().UnixMicro()) {
		return nil
	}
	return stored
}

// reportControl says what became of a write to the control plane.
func (a *api) reportControl(report *RequestReport, stored *commands.ControlRequest) {
	status, position := http.StatusOK, controlPosition(stored.Seq)
	report.State, report.Status, report.Position = RequestStateSucceeded, &status, &position
	if o := stored.GetOutcome(); o.GetError() != "" {
		p := a.problem(commands.Refuse(o.GetError(), o.GetField(), o.GetDetail()))
		report.State, report.Status, report.Error = RequestStateFailed, &p.Status, &p
	}
}
