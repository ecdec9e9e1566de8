package effects

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/events"
)

// Change is what happened to one link, as a message carries it.
type Change struct {
	Namespace string `json:"namespace"`
	Code      string `json:"code"`
	Version   uint64 `json:"version"`
	Position  string `json:"position"` // of its envelope: stream/bucket/seq
	TimeUS    int64  `json:"time_us"`  // when the writer stamped it, by its clock
	Created   bool   `json:"created,omitempty"`
	// Cached: an answer to a visit of the link may lie in a cache that is not ours, because it has, or ever had, a cache_ttl.
	Cached bool `json:"cached,omitempty"`
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

var errNoChange = errors.New("the message is not a change of a link")

func decodeChange(payload []byte) (*Change, error) {
	c := &Change{}
	if err := json.Unmarshal(payload, c); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoChange, err)
	}
	if c.Namespace == "" || c.Code == "" || c.Version == 0 {
		return nil, errNoChange
	}
	return c, nil
}
