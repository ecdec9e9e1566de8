package effects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
)

// metaHandler names, in a dead letter and in one that was put back, the handler that it is of.
const metaHandler = "handler"

// maxReason bounds what a dead letter says of why.
const maxReason = 500

// deadLetters is Watermill's poison queue: a message that its handler gave up goes to the topic of dead letters and counts as
// handled; when that fails, it is refused and comes again. One that is given back is nobody's dead letter.
func (r *Role) deadLetters(p *handling) message.HandlerMiddleware {
	poison, err := middleware.PoisonQueueWithFilter(deadLetter{r, p}, eventlog.EffectsDead, func(err error) bool { return !errors.Is(err, context.Canceled) })
	if err != nil {
		panic(err) // the topic has no name
	}
	return poison
}

// deadLetter publishes one handler's dead letters, counts and logs them.
type deadLetter struct {
	*Role
	of *handling
}

// Publish implements message.Publisher.
func (d deadLetter) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if c, err := decodeChange(m.Payload); err == nil {
			d.of.measure(m, c, d.of.Bound+1)
		}
		reason := m.Metadata.Get(middleware.ReasonForPoisonedKey)
		m.Metadata = message.Metadata{metaHandler: d.of.Name, middleware.ReasonForPoisonedKey: reason[:min(len(reason), maxReason)]}
		if err := d.dead.Publish(topic, m); err != nil {
			return err
		}
		d.of.dead.Add(1)
		d.of.givenUp()
		d.cfg.Logger.Error("an effect is given up: its message is a dead letter", "handler", d.of.Name, "position", m.UUID, "reason", reason)
	}
	return nil
}

// Close implements message.Publisher; the Role closes what is behind it.
func (deadLetter) Close() error { return nil }

// Letter is a dead letter.
type Letter struct {
	Offset  int64     `json:"offset"`
	Time    time.Time `json:"time"`
	Handler string    `json:"handler"`
	Reason  string    `json:"reason"`
	Change  *Change   `json:"change,omitempty"` // missing: the message is none
	message *message.Message
}

// Letters are the dead letters of a log, and how far they have been looked after: a position of a group that nobody is a
// member of.
type Letters struct{ log *eventlog.Log }

// groupDead keeps the position up to which letters were put back or dropped.
const groupDead = "hoplog.effects.dead"

// DeadLetters returns those of a log.
func DeadLetters(log *eventlog.Log) Letters { return Letters{log} }

// Bounds returns the offsets between which letters wait to be looked after.
func (l Letters) Bounds(ctx context.Context) (from, to int64, err error) {
	starts, err := l.log.Starts(ctx, eventlog.EffectsDead)
	if err != nil {
		return 0, 0, err
	}
	ends, err := l.log.Ends(ctx, eventlog.EffectsDead)
	if err != nil {
		return 0, 0, err
	}
	seen, err := l.log.GroupPositions(ctx, groupDead, eventlog.EffectsDead)
	if err != nil {
		return 0, 0, err
	}
	return max(starts[0], seen[0]), ends[0], nil
}

// Waiting returns how many wait.
func (l Letters) Waiting(ctx context.Context) (int64, error) {
	from, to, err := l.Bounds(ctx)
	return to - from, err
}

// readWithin bounds each wait for letters that the log has.
const readWithin = time.Minute

// Each calls f for the letters from one offset to before another, which the log must hold.
func (l Letters) Each(ctx context.Context, from, to int64, f func(*Letter) error) error {
	if from >= to {
		return nil
	}
	tail, err := l.log.NewTail(eventlog.EffectsDead, map[int32]int64{0: from})
	if err != nil {
		return fmt.Errorf("reading dead letters: %w", err)
	}
	defer tail.Close()
	for next := from; next < to; {
		waiting, cancel := context.WithTimeout(ctx, readWithin)
		batches, err := tail.Poll(waiting, 0)
		cancel()
		if err != nil {
			return fmt.Errorf("reading dead letters: %w", err)
		}
		for _, b := range batches {
			for i := range b.Records {
				if b.Records[i].Offset >= to {
					return nil
				}
				if err := f(letterOf(&b.Records[i])); err != nil {
					return err
				}
				next = b.Records[i].Offset + 1
			}
		}
	}
	return nil
}

func letterOf(r *eventlog.Record) *Letter {
	m := pubsub.FromRecord(r)
	l := &Letter{Offset: r.Offset, Time: r.Time.UTC(), Handler: m.Metadata.Get(metaHandler), Reason: m.Metadata.Get(middleware.ReasonForPoisonedKey), message: m}
	if c, err := decodeChange(m.Payload); err == nil {
		l.Change = c
	}
	return l
}

// requeueBatch is how many letters are put back at once, and then noted.
const requeueBatch = 500

// Requeue has the letters up to an offset tried again and notes, a batch at a time, that they are looked after; progress hears
// of each batch. Killed in between, it puts one batch back twice.
func (l Letters) Requeue(ctx context.Context, from, to int64, progress func(letters int)) error {
	pub := pubsub.NewPublisher(l.log, pubsub.PublisherConfig{})
	defer pub.Close()
	var batch []*message.Message
	putBack := func(next int64) error {
		if err := pub.Publish(eventlog.EffectsRetry, batch...); err != nil {
			return fmt.Errorf("putting letters before %d back: %w", next, err)
		}
		if err := l.Drop(ctx, next); err != nil {
			return err
		}
		progress(len(batch))
		batch = batch[:0]
		return nil
	}
	err := l.Each(ctx, from, to, func(letter *Letter) error {
		m := message.NewMessage(letter.message.UUID, letter.message.Payload)
		m.Metadata.Set(metaHandler, letter.Handler)
		m.SetContext(ctx)
		if batch = append(batch, m); len(batch) < requeueBatch {
			return nil
		}
		return putBack(letter.Offset + 1)
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return putBack(to)
}

// Drop notes that the letters before an offset are looked after.
func (l Letters) Drop(ctx context.Context, to int64) error {
	return l.log.SetGroupPositions(ctx, groupDead, eventlog.EffectsDead, map[int32]int64{0: to})
}

// keepEvery is how often a position is written down again: brokers forget those of groups without members after some days.
const keepEvery = 12 * time.Hour

// Keep keeps the brokers from forgetting which letters are looked after, until ctx is done.
func (l Letters) Keep(ctx context.Context, logger *slog.Logger) {
	for {
		if err := l.keep(ctx); err != nil && ctx.Err() == nil {
			logger.Warn("the position of the dead letters is not written down again", "error", err)
		}
		if wait(ctx, keepEvery) != nil {
			return
		}
	}
}

func (l Letters) keep(ctx context.Context) error {
	seen, err := l.log.GroupPositions(ctx, groupDead, eventlog.EffectsDead)
	if err != nil || seen[0] < 0 {
		return err
	}
	return l.Drop(ctx, seen[0])
}
