package effects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/pubsub"
)

// Config is what a Role needs.
type Config struct {
	Log      *eventlog.Log
	Fold     *Fold
	Logger   *slog.Logger
	Handlers []Handler
	// GiveUp is how long a failing effect is tried again; default 15 min.
	GiveUp time.Duration
	// Observe, if not nil, hears how long after its stamp a change's effect was done, and the handler's bound. One that is given
	// up counts as later than that.
	Observe func(handler string, took, bound time.Duration)
}

// Settings of a handler's way through its messages.
const (
	// window bounds the messages of a partition that are out at once. Those of a purge wait a second for redirect nodes.
	window       = 512
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
	growth       = 1.5 // Watermill takes two steps for each retry of which it asks whether it is worth it
	jitter       = 0.5
	giveUp       = 15 * time.Minute
	// closeWithin bounds the end of all messages; subscriptions need less, also when no broker answers.
	closeWithin = 6 * time.Second
	endless     = 1 << 30 // retries: time bounds them
	tellEvery   = time.Minute
	patience    = time.Second
)

// Role runs handlers until it is closed.
type Role struct {
	cfg    Config
	router *message.Router
	dead   *pubsub.Publisher
	parts  []*handling
}

// handling is one handler at work.
type handling struct {
	Handler
	done    atomic.Uint64
	failed  atomic.Uint64 // attempts
	dead    atomic.Uint64
	observe func(handler string, took, bound time.Duration)
	subs    []*pubsub.Subscriber
	logger  *slog.Logger

	mu      sync.Mutex // guards what follows
	last    error      // of the latest attempt, nil if it succeeded or was given up
	failing time.Time  // since when every attempt has failed; zero after one that was given up
	told    time.Time  // when a failure was logged
}

// New wires the handlers; Run starts them.
func New(cfg Config) (*Role, error) {
	if cfg.GiveUp == 0 {
		cfg.GiveUp = giveUp
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeWithin}, quiet(cfg.Logger))
	if err != nil {
		return nil, fmt.Errorf("making the router of effects: %w", err)
	}
	r := &Role{cfg: cfg, router: router, dead: pubsub.NewPublisher(cfg.Log, pubsub.PublisherConfig{})}
	for _, h := range cfg.Handlers {
		if err := r.add(h); err != nil {
			return nil, errors.Join(err, r.dead.Close())
		}
	}
	return r, nil
}

// add subscribes a handler twice: to the events that it follows, and to what it is told to do beside them.
func (r *Role) add(h Handler) error {
	if h.topic == "" {
		h.topic = eventlog.EventsLink
	}
	part := &handling{Handler: h, observe: r.cfg.Observe, logger: r.cfg.Logger}
	r.parts = append(r.parts, part)
	if part.follow == nil {
		part.follow = r.cfg.Fold.unmarshal(&part.Handler)
	}
	for topic, cfg := range map[string]pubsub.SubscriberConfig{
		h.topic:               {AtEnd: true, Unmarshal: part.follow},
		eventlog.EffectsRetry: {Unmarshal: again(&part.Handler)},
	} {
		cfg.Group, cfg.Window = groupOf(h.Name), window
		sub, err := pubsub.NewSubscriber(r.cfg.Log, cfg, r.cfg.Logger)
		if err != nil {
			return err
		}
		part.subs = append(part.subs, sub)
		wired := r.router.AddConsumerHandler(h.Name+" of "+topic, topic, patient{sub, r.cfg.Logger}, part.handle)
		wired.AddMiddleware(r.deadLetters(part), r.retries())
	}
	return nil
}

// patient is a subscriber that waits for brokers; a router whose subscriber fails at the start stays stopped.
type patient struct {
	*pubsub.Subscriber
	logger *slog.Logger
}

// Subscribe implements message.Subscriber.
func (p patient) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := p.Subscriber.Subscribe(ctx, topic)
		if err == nil || errors.Is(err, eventlog.ErrClosed) {
			return out, err
		}
		p.logger.Warn("effects wait for the log", "topic", topic, "error", err)
		if ended := wait(ctx, patience); ended != nil {
			return nil, ended
		}
	}
}

// groupOf names a handler's subscriber.
func groupOf(handler string) string { return "hoplog.effects." + handler }

// Group returns the consumer group in which a handler reads a topic.
func Group(handler, topic string) string { return pubsub.GroupOf(groupOf(handler), topic) }

func (r *Role) retries() message.HandlerMiddleware {
	return middleware.Retry{MaxRetries: endless, InitialInterval: firstPause, MaxInterval: longestPause, Multiplier: growth, RandomizationFactor: jitter,
		MaxElapsedTime: r.cfg.GiveUp, ShouldRetry: func(p middleware.RetryParams) bool { return !errors.Is(p.Err, ErrPermanent) },
		ResetContextOnRetry: true}.Middleware
}

// Run handles messages until ctx is done. It waits for brokers.
func (r *Role) Run(ctx context.Context) error {
	err := r.router.Run(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("running effects: %w", err)
	}
	return nil
}

// Close gives back what is under way and leaves the groups; ctx bounds the wait for that. Run has ended, or ends.
func (r *Role) Close(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- r.close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("closing effects: %w", ctx.Err())
	}
}

func (r *Role) close() (all error) {
	if r.router.IsRunning() { // one that was stopped while it waited for brokers would wait for handlers that never began
		all = r.router.Close()
	}
	for _, part := range r.parts {
		for _, sub := range part.subs {
			all = errors.Join(all, sub.Close())
		}
	}
	return errors.Join(all, r.dead.Close())
}

// handle is one attempt.
func (p *handling) handle(m *message.Message) error {
	c, err := decodeChange(m.Payload)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrPermanent, err)
	} else {
		err = p.Do(m.Context(), c)
	}
	p.note(err)
	if err != nil {
		return err
	}
	p.done.Add(1)
	p.measure(m, c, 0)
	return nil
}

// measure tells how long a change took, at least so long. One that was put back has no bound any more.
func (p *handling) measure(m *message.Message, c *Change, least time.Duration) {
	if p.observe != nil && m.Metadata.Get(metaHandler) == "" {
		p.observe(p.Name, max(least, time.Since(time.UnixMicro(c.TimeUS))), p.Bound)
	}
}

func (p *handling) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // given back
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = err
	switch {
	case err == nil:
		p.failing = time.Time{}
	case p.failing.IsZero():
		p.failing = time.Now()
	}
	if err == nil {
		return
	}
	p.failed.Add(1)
	if time.Since(p.told) > tellEvery {
		p.told = time.Now()
		p.logger.Warn("effects fail and are tried again", "handler", p.Name, "error", err)
	}
}

// givenUp notes that nothing is tried any more of what failed: the count of dead letters tells from here.
func (p *handling) givenUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.failing = nil, time.Time{}
}

// HandlerStatus is how a handler of this process is.
type HandlerStatus struct {
	Handler string
	Topic   string    // whose events it follows
	Done    uint64    // effects since the start
	Failed  uint64    // attempts since the start that did not succeed
	Dead    uint64    // dead letters since the start
	Failing time.Time // since when every attempt has failed; zero: the latest succeeded, or its effect was given up
	Last    error     // of the latest attempt, nil then too
	Trouble error     // with the brokers
}

// Status returns how the handlers are.
func (r *Role) Status() (list []HandlerStatus) {
	for _, p := range r.parts {
		s := HandlerStatus{Handler: p.Name, Topic: p.topic, Done: p.done.Load(), Failed: p.failed.Load(), Dead: p.dead.Load()}
		p.mu.Lock()
		s.Failing, s.Last = p.failing, p.last
		p.mu.Unlock()
		for _, sub := range p.subs {
			s.Trouble = errors.Join(s.Trouble, sub.LastError())
		}
		list = append(list, s)
	}
	return list
}

// quiet is Watermill's logger: what it says of its daily work is ours at debug level.
func quiet(logger *slog.Logger) watermill.LoggerAdapter {
	return watermill.NewSlogLoggerWithLevelMapping(logger, map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug})
}
