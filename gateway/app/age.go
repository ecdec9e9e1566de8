package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

const (
	// ageEvery is how often the log is asked where it ends, and ageSaved how often a node's age is written down.
	ageEvery = time.Second
	ageSaved = 5 * time.Second
	// ageSynced is how soon what is new is on the disk: what kill -9 takes along of a node that starts again without the log.
	ageSynced = 250 * time.Millisecond
	// ageBound is the age above which a node says of what it does not know that it cannot tell. It is longer than a restart of
	// the brokers: while they are away nothing new can have been made, and answers of 503 to every scanner would have load
	// balancers take the nodes out of service.
	ageBound = 30 * time.Second
	// logWithin is how recent an answer of the log must be for the log to count as there.
	logWithin = 5 * time.Second
	// logAsked is how long a node that starts waits for the log's first answer before it goes on with what is on its disk.
	logAsked = 2 * time.Second
)

// dataAge knows how old what a redirect node answers from can be at most, by the node's own clock. The stores keep it: a node
// that starts without the log knows how old its data is, and whether they ever were all of the log.
type dataAge struct {
	parts    []agePart
	complete atomic.Bool // each part was all of the log once
	caught   atomic.Bool // since this start
}

// agePart is a read model with its age.
type agePart struct {
	of       gateway.Follower
	measured *gateway.Freshness
	stored   time.Time // at the start; zero: never complete
	mark     func(at time.Time) error
}

// startAge begins to measure.
func (n *node) startAge(store *redirects.Store, lists *control.Store) (*dataAge, error) {
	links, errLinks := store.FreshAt()
	control, errControl := lists.FreshAt()
	if err := errors.Join(errLinks, errControl); err != nil {
		return nil, err
	}
	a := &dataAge{parts: []agePart{
		{store, n.freshnessOf(eventlog.EventsLink, store), links, store.MarkFresh},
		{lists, n.freshnessOf(eventlog.EventsControl, lists), control, lists.MarkFresh},
	}}
	a.complete.Store(!a.asOf().IsZero())
	for i := range a.parts {
		n.work("saving the age", func(ctx context.Context) error { return a.parts[i].save(ctx, n) })
	}
	n.work("data age", func(ctx context.Context) error {
		if a.run(ctx) {
			n.collectServing()
		}
		return nil
	})
	n.health.addAge(a.age)
	return a, nil
}

func (n *node) freshnessOf(topic string, of gateway.Follower) *gateway.Freshness {
	f := gateway.NewFreshness(n.log, topic, n.logger, of)
	f.Every = ageEvery
	n.work("age of "+topic, func(ctx context.Context) error { f.Run(ctx); return nil })
	return f
}

// run notes when the data are complete. False: ctx is done before.
func (a *dataAge) run(ctx context.Context) bool {
	for sleep(ctx, readyPoll) {
		if a.caughtUp() {
			a.complete.Store(true)
			a.caught.Store(true)
			return true
		}
	}
	return false
}

// save writes the age of a part down until ctx is done, and once more then: soon after something new, else now and then.
func (p *agePart) save(ctx context.Context, n *node) error {
	var at []int64
	saved := time.Now()
	for going := true; going; {
		going = sleep(ctx, ageSynced)
		fresh, now := p.measured.AsOf(), p.of.Positions()
		if fresh.IsZero() || going && slices.Equal(at, now) && time.Since(saved) < ageSaved {
			continue
		}
		at, saved = now, time.Now()
		if err := p.mark(fresh); err != nil {
			n.logger.Warn("the age of a store is not written down", "error", err)
		}
	}
	return nil
}

// asOf returns the instant up to which everything that the log acknowledged is here; the zero time if it never was.
func (a *dataAge) asOf() (oldest time.Time) {
	for i, p := range a.parts {
		at := p.measured.AsOf()
		if at.IsZero() {
			at = p.stored
		}
		if i == 0 || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// caughtUp reports whether each part stood at the log's end since the start.
func (a *dataAge) caughtUp() bool {
	for _, p := range a.parts {
		if p.measured.AsOf().IsZero() {
			return false
		}
	}
	return true
}

// age returns how old the data can be; false for those that never were all of the log.
func (a *dataAge) age() (time.Duration, bool) {
	at := a.asOf()
	return max(0, time.Since(at)), !at.IsZero()
}

// answers reports whether the log was there a moment ago.
func (a *dataAge) answers() bool {
	for _, p := range a.parts {
		if time.Since(p.measured.Asked()) > logWithin {
			return false
		}
	}
	return true
}

// tell says why a node may not know a link or domain that exists; nil when what is not there does not exist. After a start the
// node cannot tell before it stood at the log's end: it missed what was added since, and kill -9 may have taken what was new.
func (a *dataAge) tell() error {
	switch age, _ := a.age(); {
	case !a.caughtUp():
		return errIncomplete
	case age > ageBound:
		return fmt.Errorf("this node has not seen the end of the log for %s", age.Round(time.Second))
	}
	return nil
}

var errIncomplete = errors.New("this node has not read the log to its end yet")

// health of a node by the age of its data. since is when it started.
func (a *dataAge) health(since time.Time) roleHealth {
	age, known := a.age()
	switch {
	case !known:
		return notReady("reading the log for the first time")
	case a.caughtUp() && age <= ageBound:
		return ready
	case a.caughtUp():
		return degraded(fmt.Sprintf("the end of the log was not seen for %s: known links are served as of then", age.Round(time.Second)))
	case a.answers() || time.Since(since) < logAsked:
		return notReady("reading what was added to the log since this node stopped")
	}
	return degraded(fmt.Sprintf("started without the log: known links are served as of %s ago", age.Round(time.Second)))
}

// wholeStore is a store that answers once it was all of the log: before, a link could be found as it was long ago.
type wholeStore struct {
	*redirects.Store
	complete *atomic.Bool
}

// Find implements gateway.RedirectStore.
func (s wholeStore) Find(routeKey []byte) (*redirects.Record, redirects.State) {
	if !s.complete.Load() {
		return nil, redirects.NeedsStore
	}
	return s.Store.Find(routeKey)
}

// Load implements gateway.RedirectStore.
func (s wholeStore) Load(routeKey []byte) (*redirects.Record, error) {
	if !s.complete.Load() {
		return nil, errIncomplete
	}
	return s.Store.Load(routeKey)
}
