package client

import (
	"context"
	"fmt"
	"net/http"
)

// Written is the outcome of a write that succeeded.
type Written struct {
	Link *Link
	// Key is the write's idempotency key.
	Key string
	// Position is the read-your-writes token, for reads that must see the write.
	Position string
	// Created: this write made the link. Replayed: it had been decided before, perhaps by an attempt whose answer was lost.
	Created, Replayed bool
}

// Options of a write. The zero value: a new key, whatever version.
type Options struct {
	// Key is the idempotency key; a new one if it is empty.
	Key string
	// IfVersion is the version that the link or domain must still have; 0: any.
	IfVersion uint64
	// Reason is kept in the link's history.
	Reason string
	// Legal: a ban has a legal reason.
	Legal bool
}

const (
	jsonType       = "application/json"
	headerPosition = "Hoplog-Position"
)

// Create creates a link.
func (a *API) Create(ctx context.Context, link LinkCreate, o Options) (*Written, error) {
	key := keyOr(o.Key)
	return a.writeLink(ctx, key, link, func(body *requestBody) (*http.Response, error) {
		return a.raw.CreateLinkWithBody(ctx, &CreateLinkParams{IdempotencyKey: &key}, jsonType, body)
	})
}

// CreateBatch creates up to 1000 links and returns one result per row, in order. It sends the batch again while rows are
// undecided or unavailable, under the same key, so no row is made twice; rows that stay so have status 503. The key is
// returned also with an error.
func (a *API) CreateBatch(ctx context.Context, links []LinkCreate, o Options) (results []BatchResult, key string, err error) {
	key = keyOr(o.Key)
	body, err := jsonBody(LinkBatch{Links: links})
	if err != nil {
		return nil, key, err
	}
	for attempt := 1; ; attempt++ {
		var out BatchResults
		_, err := a.write(ctx, key, &out, func() (*http.Response, error) {
			return a.raw.CreateLinksWithBody(ctx, &CreateLinksParams{IdempotencyKey: &key}, jsonType, rewound(body))
		})
		if err != nil {
			return nil, key, err
		}
		if len(out.Results) != len(links) {
			return nil, key, fmt.Errorf("%w: %d results for %d rows", ErrAnswer, len(out.Results), len(links))
		}
		if !anyOpen(out.Results) || attempt == a.cfg.Attempts || !wait(ctx, a.cfg.Pause) {
			return out.Results, key, nil
		}
	}
}

func anyOpen(results []BatchResult) bool {
	for _, r := range results {
		if r.Status == http.StatusServiceUnavailable {
			return true
		}
	}
	return false
}

// Update changes fields of a link: their names in the API with their new values, nil for the default.
func (a *API) Update(ctx context.Context, domain, code string, fields map[string]any, o Options) (*Written, error) {
	key := keyOr(o.Key)
	changes := map[string]any{}
	for name, value := range fields {
		changes[name] = value
	}
	if o.Reason != "" {
		changes["reason"] = o.Reason
	}
	return a.writeLink(ctx, key, changes, func(body *requestBody) (*http.Response, error) {
		return a.raw.UpdateLinkWithBody(ctx, domain, code, &UpdateLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, body)
	})
}

// Delete deletes a link and returns its tombstone.
func (a *API) Delete(ctx context.Context, domain, code string, o Options) (*Written, error) {
	key := keyOr(o.Key)
	params := &DeleteLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}
	if o.Reason != "" {
		params.Reason = &o.Reason
	}
	return a.writeLink(ctx, key, nil, func(*requestBody) (*http.Response, error) {
		return a.raw.DeleteLink(ctx, domain, code, params)
	})
}

// Disable disables a link.
func (a *API) Disable(ctx context.Context, domain, code string, o Options) (*Written, error) {
	key := keyOr(o.Key)
	return a.writeLink(ctx, key, o.statusChange(), func(body *requestBody) (*http.Response, error) {
		return a.raw.DisableLinkWithBody(ctx, domain, code, &DisableLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, body)
	})
}

// Enable enables a disabled link.
func (a *API) Enable(ctx context.Context, domain, code string, o Options) (*Written, error) {
	key := keyOr(o.Key)
	return a.writeLink(ctx, key, o.statusChange(), func(body *requestBody) (*http.Response, error) {
		return a.raw.EnableLinkWithBody(ctx, domain, code, &EnableLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, body)
	})
}

// Ban bans a link.
func (a *API) Ban(ctx context.Context, domain, code string, o Options) (*Written, error) {
	key := keyOr(o.Key)
	ban := Ban{Reason: o.statusChange().Reason}
	if o.Legal {
		ban.Legal = &o.Legal
	}
	return a.writeLink(ctx, key, ban, func(body *requestBody) (*http.Response, error) {
		return a.raw.BanLinkWithBody(ctx, domain, code, &BanLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, body)
	})
}

// Unban lifts a ban.
func (a *API) Unban(ctx context.Context, domain, code string, o Options) (*Written, error) {
	key := keyOr(o.Key)
	return a.writeLink(ctx, key, o.statusChange(), func(body *requestBody) (*http.Response, error) {
		return a.raw.UnbanLinkWithBody(ctx, domain, code, &UnbanLinkParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, body)
	})
}

func (o Options) ifMatch() *string {
	if o.IfVersion == 0 {
		return nil
	}
	tag := fmt.Sprintf(`"%d"`, o.IfVersion)
	return &tag
}

func (o Options) statusChange() StatusChange {
	if o.Reason == "" {
		return StatusChange{}
	}
	return StatusChange{Reason: &o.Reason}
}

func (a *API) writeLink(ctx context.Context, key string, body any, send func(*requestBody) (*http.Response, error)) (*Written, error) {
	encoded, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	w := &Written{Link: &Link{}, Key: key}
	got, err := a.write(ctx, key, w.Link, func() (*http.Response, error) { return send(rewound(encoded)) })
	if err != nil {
		return nil, err
	}
	w.Position = got.header.Get(headerPosition)
	w.Created, w.Replayed = got.status == http.StatusCreated, got.header.Get("Idempotency-Replayed") == "true"
	return w, nil
}

// Get returns a link. A position, if not empty, is that of a write that the answer must hold; so with all reads here.
func (a *API) Get(ctx context.Context, domain, code, position string) (*Link, error) {
	var link Link
	_, err := a.call(ctx, &link, func() (*http.Response, error) {
		return a.raw.GetLink(ctx, domain, code, &GetLinkParams{HoplogPosition: optional(position)})
	})
	return &link, err
}

// List returns a page of the key's own links.
func (a *API) List(ctx context.Context, params ListLinksParams) (*LinkPage, error) {
	var page LinkPage
	_, err := a.call(ctx, &page, func() (*http.Response, error) { return a.raw.ListLinks(ctx, &params) })
	return &page, err
}

// History returns all events of a link.
func (a *API) History(ctx context.Context, domain, code, position string) (*History, error) {
	var history History
	_, err := a.call(ctx, &history, func() (*http.Response, error) {
		return a.raw.GetLinkHistory(ctx, domain, code, &GetLinkHistoryParams{HoplogPosition: optional(position)})
	})
	return &history, err
}

// Stats returns a link's clicks.
func (a *API) Stats(ctx context.Context, domain, code string, params GetLinkStatsParams) (*LinkStats, error) {
	var stats LinkStats
	_, err := a.call(ctx, &stats, func() (*http.Response, error) { return a.raw.GetLinkStats(ctx, domain, code, &params) })
	return &stats, err
}

// Request returns what became of a write of the key's owner.
func (a *API) Request(ctx context.Context, key, position string) (*RequestReport, error) {
	var report RequestReport
	_, err := a.call(ctx, &report, func() (*http.Response, error) {
		return a.raw.GetRequest(ctx, key, &GetRequestParams{HoplogPosition: optional(position)})
	})
	return &report, err
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
