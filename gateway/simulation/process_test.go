//go:build synctests

package simulation

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/virtualkafka"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

type role int

const (
	roleWriter role = iota
	roleAPI
	roleNode
)

// process is one process of a role, over all its lives: its disk, its clock and its place in the network.
type process struct {
	w    *world
	name string
	role role
	rng  *rand.Rand
	skew atomic.Int64 // of its clock, in nanoseconds

	mu   sync.Mutex // guards what follows
	fs   *vfs.MemFS
	life *life // nil while it is down
}

// life is a process from its start to its end.
type life struct {
	*process
	net    *virtualkafka.Node
	log    *eventlog.Log
	cancel context.CancelFunc
	work   sync.WaitGroup
	dead   chan struct{} // closed when it is killed: nobody hears of it any more
	calls  sync.WaitGroup
	closes []func() error // in reverse order

	handler   *handler.Handler // of a writer
	api       http.Handler     // of an API
	control   *control.Store
	links     *links.Store
	redirects *redirects.Store // of a redirect node
	shown     floors           // of an API or a node: what it has shown
	written   floors           // of an API: what it has answered writes with, which it lists too
	open      atomic.Bool      // of an API: it listens, as it does once it has read the control log
}

func (w *world) process(name string, r role, rng *rand.Rand) *process {
	return &process{w: w, name: name, role: r, rng: rng, fs: vfs.NewCrashableMem()}
}

// clock is the process's own.
func (p *process) clock() time.Time { return p.w.now().Add(time.Duration(p.skew.Load())) }

// current returns the life at hand, nil while the process is down.
func (p *process) current() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// start begins a life on what the last one left on the disk.
func (p *process) start() {
	l := &life{process: p, net: p.w.broker.Node(rand.New(rand.NewPCG(p.rng.Uint64(), p.rng.Uint64()))), dead: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	var err error
	l.log, err = eventlog.Open(eventlog.Config{Brokers: []string{p.w.broker.Addr()}, Dial: l.net.Dial}, p.w.logger)
	p.w.must(err)
	l.closes = append(l.closes, func() error { l.log.Close(); return nil })
	switch p.role {
	case roleWriter:
		err = l.startWriter(ctx)
	case roleAPI:
		err = l.startAPI(ctx)
	case roleNode:
		err = l.startNode(ctx)
	}
	if err != nil {
		p.w.fail("%s does not start on its store: %v", p.name, err)
		cancel()
		l.end()
		return
	}
	p.mu.Lock()
	p.life = l
	p.mu.Unlock()
	p.w.trace.note("%s started", p.name)
}

// run does a part's work. It must not end by itself while the life goes on.
func (l *life) run(ctx context.Context, name string, work func(context.Context) error) {
	l.work.Go(func() {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			l.w.fail("%s: %s ended: %v", l.name, name, err)
		}
	})
}

// startWriter asks for Pebble's newest format: writers of the oldest, its default, keep channels for another use, and a
// channel belongs to its bubble.
func (l *life) startWriter(ctx context.Context) (err error) {
	l.handler, err = handler.Open(handler.Config{Log: l.log, Logger: l.w.logger, Dir: "commands", Partitions: partitions,
		Options: &pebble.Options{FS: l.fs}, Now: l.clock})
	if err != nil {
		return err
	}
	l.closes = append(l.closes, l.handler.Close)
	l.run(ctx, "commands", l.handler.Run)
	return nil
}

func (l *life) pebble() runner.PebbleOptions {
	return runner.PebbleOptions{FS: l.fs, Logger: l.w.logger}
}

func (l *life) startAPI(ctx context.Context) error {
	sender, err := l.log.NewAppender(eventlog.CommandsLink)
	if err != nil {
		return err
	}
	l.closes = append(l.closes, func() error { sender.Close(); return nil })
	source := runner.FromLog(l.log)
	if l.control, err = control.Open(source, l.w.logger); err != nil {
		return err
	}
	submitter := gateway.NewSubmitter(sender, partitions)
	l.links, err = links.Open(links.Config{Dir: "links", Source: source, Pebble: l.pebble(), Committed: submitter.Committed})
	if err != nil {
		return err
	}
	l.closes = append(l.closes, l.links.Close, l.control.Close)
	fresh := gateway.NewFreshness(l.log, eventlog.EventsLink, l.w.logger, l.links)
	l.run(ctx, "control", func(ctx context.Context) error {
		for ctx.Err() == nil && l.control.RunToEnd(ctx) != nil && l.control.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		l.open.Store(true)
		return l.control.Run(ctx)
	})
	l.run(ctx, "links", l.links.Run)
	l.run(ctx, "freshness", func(ctx context.Context) error { fresh.Run(ctx); return nil })
	l.api, err = gateway.NewAPI(gateway.APIDeps{Logger: l.w.logger, Metrics: prometheus.NewRegistry(), Control: l.control, Links: l.links,
		Submitter: submitter, ControlAt: l.control, LinksAt: l.links, Freshness: fresh, Now: l.clock})
	return err
}

func (l *life) startNode(ctx context.Context) (err error) {
	// A map in memory of a few entries is evicted and filled all the time.
	l.redirects, err = redirects.Open(redirects.Config{Dir: "redirects", Source: runner.FromLog(l.log), Pebble: l.pebble(), Memory: 16 << 10})
	if err != nil {
		return err
	}
	l.closes = append(l.closes, l.redirects.Close)
	l.run(ctx, "redirects", l.redirects.Run)
	return nil
}

// take ends the process's life for others; nil if it is down.
func (p *process) take() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.life
	p.life = nil
	return l
}

// stop drains the process, as SIGTERM does.
func (p *process) stop() {
	l := p.take()
	if l == nil {
		return
	}
	l.calls.Wait()
	l.end()
	l.net.Kill(false)
	p.w.trace.note("%s stopped", p.name)
}

// kill ends the process as a power cut of its machine does: what it sent may still arrive, what its disk was not made to
// keep may be gone.
func (p *process) kill(arrive bool, unsynced int) {
	l := p.take()
	if l == nil {
		return
	}
	p.w.trace.note("%s killed; its requests arrive: %v; %d %% of what was not synced is kept", p.name, arrive, unsynced)
	l.net.Kill(arrive)
	close(l.dead)
	clone := p.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: p.rng})
	p.mu.Lock()
	p.fs = clone
	p.mu.Unlock()
	p.w.teardown.Go(func() {
		l.cancel()
		l.calls.Wait()
		l.end()
	})
}

// end waits for the work and closes what was opened.
func (l *life) end() {
	l.cancel()
	l.work.Wait()
	for i := len(l.closes) - 1; i >= 0; i-- {
		if err := l.closes[i](); err != nil {
			l.w.fail("closing %s: %v", l.name, err)
		}
	}
}

// fault returns what stopped a part of the process for good: no fault of this simulation may.
func (l *life) fault() error {
	switch {
	case l.handler != nil:
		return l.handler.Alarm()
	case l.links != nil:
		for _, err := range []error{l.links.Err(), l.control.Err()} {
			if err != nil {
				return err
			}
		}
	case l.redirects != nil:
		return l.redirects.Err()
	}
	return nil
}
