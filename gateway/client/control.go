package client

import (
	"context"
	"net/http"
)

// Listed is the outcome of a write to a list that succeeded.
type Listed struct {
	Entry *ListEntry
	// Key is the write's idempotency key.
	Key string
	// Position is the read-your-writes token.
	Position string
	// Created: this write added or changed the entry. Replayed: it had been decided before.
	Created, Replayed bool
}

// Deny adds to the denylist; it takes an admin key, as all of the control plane.
func (a *API) Deny(ctx context.Context, entry DenyAdd, o Options) (*Listed, error) {
	key := keyOr(o.Key)
	return a.writeEntry(ctx, key, entry, func(body *requestBody) (*http.Response, error) {
		return a.raw.AddToDenylistWithBody(ctx, &AddToDenylistParams{IdempotencyKey: &key}, jsonType, body)
	})
}

// Allow adds to the allowlist.
func (a *API) Allow(ctx context.Context, entry AllowAdd, o Options) (*Listed, error) {
	key := keyOr(o.Key)
	return a.writeEntry(ctx, key, entry, func(body *requestBody) (*http.Response, error) {
		return a.raw.AddToAllowlistWithBody(ctx, &AddToAllowlistParams{IdempotencyKey: &key}, jsonType, body)
	})
}

// Trust says how far an owner or a link is trusted.
func (a *API) Trust(ctx context.Context, entry TrustAdd, o Options) (*Listed, error) {
	key := keyOr(o.Key)
	return a.writeEntry(ctx, key, entry, func(body *requestBody) (*http.Response, error) {
		return a.raw.AddTrustWithBody(ctx, &AddTrustParams{IdempotencyKey: &key}, jsonType, body)
	})
}

// Names of lists, as Entries and Unlist take them.
const (
	Denylist  = "denylist"
	Allowlist = "allowlist"
	TrustList = "trust"
)

// Unlist removes the entry of an id from a list; o.Reason is kept in the history.
func (a *API) Unlist(ctx context.Context, list, id string, o Options) (*Listed, error) {
	key := keyOr(o.Key)
	return a.writeEntry(ctx, key, nil, func(*requestBody) (*http.Response, error) {
		switch list {
		case Allowlist:
			return a.raw.RemoveFromAllowlist(ctx, id, &RemoveFromAllowlistParams{IdempotencyKey: &key, Note: optional(o.Reason)})
		case TrustList:
			return a.raw.RemoveTrust(ctx, id, &RemoveTrustParams{IdempotencyKey: &key, Note: optional(o.Reason)})
		}
		return a.raw.RemoveFromDenylist(ctx, id, &RemoveFromDenylistParams{IdempotencyKey: &key, Note: optional(o.Reason)})
	})
}

func (a *API) writeEntry(ctx context.Context, key string, body any, send func(*requestBody) (*http.Response, error)) (*Listed, error) {
	encoded, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	l := &Listed{Entry: &ListEntry{}, Key: key}
	got, err := a.write(ctx, key, l.Entry, func() (*http.Response, error) { return send(rewound(encoded)) })
	if err != nil {
		return nil, err
	}
	l.Position = got.header.Get(headerPosition)
	l.Created, l.Replayed = got.status == http.StatusCreated, got.header.Get("Idempotency-Replayed") == "true"
	return l, nil
}

// Entries returns a page of a list.
func (a *API) Entries(ctx context.Context, list string, params ListDenylistParams) (*ListPage, error) {
	var page ListPage
	_, err := a.call(ctx, &page, func() (*http.Response, error) {
		switch list {
		case Allowlist:
			p := ListAllowlistParams(params)
			return a.raw.ListAllowlist(ctx, &p)
		case TrustList:
			p := ListTrustParams(params)
			return a.raw.ListTrust(ctx, &p)
		}
		return a.raw.ListDenylist(ctx, &params)
	})
	return &page, err
}

// Switches returns the emergency switches.
func (a *API) Switches(ctx context.Context) (*SwitchList, error) {
	var list SwitchList
	_, err := a.call(ctx, &list, func() (*http.Response, error) { return a.raw.ListSwitches(ctx, &ListSwitchesParams{}) })
	return &list, err
}

// Switch confirms that a tier is to be closed, or opened; o.Reason is kept in the history.
func (a *API) Switch(ctx context.Context, tier string, closed bool, o Options) (*Switch, error) {
	key := keyOr(o.Key)
	body, err := jsonBody(SwitchChange{Note: optional(o.Reason)})
	if err != nil {
		return nil, err
	}
	var s Switch
	_, err = a.write(ctx, key, &s, func() (*http.Response, error) {
		if closed {
			return a.raw.CloseSwitchWithBody(ctx, tier, &CloseSwitchParams{IdempotencyKey: &key}, jsonType, rewound(body))
		}
		return a.raw.OpenSwitchWithBody(ctx, tier, &OpenSwitchParams{IdempotencyKey: &key}, jsonType, rewound(body))
	})
	return &s, err
}

// CreateKey makes an API key; what comes back has the key itself as its secret, unless the write is a repeat.
func (a *API) CreateKey(ctx context.Context, asked KeyCreate, o Options) (*ApiKey, error) {
	key := keyOr(o.Key)
	body, err := jsonBody(asked)
	if err != nil {
		return nil, err
	}
	var made ApiKey
	_, err = a.write(ctx, key, &made, func() (*http.Response, error) {
		return a.raw.CreateKeyWithBody(ctx, &CreateKeyParams{IdempotencyKey: &key}, jsonType, rewound(body))
	})
	return &made, err
}

// RevokeKey ends an API key; o.Reason is kept in the history.
func (a *API) RevokeKey(ctx context.Context, id string, o Options) (*ApiKey, error) {
	key := keyOr(o.Key)
	var was ApiKey
	_, err := a.write(ctx, key, &was, func() (*http.Response, error) {
		return a.raw.RevokeKey(ctx, id, &RevokeKeyParams{IdempotencyKey: &key, Note: optional(o.Reason)})
	})
	return &was, err
}

// Keys returns a page of the API keys.
func (a *API) Keys(ctx context.Context, params ListKeysParams) (*KeyPage, error) {
	var page KeyPage
	_, err := a.call(ctx, &page, func() (*http.Response, error) { return a.raw.ListKeys(ctx, &params) })
	return &page, err
}

// Domains returns a page of the short domains.
func (a *API) Domains(ctx context.Context, params ListDomainsParams) (*DomainPage, error) {
	var page DomainPage
	_, err := a.call(ctx, &page, func() (*http.Response, error) { return a.raw.ListDomains(ctx, &params) })
	return &page, err
}

// Domain returns a short domain, named itself or by an alias.
func (a *API) Domain(ctx context.Context, name string) (*Domain, error) {
	var d Domain
	_, err := a.call(ctx, &d, func() (*http.Response, error) { return a.raw.GetDomain(ctx, name, &GetDomainParams{}) })
	return &d, err
}

// UpdateDomain changes settings of a short domain: their names in the API with their new values, nil for the default.
func (a *API) UpdateDomain(ctx context.Context, name string, settings map[string]any, o Options) (*Domain, error) {
	key := keyOr(o.Key)
	body, err := jsonBody(settings)
	if err != nil {
		return nil, err
	}
	var d Domain
	_, err = a.write(ctx, key, &d, func() (*http.Response, error) {
		return a.raw.UpdateDomainWithBody(ctx, name, &UpdateDomainParams{IdempotencyKey: &key, IfMatch: o.ifMatch()}, jsonType, rewound(body))
	})
	return &d, err
}
