package gateway

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/schemas/pb"
)

// outcome is what became of one command, ready to be told: a link, an error, or neither while the log has it and nobody
// has decided it.
type outcome struct {
	status   int
	link     *Link
	err      error
	position string // "" while it is not decided
	replayed bool
}

// outcomeOf translates the answer to a command.
func (a *api) outcomeOf(command *pb.LinkCommand, answer Answer) outcome {
	if answer.Envelope != nil {
		o := a.decided(answer.Envelope.GetOutcome(), created(answer.Envelope))
		o.position = answer.Envelope.Position(events.StreamLink).String()
		if o.link != nil && command.GetCreate() != nil && !o.replayed && !answer.Envelope.GetOutcome().GetExisting() {
			o.status = http.StatusCreated
		}
		if o.link != nil && command.GetCreate() == nil {
			ms := int32(cmp.Or(a.Propagation, propagation) / time.Millisecond)
			o.link.PropagationMs = &ms
		}
		return o
	}
	switch {
	case errors.Is(answer.Err, errTooLarge):
		return outcome{err: commands.Refuse(commands.CodeTooLarge, "", "the command is larger than the log takes")}
	case errors.Is(answer.Err, errNotSent):
		return outcome{err: commands.Refuse(commands.CodeUnavailable, "", "the log does not take the command now; nothing was sent")}
	case answer.Acknowledged && command.GetCreate() != nil:
		return outcome{status: http.StatusAccepted}
	}
	return outcome{err: undecided()}
}

func undecided() *commands.Refusal {
	return commands.Refuse(codeOutcomeUnknown, "", "the command was sent and not answered in time; repeat the request with the same Idempotency-Key")
}

// created returns the link that an envelope created, which needs no read model; nil if it created none.
func created(e *events.Envelope) *pb.Link {
	if len(e.GetEvents()) != 1 || e.GetEvents()[0].GetLinkCreated() == nil {
		return nil
	}
	return projections.EvolveLink(nil, projections.HistoryEntry(e, e.GetEvents()[0]))
}

// decided translates a decision that is in the log: the link as it was at the decision's version (which the caller may know),
// or the refusal.
func (a *api) decided(o *pb.Outcome, link *pb.Link) outcome {
	out := outcome{status: http.StatusOK, replayed: o.GetReplayed()}
	if o.GetError() != "" {
		out.err = commands.Refuse(o.GetError(), o.GetField(), o.GetDetail())
		return out
	}
	if link == nil {
		if link, out.err = a.linkAt(o.GetNamespace(), o.GetCode(), o.GetVersion()); out.err != nil {
			return out
		}
	}
	shown := a.show(link)
	out.link = &shown
	return out
}

// linkAt returns a link at a version. Mostly that is the version it has.
func (a *api) linkAt(namespace, code string, version uint64) (*pb.Link, error) {
	link, err := a.Links.Get(namespace, code)
	if err == nil && link.GetVersion() != version {
		link, err = a.Links.At(namespace, code, version)
	}
	return link, err
}

// writeOutcome answers a single write.
func (a *api) writeOutcome(c *gin.Context, command *pb.LinkCommand, o outcome) {
	if o.position != "" {
		c.Header(headerPosition, o.position)
	}
	if o.replayed {
		c.Header(headerReplayed, "true")
	}
	switch {
	case o.err != nil:
		a.fail(c, o.err)
	case o.link == nil:
		key := command.GetRequest().GetKey()
		c.Header("Location", "/v1/requests/"+escapeSegment(key))
		writeJSON(c, o.status, RequestReport{Key: key, State: RequestStateRECEIVED, AsOf: a.Freshness.AsOf()})
	default:
		c.Header("ETag", etag(o.link.Version))
		if o.status == http.StatusCreated {
			c.Header("Location", linkPath(o.link.Domain, o.link.Code))
		}
		writeJSON(c, o.status, o.link)
	}
}

// rowResult is the outcome of a batch's row.
func (a *api) rowResult(o outcome) BatchResult {
	result := BatchResult{Status: o.status, Link: o.link}
	if o.replayed {
		result.Replayed = &o.replayed
	}
	if o.position != "" {
		result.Position = &o.position
	}
	err := o.err
	if err == nil && o.link == nil {
		err = undecided()
	}
	if err != nil {
		p := a.problem(err)
		result.Error, result.Status = &p, p.Status
	}
	return result
}

func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// linkPath is the path of a link in the API. A colon in the domain stays readable.
func linkPath(domain, code string) string {
	return "/v1/links/" + url.PathEscape(domain) + "/" + escapeSegment(code)
}

// escapeSegment percent-encodes all but letters, digits and - _ . ~ of text without spaces.
func escapeSegment(text string) string { return url.QueryEscape(text) }

// show returns the API's form of a link as it is now.
func (a *api) show(link *pb.Link) Link { return ShowLink(link, a.Now()) }

// ShowLink returns the API's form of a link as it is at a moment.
func ShowLink(link *pb.Link, at time.Time) Link {
	ref, content := link.GetRef(), link.GetContent()
	shown := Link{
		Domain: ref.GetNamespace(), Code: ref.GetCode(), ShortUrl: shortURL(ref.GetNamespace(), ref.GetCode()), Owner: ref.GetOwner(),
		Target: content.GetTarget(), Title: content.GetTitle(), Tags: content.GetTags(),
		Status: LinkStatus(readmodels.StatusAt(link, at.UnixMicro())), Version: link.GetVersion(),
		RedirectStatus: int32(readmodels.RedirectStatus(content.GetRedirectStatus())), Query: LinkQuery(readmodels.QueryName(content.GetQuery())), CacheTtl: int32(content.GetCacheTtl()),
		NotBefore: optionalTime(content.GetNotBeforeUs()), ExpiresAt: optionalTime(content.GetExpiresUs()),
		CreatedAt: utc(link.GetCreatedUs()), UpdatedAt: utc(link.GetUpdatedUs()),
	}
	if to := content.GetExpiredUrl(); to != "" {
		shown.ExpiredUrl = &to
	}
	if shown.Tags == nil {
		shown.Tags = []string{}
	}
	return shown
}

// shortURL is what a visitor types. Short domains on this machine have no certificate.
func shortURL(namespace, code string) string {
	scheme := "https"
	if isLoopback(namespace) {
		scheme = "http"
	}
	return scheme + "://" + namespace + "/" + url.PathEscape(code)
}

func utc(us int64) time.Time { return time.UnixMicro(us).UTC() }

func optionalTime(us int64) *time.Time {
	if us == 0 {
		return nil
	}
	t := utc(us)
	return &t
}
