package commands

import (
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// MaxKeys is how many API keys there can be.
const MaxKeys = 10_000

// KeyItem is an API key with who added it, and when. It is never changed.
type KeyItem struct {
	*pb.ApiKey
	// AddedUS is the stamped time of the command that added it; microseconds.
	AddedUS int64
	Actor   string
	// Seq is the control position of that command's envelope.
	Seq uint64
}

// Key returns the API key with this SHA-256, nil if there is none.
func (c *Control) Key(hash [32]byte) *pb.ApiKey {
	if c == nil || c.keys[hash] == nil {
		return nil
	}
	return c.keys[hash].ApiKey
}

// Keys returns how many API keys there are.
func (c *Control) Keys() int {
	if c == nil {
		return 0
	}
	return len(c.keys)
}

// EachKey calls f with every API key, in no order, until it returns false.
func (c *Control) EachKey(f func(*KeyItem) bool) {
	if c == nil {
		return
	}
	for _, key := range c.keys {
		if !f(key) {
			return
		}
	}
}

// KeyByID returns the API key of a public name, nil if there is none.
func (c *Control) KeyByID(id string) (found *KeyItem) {
	c.EachKey(func(key *KeyItem) bool {
		if key.GetId() == id {
			found = key
		}
		return found == nil
	})
	return found
}

func decideKey(c *Control, key *pb.ApiKey) (*pb.Event, *Refusal) {
	if len(key.GetHash()) != 32 || key.GetId() == "" || key.GetOwner() == "" {
		return nil, Refuse(CodeInvalidRequest, "key", "a key needs an id, an owner and a SHA-256")
	}
	if err := checkNames(key.GetId(), key.GetOwner()); err != nil {
		return nil, err
	}
	if err := checkText("note", key.GetNote(), MaxReason); err != nil {
		return nil, err
	}
	if old := c.Key([32]byte(key.GetHash())); old != nil {
		return nil, nil
	}
	if c.KeyByID(key.GetId()) != nil {
		return nil, Refuse(CodeUnavailable, "", "the key drawn has the name of another; ask again")
	}
	if c.Keys() >= MaxKeys {
		return nil, Refuse(CodeQuotaExceeded, "", fmt.Sprintf("there are %d API keys, which is the limit; revoke some", MaxKeys))
	}
	return &pb.Event{Kind: &pb.Event_KeyAdded{KeyAdded: &pb.KeyAdded{Key: key}}}, nil
}

// decideRevoke decides that a key is no longer one. The last admin key stays: nobody could make another.
func decideRevoke(c *Control, r *pb.RevokeKey) (*pb.Event, *Refusal) {
	if err := checkText("note", r.GetNote(), MaxReason); err != nil {
		return nil, err
	}
	key := c.KeyByID(r.GetId())
	if key == nil {
		return nil, Refuse(CodeNotFound, "", "there is no such key")
	}
	if key.GetAdmin() {
		admins := 0
		c.EachKey(func(k *KeyItem) bool {
			if k.GetAdmin() {
				admins++
			}
			return admins < 2
		})
		if admins < 2 {
			return nil, Refuse(CodeForbidden, "", "this is the last admin key; create another first")
		}
	}
	return &pb.Event{Kind: &pb.Event_KeyRevoked{KeyRevoked: &pb.KeyRevoked{Key: key.ApiKey, Note: r.GetNote()}}}, nil
}
