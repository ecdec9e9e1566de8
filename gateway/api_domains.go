package gateway

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// UpdateDomain answers PATCH /v1/domains/{domain}.
func (a *api) UpdateDomain(c *gin.Context, name LinkDomain, p UpdateDomainParams) {
	d, err := a.controlDraft(c, p.IdempotencyKey)
	if err != nil {
		a.fail(c, err)
		return
	}
	demanded, err := parseIfMatch(p.IfMatch)
	if err != nil {
		a.fail(c, err)
		return
	}
	domain, err := a.domainAt(d.control, name)
	if err != nil {
		a.fail(c, err)
		return
	}
	body, err := readBody(c, maxBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	update, err := decodeDomainUpdate(body)
	if err != nil {
		a.fail(c, err)
		return
	}
	update.Namespace, update.IfSeq, update.OrSeqs = domain.GetNamespace(), demanded.version, demanded.or
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_UpdateDomain{UpdateDomain: update}}, func(o controlOutcome) (int, any) {
		shown := showDomain(a.Control.Current(), update.GetNamespace())
		if len(o.events) > 0 {
			shown = shownDomain(o.events[0].GetDomainUpdated().GetDomain(), o.seq)
		}
		c.Header("ETag", etag(shown.Version))
		return http.StatusOK, shown
	})
}

// decodeDomainUpdate reads the settings that a request changes; null stands for a setting's default.
func decodeDomainUpdate(data []byte) (*pb.UpdateDomain, error) {
	update := &pb.UpdateDomain{}
	err := decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (known bool, err error) {
			if name != commands.FieldNotFoundURL {
				return false, nil
			}
			update.Fields = append(update.Fields, name)
			if r.null() {
				return true, nil
			}
			raw, err := r.str()
			if err == nil {
				update.NotFoundUrl, err = commands.NormalizeURL(name, raw)
			}
			return true, err
		})
	})
	return update, err
}

// domainAt returns the domain that a path names, itself or by an alias.
func (a *api) domainAt(state *commands.Control, raw string) (*pb.Domain, error) {
	name, err := url.PathUnescape(raw)
	if err == nil {
		name, err = events.NormalizeNamespace(name)
	}
	if err != nil {
		return nil, notFound("there is no such domain")
	}
	if domain := state.Resolve(name); domain != nil {
		return domain, nil
	}
	return nil, a.missing(notFound("there is no domain " + name))
}

// GetDomain answers GET /v1/domains/{domain}.
func (a *api) GetDomain(c *gin.Context, name LinkDomain, p GetDomainParams) {
	state, err := a.controlAt(c, p.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	domain, err := a.domainAt(state, name)
	if err != nil {
		a.fail(c, err)
		return
	}
	shown := showDomain(state, domain.GetNamespace())
	c.Header("ETag", etag(shown.Version))
	writeJSON(c, http.StatusOK, shown)
}

// ListDomains answers GET /v1/domains.
func (a *api) ListDomains(c *gin.Context, p ListDomainsParams) {
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
	after, err := nameCursor(p.Cursor)
	if err != nil {
		a.fail(c, err)
		return
	}
	names := slices.Sorted(maps.Keys(state.Domains()))
	first, found := slices.BinarySearch(names, after)
	if found {
		first++
	}
	names = names[first:]
	page := DomainPage{Domains: []Domain{}, Position: controlPosition(state.Seq)}
	for _, name := range names[:min(limit, len(names))] {
		page.Domains = append(page.Domains, showDomain(state, name))
	}
	if len(names) > limit {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(names[limit-1]))
		page.NextCursor = &cursor
	}
	writeJSON(c, http.StatusOK, page)
}

// showDomain returns the API's form of a domain that there is.
func showDomain(state *commands.Control, namespace string) Domain {
	return shownDomain(state.Domains()[namespace], state.DomainSeq(namespace))
}

// shownDomain returns the API's form of a domain as a change at a control position left it.
func shownDomain(d *pb.Domain, seq uint64) Domain {
	return Domain{Domain: d.GetNamespace(), Version: seq, Aliases: append([]string{}, d.GetAliases()...), Owner: optionalText(d.GetOwner()), IsDefault: d.GetIsDefault(),
		NotFoundUrl: optionalText(d.GetNotFoundUrl())}
}

// optionalText returns nil for no text.
func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
