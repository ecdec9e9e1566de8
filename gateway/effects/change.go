package effects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hoplog/hoplog/events"
)

// Change is what happened to one link, or what of the control log may concern many, as a message carries it.
type Change struct {
	Namespace string `json:"namespace"`
	Code      string `json:"code"`
	Version   uint64 `json:"version"`
	Position  string `json:"position"` // of its envelope: stream/bucket/seq
	TimeUS    int64  `json:"time_us"`  // when the writer stamped it, by its clock
	Created   bool   `json:"created,omitempty"`
	// Cached: an answer to a visit of the link may lie in a cache that is not ours, because it has, or ever had, a cache_ttl.
	Cached bool `json:"cached,omitempty"`
	// By says in words what of the control log concerns the link, which itself did not change; redirect nodes follow it already.
	By string `json:"by,omitempty"`
	// Lists: the change is one of the control log, and names no link.
	Lists []Concern `json:"lists,omitempty"`
}

// String says what changed, for people.
func (c *Change) String() string {
	if len(c.Lists) == 0 {
		return c.Namespace + "/" + c.Code
	}
	parts := make([]string, len(c.Lists))
	for i, concern := range c.Lists {
		parts[i] = concern.String()
	}
	return strings.Join(parts, ", ")
}

// changeOf returns what an envelope did to a link, nil if it did nothing. An envelope answers one command, and a command of
// this stream concerns one link.
func changeOf(e *events.Envelope) *Change {
	c := &Change{Position: e.Position(events.StreamLink).String(), TimeUS: e.GetStamp().GetTimeUs()}
	found := false
	for _, event := range e.GetEvents() {
		ref := events.LinkOf(event)
		if ref == nil {
			continue
		}
		found = true
		c.Namespace, c.Code, c.Version = ref.GetNamespace(), ref.GetCode(), events.VersionOf(event)
		c.Created = event.GetLinkCreated() != nil
	}
	if !found {
		return nil
	}
	return c
}

func (c *Change) encode() ([]byte, error) {
	value, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding a change: %w", err)
	}
	return value, nil
}

var errNoChange = errors.New("the message is not a change of a link or of lists")

func decodeChange(payload []byte) (*Change, error) {
	c := &Change{}
	if err := json.Unmarshal(payload, c); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoChange, err)
	}
	if len(c.Lists) == 0 && (c.Namespace == "" || c.Code == "" || c.Version == 0) {
		return nil, errNoChange
	}
	return c, nil
}
