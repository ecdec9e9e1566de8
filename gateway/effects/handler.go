package effects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrPermanent says that an effect will not succeed however often it is tried: its message becomes a dead letter at once.
var ErrPermanent = errors.New("it is of no use to try again")

// Handler is one kind of effect.
type Handler struct {
	// Name names the handler for ever: its consumer group and its dead letters carry it.
	Name string
	// Wants picks the changes that have this effect; nil: all. It must not block.
	Wants func(c *Change) bool
	// Do has the effect. It is called concurrently, may be called again for what it has done, and for an older change after a
	// newer one. An error is tried again, unless it is an ErrPermanent. When ctx is done the message is given back.
	Do func(ctx context.Context, c *Change) error
	// Bound is the time from a change's stamp within which the effect is promised; 0: nothing is.
	Bound time.Duration

	// topic is where changes are read, and follow makes messages of its records; none: those of the link events.
	topic  string
	follow unmarshal
}

// unmarshal makes a message of a record, nil if it asks for nothing; see pubsub.SubscriberConfig.
type unmarshal func(ctx context.Context, partition int32, r *eventlog.Record) (*message.Message, error)

// SharedTier is the handler that keeps a tier between processes current: put writes a link under its route key, and must not
// let an older version overwrite a newer one.
func SharedTier(fold *Fold, bound time.Duration, put func(ctx context.Context, routeKey []byte, link *pb.Redirect) error) Handler {
	return Handler{Name: "shared", Bound: bound, Do: func(ctx context.Context, c *Change) error {
		link, err := fold.Link(c.Namespace, c.Code)
		if err != nil {
			return err
		}
		if link == nil {
			return fmt.Errorf("%w: there is no such link", ErrPermanent)
		}
		return put(ctx, []byte(events.RouteKey(c.Namespace, c.Code)), link)
	}}
}

// unmarshal makes a handler's messages of link events: it waits until the fold is past a record, and leaves out what is void
// or unwanted.
func (f *Fold) unmarshal(h *Handler) unmarshal {
	return func(ctx context.Context, partition int32, r *eventlog.Record) (*message.Message, error) {
		if err := passed(ctx, f, partition, r.Offset); err != nil {
			return nil, fmt.Errorf("waiting for the fold: %w", err)
		}
		e, err := events.DecodeEnvelope(r.Value)
		if err != nil {
			return nil, fmt.Errorf("reading link events: %w", err) // the fold has passed it: it was readable a moment ago
		}
		c := changeOf(e)
		if c == nil {
			return nil, nil
		}
		void, err := f.void(partition, r.Offset)
		if err != nil || void {
			return nil, err
		}
		if c.Cached, err = f.cached(c); err != nil {
			return nil, err
		}
		if h.Wants != nil && !h.Wants(c) {
			return nil, nil
		}
		payload, err := c.encode()
		if err != nil {
			return nil, err
		}
		return message.NewMessage(c.Position, payload), nil
	}
}

// again makes a handler's messages of the letters that were put back for it, and of the links that a Sweeper found for it.
func again(h *Handler) unmarshal {
	return func(_ context.Context, _ int32, r *eventlog.Record) (*message.Message, error) {
		m := pubsub.FromRecord(r)
		if m.Metadata.Get(metaHandler) != h.Name {
			return nil, nil
		}
		return m, nil
	}
}
