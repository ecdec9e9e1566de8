package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/links"
)

// Bounds of a list's parameters, as the API's description states them.
const (
	defaultPageLimit = 50
	maxPageLimit     = 1000
	maxListText      = 200 // characters
	maxListDomain    = 260
	maxListCursor    = 1024
)

// ListLinks answers GET /v1/links: a page of the caller's own links.
func (a *api) ListLinks(c *gin.Context, params ListLinksParams) {
	query, err := a.listQuery(callerOf(c).GetOwner(), &params)
	if err == nil {
		err = a.awaitPosition(c.Request.Context(), params.HoplogPosition)
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	asOf := a.Freshness.AsOf() // before the page is read, so that it promises no more than the page holds
	page, err := a.Links.List(query, a.Now().UnixMicro())
	if errors.Is(err, links.ErrBadCursor) {
		err = invalid("cursor", "cursor must be the next_cursor of a page of this very query")
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	shown := LinkPage{Links: make([]Link, len(page.Links)), AsOf: asOf}
	for i, link := range page.Links {
		shown.Links[i] = a.show(link)
	}
	if page.Next != "" {
		shown.NextCursor = &page.Next
	}
	writeJSON(c, http.StatusOK, shown)
}

func (a *api) listQuery(owner string, params *ListLinksParams) (q links.Query, err error) {
	q = links.Query{Owner: owner, Limit: defaultPageLimit}
	if params.Limit != nil {
		q.Limit = int(*params.Limit)
	}
	if q.Limit < 1 || q.Limit > maxPageLimit {
		return q, invalid("limit", fmt.Sprintf("limit must be 1 to %d", maxPageLimit))
	}
	if params.Status != nil && !params.Status.Valid() {
		return q, invalid("status", "status must be one of scheduled, active, expired, disabled, banned and deleted")
	}
	if params.Sort != nil && !params.Sort.Valid() {
		return q, invalid("sort", "sort must be created or -created")
	}
	q.Status, q.Sort = string(orZero(params.Status)), links.Sort(orZero(params.Sort))
	domain := ""
	for _, p := range []struct {
		name  string
		given *string
		most  int
		to    *string
	}{
		{"q", params.Q, maxListText, &q.Text},
		{"tag", params.Tag, commands.MaxTag, &q.Tag},
		{"domain", params.Domain, maxListDomain, &domain},
		{"cursor", params.Cursor, maxListCursor, &q.Cursor},
	} {
		if p.given == nil {
			continue
		}
		if n := utf8.RuneCountInString(*p.given); n == 0 || n > p.most {
			return q, invalid(p.name, fmt.Sprintf("%s must have 1 to %d characters", p.name, p.most))
		}
		*p.to = *p.given
	}
	if domain != "" {
		q.Domain, err = a.listDomain(domain)
	}
	return q, err
}

func (a *api) listDomain(domain string) (string, error) {
	namespace, err := events.NormalizeNamespace(domain)
	if err != nil {
		return "", invalid(fieldDomain, err.Error())
	}
	if known := a.Control.Current().Resolve(namespace); known != nil {
		return known.GetNamespace(), nil
	}
	return namespace, nil
}
