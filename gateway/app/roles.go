package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/gateway/scan"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/clicks"
	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
)

// parts are the roles' parts that status, metrics and rebuilds look at; nil where the process has no such role.
type parts struct {
	handler   *handler.Handler
	links     *links.Store
	redirects *redirects.Store
	recorder  *gateway.ClickRecorder
	sink      *runner.ClickSink
	engine    *engine.Child
	freshness *gateway.Freshness
	clicks    *clicks.Store
	pulse     *control.Pulse
	gate      *deny.Gate
	plane     *gateway.Redirect
	scan      *scan.Guard
	shared    *shared.Tier
	effects   *effectsPart
	follows   *followed // of the redirects
	// propagation is measured where changes arrive.
	propagation []*propagation
}

// startEngine starts the embedded ClickHouse. Without its library everything but click statistics works.
func (n *node) startEngine(ctx context.Context) error {
	lib, err := engine.Find(n.GetString("chdb"))
	if errors.Is(err, engine.ErrNoEngine) {
		n.logger.Warn("click statistics are off", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	c := n.clickhouse()
	child, err := engine.Start(ctx, engine.Options{Lib: lib, DataDir: n.dir("clickhouse"), Addr: c.Addr, User: c.User, Password: c.Password, Log: n.logger})
	if err != nil {
		return fmt.Errorf("starting embedded ClickHouse: %w", err)
	}
	n.parts.engine = child
	n.onStop("embedded ClickHouse", child.Stop)
	return nil
}

func (n *node) pebble() runner.PebbleOptions {
	return runner.PebbleOptions{Cache: n.cache, Logger: n.logger, Damaged: n.disk.damaged, Full: n.commitsWait}
}

func (n *node) startCommands(context.Context) error {
	domain, err := domainOf(n.GetString("domain"), n.GetString("redirect"), n.dev)
	if err != nil {
		return err
	}
	h, err := openStore(n, "commands", func() (*handler.Handler, error) {
		return handler.Open(handler.Config{Log: n.log, Logger: n.logger, Dir: n.dir("commands"), Full: n.disk.guard.Full, Partitions: n.count, Now: time.Now,
			Damaged: n.disk.damaged})
	})
	if err != nil {
		return fmt.Errorf("opening commands: %w", err)
	}
	n.parts.handler = h
	n.onClose("command state", h.Close)
	n.work("commands", h.Run)
	n.work("pulse", h.Pulse)
	b := &bootstrap{control: h.Control(), logger: n.logger, domain: domain, adminKey: n.GetString(setAdminKey), shown: n.showFirstKey}
	n.work("bootstrap", func(ctx context.Context) error { b.run(ctx); return nil })
	n.health.add(roleCommands, func() roleHealth { return n.commandsHealth(h) })
	return nil
}

func (n *node) commandsHealth(h *handler.Handler) roleHealth {
	if err := h.Alarm(); err != nil {
		return notReady(err.Error())
	}
	select {
	case <-h.Joined():
	default:
		return notReady("waiting for the writers' group to assign partitions")
	}
	if state := controlHealth(h.Control().State()); state != ready {
		return state
	}
	for _, w := range h.Status() {
		if w.Mint != nil && slices.ContainsFunc(w.Mint.Spaces, mint.SpaceStats.Low) {
			return degraded(fmt.Sprintf("the leased ids of partition %d run low and no more come: creating links will stop", w.Partition))
		}
	}
	return ready
}

// controlHealth says what a fresh installation still lacks.
func controlHealth(c *commands.Control) roleHealth {
	switch {
	case len(c.PermutationKeys()) == 0 || c.Keys() == 0:
		return notReady("the control log is not set up yet: a commands process does it")
	case c.DefaultDomain() == nil:
		return notReady("there is no default domain: start a commands process once with --domain")
	}
	return ready
}

func (n *node) startAnalytics(context.Context) error {
	if n.dev && n.parts.engine == nil {
		n.health.add(roleAnalytics, func() roleHealth { return degraded("the embedded ClickHouse is not installed: run `make engine`") })
		return nil
	}
	store, err := n.clickStore()
	if err != nil {
		return err
	}
	sink := runner.NewClickSink(runner.ClickSinkConfig{Log: runner.ClickLogOf(n.log), Store: store, Logger: n.logger, Gather: n.GetDuration("gather")})
	n.parts.sink = sink
	n.work("click sink", sink.Run)
	n.health.add(roleAnalytics, func() roleHealth {
		if err := sink.Err(); err != nil {
			return notReady(err.Error())
		}
		switch status := sink.Status(); {
		case status.Waiting != nil:
			return degraded(status.Waiting.Error())
		case !status.Joined:
			return notReady("preparing ClickHouse")
		}
		return ready
	})
	return nil
}

// clickStore opens the process's connection to ClickHouse, once.
func (n *node) clickStore() (*clicks.Store, error) {
	if n.parts.clicks != nil {
		return n.parts.clicks, nil
	}
	store, err := clicks.Open(n.clickhouse(), n.logger)
	if err != nil {
		return nil, usageError{err}
	}
	n.parts.clicks = store
	n.onClose("ClickHouse client", store.Close)
	return store, nil
}

// openRedirects opens what a redirect node answers from. It needs no log, and knows how many partitions the log has.
func (n *node) openRedirects(context.Context) error {
	tier, err := n.sharedTier()
	if err != nil {
		return err
	}
	n.parts.follows = &followed{measure: n.newPropagation(roleRedirect, n.nodeBound())}
	store, err := openStore(n, "redirects", func() (*redirects.Store, error) {
		cfg := redirects.Config{Dir: n.dir("redirects"), Source: n.source, Pebble: n.pebble(), Observe: n.parts.follows.observe, Memory: n.hotBytes()}
		if tier != nil {
			cfg.Shared = tier
		}
		return redirects.Open(cfg)
	})
	if err != nil {
		return fmt.Errorf("opening redirects: %w", err)
	}
	n.parts.redirects = store
	n.onClose("redirects", store.Close)
	return nil
}

func (n *node) startRedirect(context.Context) error {
	store := n.parts.redirects
	n.followRedirects(store)
	age, err := n.startAge(store, n.control)
	if err != nil {
		return err
	}
	n.parts.follows.caughtUp.Store(&age.caught)
	if tier := n.parts.shared; tier != nil {
		n.share(tier, store, age)
	}
	session, err := n.log.NewAppender(eventlog.Clicks)
	if err != nil {
		return fmt.Errorf("opening producer session: %w", err)
	}
	n.onClose("click session", func() error { session.Close(); return nil })
	recorder, err := gateway.NewClickRecorder(session, n.clickConfig(), n.logger)
	if err != nil {
		return err
	}
	n.parts.recorder = recorder
	n.onStop("click recorder", recorder.Close)
	gate, err := n.startGate()
	if err != nil {
		return err
	}
	if err := n.servePlane(store, recorder, gate, age); err != nil {
		return err
	}
	n.health.add(roleRedirect, func() roleHealth { return n.redirectHealth(store, age) })
	return nil
}

// redirectHealth: a node with a usable map stays ready whatever happens to the log, and says so.
func (n *node) redirectHealth(store *redirects.Store, age *dataAge) roleHealth {
	if h := controlHealth(n.control.Current()); h.State == stateNot {
		return h
	}
	broken := errors.Join(store.Err(), n.control.Err())
	switch {
	case broken != nil && age.complete.Load():
		return degraded(broken.Error())
	case broken != nil:
		return notReady(broken.Error())
	}
	return worse(age.health(n.began), n.listsHealth())
}

// redirectsComplete says why this node may not know a link or domain that exists.
func (n *node) redirectsComplete(store *redirects.Store, age *dataAge) error {
	if err := errors.Join(store.Err(), n.control.Err()); err != nil {
		return err
	}
	return age.tell()
}

// toEnd folds up to the log's end, however long the log cannot be asked. Only what stops the runner for good, and the end of
// ctx, are errors.
func toEnd(ctx context.Context, r *runner.Runner) error {
	for {
		err := r.RunToEnd(ctx)
		if err == nil || r.Err() != nil || !sleep(ctx, readyPoll) {
			return err
		}
	}
}

func (n *node) startAPI(ctx context.Context) error {
	session, err := n.log.NewAppender(eventlog.CommandsLink)
	if err != nil {
		return fmt.Errorf("opening producer session: %w", err)
	}
	n.onStop("command session", func(ctx context.Context) error {
		defer session.Close()
		return session.Flush(ctx)
	})
	submitter := gateway.NewSubmitter(session, n.count)
	if err := n.removeOutdated("owners", "links"); err != nil {
		return err
	}
	controls, err := n.startControlSubmitter()
	if err != nil {
		return err
	}
	records, err := openStore(n, "links", func() (*links.Store, error) {
		return links.Open(links.Config{Dir: n.dir("links"), Source: n.source, Pebble: n.pebble(), Committed: submitter.Committed})
	})
	if err != nil {
		return fmt.Errorf("opening links: %w", err)
	}
	n.parts.links = records
	n.onClose("links", records.Close)
	n.work("links projection", records.Run)
	n.work("request sweeper", records.SweepRequests)
	n.parts.freshness = gateway.NewFreshness(n.log, eventlog.EventsLink, n.logger, records)
	n.work("freshness", func(ctx context.Context) error { n.parts.freshness.Run(ctx); return nil })
	n.health.addAge(func() (time.Duration, bool) {
		at := n.parts.freshness.AsOf()
		return max(0, time.Since(at)), !at.IsZero()
	})
	deps := gateway.APIDeps{Logger: n.logger, Metrics: n.registry, Control: n.control, Links: records, Submitter: submitter, ControlSubmitter: controls,
		ControlAt: n.control, LinksAt: records, Freshness: n.parts.freshness, Now: time.Now,
		Complete: func() error { return errors.Join(n.control.Err(), n.parts.freshness.Ready()) }, Writable: n.disk.guard.Full,
		Propagation: n.propagationBound()}
	if err := n.addStats(&deps); err != nil {
		return err
	}
	handler, err := gateway.NewAPI(deps)
	if err != nil {
		return err
	}
	ln, err := n.listen("api")
	if err != nil {
		return err
	}
	n.serve("api", gateway.NewAPIServer(handler, n.logger), limitConnections(ln, apiConnections(descriptors())))
	n.health.add(roleAPI, func() roleHealth {
		return n.apiHealth()
	})
	return nil
}

// apiHealth: on a full disk the folds wait, and what they show is read on.
func (n *node) apiHealth() roleHealth {
	if err := n.control.Err(); err != nil {
		return notReady(err.Error())
	}
	if err := n.parts.freshness.Ready(); err != nil {
		if full := n.disk.guard.Full(); full != nil {
			return degraded(full.Error())
		}
		return notReady(err.Error())
	}
	return controlHealth(n.control.Current())
}

// addStats gives the API its statistics, unless this machine has no ClickHouse.
func (n *node) addStats(deps *gateway.APIDeps) error {
	if n.dev && n.parts.engine == nil {
		return nil
	}
	store, err := n.clickStore()
	if err != nil {
		return err
	}
	ends := clicks.NewWatermark(func(ctx context.Context) ([]int64, error) { return n.log.Ends(ctx, eventlog.Clicks) }, n.logger)
	n.work("click watermark", ends.Run)
	deps.Clicks = store
	deps.ClicksAsOf = func(ctx context.Context) (clicks.Freshness, error) { return store.Freshness(ctx, ends) }
	return nil
}

// domains shows the redirect plane the short domains of the control state.
type domains struct{ control *control.Store }

// Resolve implements gateway.RedirectDomains.
func (d domains) Resolve(host []byte) (namespace string, ok bool) {
	domain := d.control.Current().Resolve(string(host))
	return domain.GetNamespace(), domain != nil
}

// NotFoundURL implements gateway.RedirectDomains.
func (d domains) NotFoundURL(namespace string) string {
	return d.control.Current().NotFoundURL(namespace)
}
