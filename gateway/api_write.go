package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// How long a write waits for its envelope, and a read for a position.
const (
	writeWait    = 2 * time.Second
	batchWait    = 10 * time.Second
	positionWait = 2 * time.Second
)

// propagation is the default of APIDeps.Propagation.
const propagation = time.Second

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
	headerPosition = "Hoplog-Position"
	headerIfMatch  = "If-Match"
)

// CreateLink answers POST /v1/links.
func (a *api) CreateLink(c *gin.Context, params CreateLinkParams) {
	d, err := a.draft(c, params.IdempotencyKey, params.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	body, err := readBody(c, maxBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	fields, err := decodeCreate(body)
	if err != nil {
		a.fail(c, err)
		return
	}
	command, err := d.create(&fields, d.key)
	if err != nil {
		a.fail(c, err)
		return
	}
	a.submitOne(c, d, command, fields.typed)
}

// CreateLinks answers POST /v1/links:batch. Rows whose values are wrong are refused alone; the rest go out together.
func (a *api) CreateLinks(c *gin.Context, params CreateLinksParams) {
	d, err := a.draft(c, params.IdempotencyKey, params.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	body, err := readBody(c, maxBatchBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	rows, err := decodeBatch(body)
	if err != nil {
		a.fail(c, err)
		return
	}
	if err := a.answerable(); err != nil {
		a.fail(c, err)
		return
	}
	repeated, err := a.batchRepeated(d)
	if err != nil {
		a.fail(c, err)
		return
	}
	writeJSON(c, http.StatusOK, BatchResults{Results: a.submitRows(c.Request.Context(), d, rows, repeated)})
}

func (a *api) submitRows(ctx context.Context, d *draft, rows []linkFields, repeated bool) []BatchResult {
	results := make([]BatchResult, len(rows))
	sent := make([]*pb.LinkCommand, 0, len(rows))
	index := make([]int, 0, len(rows)) // of sent, in rows
	for i := range rows {
		command, err := d.create(&rows[i], rowKey(d.key, i))
		if err == nil && repeated {
			err = a.keyElsewhere(command)
		}
		if err != nil {
			results[i] = a.rowResult(outcome{err: err})
			continue
		}
		sent, index = append(sent, command), append(index, i)
	}
	for i, answer := range a.Submitter.Submit(ctx, sent, batchWait) {
		o := a.outcomeOf(sent[i], answer)
		rows[index[i]].typed(o.link)
		results[index[i]] = a.rowResult(o)
	}
	return results
}

// UpdateLink answers PATCH /v1/links/{domain}/{code}.
func (a *api) UpdateLink(c *gin.Context, domain LinkDomain, code LinkCode, params UpdateLinkParams) {
	a.change(c, domain, code, params.IdempotencyKey, params.IfMatch, params.HoplogPosition,
		func(d *draft, namespace, code string, demanded ifMatch) (*pb.LinkCommand, error) {
			body, err := readBody(c, maxBody)
			if err != nil {
				return nil, err
			}
			fields, err := decodeUpdate(body)
			if err != nil {
				return nil, err
			}
			return d.update(&fields, namespace, code, demanded)
		})
}

// DeleteLink answers DELETE /v1/links/{domain}/{code}.
func (a *api) DeleteLink(c *gin.Context, domain LinkDomain, code LinkCode, params DeleteLinkParams) {
	a.change(c, domain, code, params.IdempotencyKey, params.IfMatch, params.HoplogPosition,
		func(d *draft, namespace, code string, demanded ifMatch) (*pb.LinkCommand, error) {
			return d.change(pb.StatusAction_DELETE, namespace, code, orZero(params.Reason), false, demanded)
		})
}

// DisableLink answers POST …/disable.
func (a *api) DisableLink(c *gin.Context, domain LinkDomain, code LinkCode, p DisableLinkParams) {
	a.changeStatus(c, pb.StatusAction_DISABLE, domain, code, p.IdempotencyKey, p.IfMatch, p.HoplogPosition)
}

// EnableLink answers POST …/enable.
func (a *api) EnableLink(c *gin.Context, domain LinkDomain, code LinkCode, p EnableLinkParams) {
	a.changeStatus(c, pb.StatusAction_ENABLE, domain, code, p.IdempotencyKey, p.IfMatch, p.HoplogPosition)
}

// BanLink answers POST …/ban.
func (a *api) BanLink(c *gin.Context, domain LinkDomain, code LinkCode, p BanLinkParams) {
	a.changeStatus(c, pb.StatusAction_BAN, domain, code, p.IdempotencyKey, p.IfMatch, p.HoplogPosition)
}

// UnbanLink answers POST …/unban.
func (a *api) UnbanLink(c *gin.Context, domain LinkDomain, code LinkCode, p UnbanLinkParams) {
	a.changeStatus(c, pb.StatusAction_UNBAN, domain, code, p.IdempotencyKey, p.IfMatch, p.HoplogPosition)
}

func (a *api) changeStatus(c *gin.Context, action pb.StatusAction, domain, code string, key, given, position *string) {
	a.change(c, domain, code, key, given, position,
		func(d *draft, namespace, code string, demanded ifMatch) (*pb.LinkCommand, error) {
			body, err := readBody(c, maxBody)
			if err != nil {
				return nil, err
			}
			reason, legal, err := decodeStatus(body, action == pb.StatusAction_BAN)
			if err != nil {
				return nil, err
			}
			return d.change(action, namespace, code, reason, legal, demanded)
		})
}

// change does what all writes to an existing link have in common around making the command.
func (a *api) change(c *gin.Context, domain, code string, key, given, position *string,
	build func(d *draft, namespace, code string, demanded ifMatch) (*pb.LinkCommand, error),
) {
	d, err := a.draft(c, key, position)
	if err != nil {
		a.fail(c, err)
		return
	}
	demanded, err := parseIfMatch(given)
	if err != nil {
		a.fail(c, err)
		return
	}
	// Whether there is such a domain the writer judges: this server may not have heard of it yet.
	namespace, code, _, err := target(d.control, domain, code)
	if err != nil {
		a.fail(c, err)
		return
	}
	command, err := build(d, namespace, code, demanded)
	if err != nil {
		a.fail(c, err)
		return
	}
	d.seal(command, a.actsFor(d.caller, namespace, code), d.key)
	a.submitOne(c, d, command, func(*Link) {})
}

// actsFor returns the owner in whose name a caller changes a link: an administrator's key acts for the link's owner, so that
// the writer, which knows no keys, lets it.
func (a *api) actsFor(caller *pb.ApiKey, namespace, code string) string {
	if caller.GetAdmin() {
		if link, err := a.Links.Get(namespace, code); err == nil {
			return link.GetRef().GetOwner()
		}
	}
	return caller.GetOwner()
}

// draft reads what all writes have in common.
func (a *api) draft(c *gin.Context, key, position *string) (*draft, error) {
	d := &draft{caller: callerOf(c), keyGiven: key != nil, now: a.Now()}
	var err error
	if d.key, err = requestKey(key); err != nil {
		return nil, err
	}
	c.Header(headerKey, d.key)
	p, err := parsePosition(position)
	if err != nil {
		return nil, err
	}
	if p.Stream == events.StreamControl {
		if err := await(c.Request.Context(), a.ControlAt, p); err != nil {
			return nil, err
		}
	}
	d.control = a.Control.Current()
	if d.control != nil {
		d.minControl = d.control.Seq
	}
	d.minControl = max(d.minControl, controlSeq(p))
	return d, nil
}

func controlSeq(p events.Position) uint64 {
	if p.Stream == events.StreamControl {
		return p.Seq
	}
	return 0
}

// requestKey checks the Idempotency-Key, or makes one.
func requestKey(given *string) (string, error) {
	if given == nil {
		return uuid.NewString(), nil
	}
	if *given == "" || len(*given) > commands.MaxRequestKey || !isVisibleASCII(*given) {
		return "", invalid(headerKey, fmt.Sprintf("%s must have 1 to %d visible ASCII characters", headerKey, commands.MaxRequestKey))
	}
	return *given, nil
}

func isVisibleASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7F })
}

func parsePosition(given *string) (events.Position, error) {
	if given == nil {
		return events.Position{}, nil
	}
	p, err := events.ParsePosition(*given)
	if err != nil {
		return p, invalid(headerPosition, err.Error())
	}
	return p, nil
}

// answerable refuses a write whose answer this server could not see.
func (a *api) answerable() error {
	err := a.Freshness.Ready()
	if a.Writable != nil {
		err = cmp.Or(a.Writable(), err)
	}
	if err != nil {
		return commands.Refuse(commands.CodeUnavailable, "", "nothing was sent: "+err.Error())
	}
	return nil
}

// submitOne sends a command and answers with its outcome; shown may touch up the link in the answer.
func (a *api) submitOne(c *gin.Context, d *draft, command *pb.LinkCommand, shown func(*Link)) {
	err := a.answerable()
	if err == nil && d.keyGiven {
		err = a.keyElsewhere(command)
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	answer := a.Submitter.Submit(c.Request.Context(), []*pb.LinkCommand{command}, writeWait)[0]
	o := a.outcomeOf(command, answer)
	shown(o.link)
	a.writeOutcome(c, command, o)
}

func orZero[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}
