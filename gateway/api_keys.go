package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// apiKeyBytes is how much chance a key holds.
const apiKeyBytes = 32

// NewAPIKey draws a key and what the log may know of it; the key's owner and rights are for the caller to fill in.
func NewAPIKey() (secret string, key *pb.ApiKey) {
	random := make([]byte, apiKeyBytes)
	_, _ = rand.Read(random) // never fails
	secret = "hop_" + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(secret))
	return secret, &pb.ApiKey{Id: hex.EncodeToString(hash[:6]), Hash: hash[:]}
}

// CreateKey answers POST /v1/keys.
func (a *api) CreateKey(c *gin.Context, p CreateKeyParams) {
	d, err := a.controlDraft(c, p.IdempotencyKey)
	if err != nil {
		a.fail(c, err)
		return
	}
	body, err := readBody(c, maxBody)
	if err != nil {
		a.fail(c, err)
		return
	}
	secret, key := NewAPIKey()
	key.Owner = d.caller.GetOwner()
	if err := decodeKey(body, key); err != nil {
		a.fail(c, err)
		return
	}
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_AddKey{AddKey: key}}, func(o controlOutcome) (int, any) {
		made := o.key(key)
		shown := a.showKey(made)
		if made.GetId() != key.GetId() { // a repeat, which drew for nothing
			return http.StatusOK, shown
		}
		shown.Secret = &secret
		return http.StatusCreated, shown
	})
}

// decodeKey reads the body of a request for a key.
func decodeKey(data []byte, key *pb.ApiKey) error {
	return decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "owner":
				if key.Owner, err = r.str(); err == nil && key.GetOwner() == "" {
					err = invalid("owner", "owner must not be empty; leave it out for your own")
				}
			case "admin":
				key.Admin, err = r.boolean()
			case fieldNote:
				key.Note, err = r.str()
			default:
				return false, nil
			}
			return true, err
		})
	})
}

// RevokeKey answers DELETE /v1/keys/{id}.
func (a *api) RevokeKey(c *gin.Context, id EntryID, p RevokeKeyParams) {
	d, err := a.controlDraft(c, p.IdempotencyKey)
	if err != nil {
		a.fail(c, err)
		return
	}
	command := &pb.RevokeKey{Id: keyID(id), Note: orZero(p.Note)}
	a.submitControl(c, d, &pb.ControlCommand{Kind: &pb.ControlCommand_RevokeKey{RevokeKey: command}}, func(o controlOutcome) (int, any) {
		return http.StatusOK, a.showKey(whenAdded(a.Control.Current(), o.key(&pb.ApiKey{Id: command.GetId()})))
	})
}

// whenAdded returns a revoked key as it was added, as far back as the history goes.
func whenAdded(state *commands.Control, revoked *commands.KeyItem) *commands.KeyItem {
	state.Changes(0, func(change *commands.ControlChange) bool {
		if key := change.GetKeyAdded().GetKey(); key.GetId() == revoked.GetId() {
			revoked = &commands.KeyItem{ApiKey: key, AddedUS: change.TimeUS, Actor: change.Actor, Seq: change.Seq}
			return false
		}
		return true
	})
	return revoked
}

// keyID reads the id of a path.
func keyID(raw string) string {
	id, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	return strings.ToLower(id)
}

// key returns the key that the outcome is about.
func (o controlOutcome) key(asked *pb.ApiKey) *commands.KeyItem {
	item := &commands.KeyItem{ApiKey: asked, AddedUS: o.timeUS, Actor: o.actor, Seq: o.seq}
	for _, event := range o.events {
		switch kind := event.GetKind().(type) {
		case *pb.Event_KeyAdded:
			item.ApiKey = kind.KeyAdded.GetKey()
		case *pb.Event_KeyRevoked:
			item.ApiKey = kind.KeyRevoked.GetKey()
		}
	}
	return item
}

// showKey returns the API's form of a key.
func (a *api) showKey(k *commands.KeyItem) ApiKey {
	return ApiKey{Id: k.GetId(), Owner: k.GetOwner(), Admin: k.GetAdmin(), Note: k.GetNote(), Active: a.Control.Current().KeyByID(k.GetId()) != nil,
		AddedAt: utc(k.AddedUS), Actor: k.Actor, Position: controlPosition(k.Seq)}
}

// GetKey answers GET /v1/keys/{id}.
func (a *api) GetKey(c *gin.Context, id EntryID, p GetKeyParams) {
	state, err := a.controlAt(c, p.HoplogPosition)
	if err != nil {
		a.fail(c, err)
		return
	}
	key := state.KeyByID(keyID(id))
	if key == nil {
		a.fail(c, a.missing(notFound("there is no such key")))
		return
	}
	writeJSON(c, http.StatusOK, a.showKey(key))
}

// ListKeys answers GET /v1/keys.
func (a *api) ListKeys(c *gin.Context, p ListKeysParams) {
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
	after, err := sequenceCursor(p.Cursor)
	if err != nil {
		a.fail(c, err)
		return
	}
	var keys []*commands.KeyItem // one control envelope adds one key at most, so positions order them
	state.EachKey(func(k *commands.KeyItem) bool {
		if k.Seq > after {
			keys = append(keys, k)
		}
		return true
	})
	slices.SortFunc(keys, func(x, y *commands.KeyItem) int { return cmp.Compare(x.Seq, y.Seq) })
	page := KeyPage{Keys: []ApiKey{}, Position: controlPosition(state.Seq)}
	for _, k := range keys[:min(limit, len(keys))] {
		page.Keys = append(page.Keys, a.showKey(k))
	}
	if len(keys) > limit {
		cursor := strconv.FormatUint(keys[limit-1].Seq, 10)
		page.NextCursor = &cursor
	}
	writeJSON(c, http.StatusOK, page)
}
