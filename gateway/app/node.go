package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/control"
)

// Roles of a process.
const (
	roleAPI       = "api"
	roleCommands  = "commands"
	roleRedirect  = "redirect"
	roleAnalytics = "analytics"
	roleEffects   = "effects"
)

var allRoles = []string{roleCommands, roleAPI, roleRedirect, roleAnalytics, roleEffects}

// stopWithin bounds a stop from SIGTERM to the end.
const stopWithin = 9 * time.Second

// node is one process: the parts of its roles. They start in the order of the calls in start, and stop in the reverse
// order of theirs.
type node struct {
	settings
	roles    []string
	dev      bool
	logger   *slog.Logger
	health   *health
	registry *prometheus.Registry
	log      *eventlog.Log
	count    int // partitions of the link topics
	source   runner.Source
	ends     *logEnds
	control  *control.Store
	cache    *runner.Cache
	disk     *dataDisk
	parts    parts
	admin    adminParts
	// announce prints to the operator.
	announce func(format string, args ...any)
	firstKey string
	began    time.Time

	life   context.Context //nolint:containedctx // the process's own: it ends last, in run
	end    context.CancelFunc
	stops  []stopping
	failed chan error
}

// stopping is how one part is stopped.
type stopping struct {
	name string
	stop func(ctx context.Context) error
}

func newNode(c *cobra.Command, s settings, roles []string, dev bool) (*node, error) {
	logger, err := s.logger()
	if err != nil {
		return nil, err
	}
	if _, err := s.topicPlan(0); err != nil {
		return nil, err // before anything is started or written
	}
	if redis := s.redis(); redis.URL != "" {
		if err := redis.Validate(); err != nil {
			return nil, usageError{err}
		}
	}
	if err := s.checkPropagation(); err != nil {
		return nil, err
	}
	n := &node{settings: s, roles: roles, dev: dev, logger: logger, health: newHealth(), registry: prometheus.NewRegistry(), failed: make(chan error, 8), began: time.Now()}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.announce = func(format string, args ...any) { fmt.Fprintf(c.OutOrStdout(), format+"\n", args...) }
	logger.Info("hoplog starts", append([]any{"version", version, "roles", strings.Join(roles, ",")}, s.shown(c)...)...)
	return n, nil
}

func (n *node) has(role string) bool { return slices.Contains(n.roles, role) }

func (n *node) dir(name string) string { return filepath.Join(n.GetString("data"), name) }

// run starts the process, waits until ctx is done or a part fails, and stops it.
func (n *node) run(ctx context.Context) error {
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	defer n.end()
	n.limitMemory()
	err := n.start(ctx)
	if err == nil {
		n.health.started()
		go n.tell(ctx)
		select {
		case <-ctx.Done():
			n.logger.Info("hoplog stops")
		case err = <-n.failed:
		}
	} else if ctx.Err() != nil {
		err = nil // asked to stop while starting
	}
	return errors.Join(err, n.stop())
}

func (n *node) start(ctx context.Context) error {
	steps := []func(context.Context) error{n.lock, n.watchDisk, n.startAdmin}
	if n.dev {
		steps = append(steps, n.startBroker, n.startEngine)
	}
	steps = append(steps, n.openLog)
	if n.has(roleRedirect) {
		steps = append(steps, n.openRedirects)
	}
	steps = append(steps, n.meetTopics, n.startControl)
	// Writers before those who wait for them; visitors and clients last.
	for _, role := range []struct {
		name  string
		start func(context.Context) error
	}{{roleCommands, n.startCommands}, {roleAnalytics, n.startAnalytics}, {roleEffects, n.startEffects}, {roleRedirect, n.startRedirect}, {roleAPI, n.startAPI}} {
		if n.has(role.name) {
			steps = append(steps, role.start)
		}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// stop drains: unready first, then what takes requests, then what works on them, then what they stand on.
func (n *node) stop() error {
	n.health.drain()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	var all error
	for _, s := range slices.Backward(n.stops) {
		began := time.Now()
		if err := s.stop(ctx); err != nil {
			all = errors.Join(all, fmt.Errorf("stopping %s: %w", s.name, err))
		}
		n.logger.Debug("stopped", "part", s.name, "took", time.Since(began).Round(time.Millisecond))
	}
	return all
}

func (n *node) onStop(name string, stop func(ctx context.Context) error) {
	n.stops = append(n.stops, stopping{name, stop})
}

func (n *node) onClose(name string, stop func() error) {
	n.onStop(name, func(context.Context) error { return stop() })
}

// work runs f until it is stopped; f's context ends then, and the stop waits for f.
func (n *node) work(name string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(n.life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			n.logger.Error("a part stopped", "part", name, "error", err)
		}
	}()
	n.onStop(name, func(stop context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return stop.Err()
		}
	})
}

// lock makes the data directory this process's own.
func (n *node) lock(context.Context) error {
	if err := os.MkdirAll(n.dir(""), 0o750); err != nil {
		return fmt.Errorf("making data directory: %w: choose another with --data", err)
	}
	lock := flock.New(n.dir("LOCK"))
	got, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("locking data directory %s: %w: make it writable for this process, or choose another with --data", n.GetString("data"), err)
	}
	if !got {
		return fmt.Errorf("data directory %s is in use by another hoplog process: stop it, or choose another with --data", n.GetString("data"))
	}
	n.onClose("lock", lock.Unlock)
	return nil
}

// openLog prepares what speaks to the brokers. It does not wait for them.
func (n *node) openLog(context.Context) error {
	log, err := eventlog.Open(n.kafka(), n.logger)
	if err != nil {
		return usageError{err}
	}
	n.log = log
	n.onClose("log", func() error { log.Close(); return nil })
	n.source, n.ends = runner.FromLog(log), newLogEnds(log)
	n.cache = runner.NewCache(n.cacheBytes())
	return nil
}

// meetTopics learns how many partitions there are. The commands role makes the topics and checks their settings; the other
// roles wait for them, but for a redirect node that knows from its store: it can serve without the log.
func (n *node) meetTopics(ctx context.Context) error {
	if n.has(roleCommands) {
		return n.makeTopics(ctx)
	}
	if store := n.parts.redirects; store != nil {
		if n.count = len(store.Positions()); n.count > 0 {
			return nil
		}
	}
	return n.awaitTopics(ctx)
}

func (n *node) makeTopics(ctx context.Context) error {
	if err := n.patiently(ctx, "brokers", func(ctx context.Context) error { return n.log.WaitReady(ctx, 1) }); err != nil {
		return err
	}
	have, err := n.log.Partitions(ctx, eventlog.EventsLink)
	if err != nil && !errors.Is(err, eventlog.ErrNoTopic) {
		return fmt.Errorf("asking for the topics: %w", err)
	}
	plan, err := n.topicPlan(have)
	if err != nil {
		return err
	}
	if err := n.ensureTopics(ctx, plan); err != nil {
		return fmt.Errorf("making topics: %w", err)
	}
	n.count = plan.Partitions
	return nil
}

// ensureTopics makes the topics. Busy brokers may take longer than one attempt has: it goes on where that ended. What they say
// for good ends it.
func (n *node) ensureTopics(ctx context.Context, plan eventlog.TopicPlan) error {
	var said error
	err := n.patiently(ctx, "topics", func(ctx context.Context) error {
		err := n.log.EnsureTopics(ctx, plan)
		if errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		said = err
		return nil
	})
	return errors.Join(err, said)
}

func (n *node) awaitTopics(ctx context.Context) error {
	return n.patiently(ctx, "topics", func(ctx context.Context) (err error) {
		for _, topic := range n.awaited() {
			have, err := n.log.Partitions(ctx, topic)
			if err != nil {
				return err
			}
			if topic == eventlog.EventsLink {
				n.count = have
			}
		}
		return nil
	})
}

// awaited are the topics that this process cannot do without. Those of one role only are not awaited by others: a release that
// adds one is rolled out in any order.
func (n *node) awaited() []string {
	return slices.DeleteFunc(eventlog.TopicNames(), func(topic string) bool {
		return (topic == eventlog.EffectsDead || topic == eventlog.EffectsRetry) && !n.has(roleEffects)
	})
}

// patiently tries until it succeeds or ctx is done, and says what it waits for.
func (n *node) patiently(ctx context.Context, what string, try func(ctx context.Context) error) error {
	for told := time.Now(); ; {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Since(told) > 2*time.Second {
			n.logger.Warn("waiting", "for", what, "kafka", n.GetString(setKafka), "error", err)
			told = time.Now()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startControl returns once the control state stands at the log's end, or cannot be read: before that a server would know
// no key and no domain, and refuse everybody. A redirect node whose disk holds the state does not wait for a log that does not
// answer. An API does: a key that was revoked meanwhile opens nothing.
func (n *node) startControl(ctx context.Context) error {
	if !n.has(roleAPI) && !n.has(roleRedirect) && !n.has(roleEffects) {
		return nil
	}
	store, err := openStore(n, "control", func() (*control.Store, error) {
		pebble := n.pebble()
		pebble.Full = n.listsWait
		return control.OpenOnDisk(control.Config{Dir: n.dir("control"), Source: n.source, Pebble: pebble, Logger: n.logger, Lean: !n.has(roleAPI)})
	})
	if err != nil {
		return fmt.Errorf("opening control state: %w", err)
	}
	n.control = store
	n.onClose("control state", store.Close)
	known, err := store.FreshAt()
	if err != nil {
		return err
	}
	looked := make(chan struct{})
	n.work("control", func(ctx context.Context) error {
		err := toEnd(ctx, store.Runner)
		close(looked)
		if err != nil {
			return err
		}
		return store.Run(ctx)
	})
	var enough <-chan time.Time
	if n.has(roleRedirect) && !n.has(roleAPI) && !known.IsZero() {
		enough = time.After(logAsked)
	}
	select {
	case <-looked:
		return nil
	case <-enough:
		n.logger.Warn("going on with the control state on the disk: the log does not answer", "as_of", known)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen opens a TCP listener on the address of a setting.
func (n *node) listen(setting string) (net.Listener, error) {
	ln, err := net.Listen("tcp", n.GetString(setting))
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", setting, err)
	}
	return ln, nil
}

// serve runs an HTTP server on a listener; its stop drains it.
func (n *node) serve(name string, server *http.Server, ln net.Listener) {
	go func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("serving %s: %w", name, err)
		}
	}()
	n.onStop(name, func(ctx context.Context) error {
		if err := server.Shutdown(ctx); err != nil {
			return errors.Join(err, server.Close())
		}
		return nil
	})
}
