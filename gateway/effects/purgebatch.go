package effects

import (
	"errors"
	"time"
)

// purgeLane is requests that do not wait for those of another lane.
type purgeLane struct {
	slots chan struct{} // requests under way
	open  *purgeBatch   // guarded by the Purger's mu
}

// purgeBatch is links that share a request.
type purgeBatch struct {
	links []PurgeLink
	timer *time.Timer
	done  chan struct{}
	errs  []error // by link, once done
}

// join adds a link to a lane's open batch, and sends that when it is full.
func (p *Purger) join(lane *purgeLane, l PurgeLink) (b *purgeBatch, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b = lane.open
	if b == nil {
		b = &purgeBatch{done: make(chan struct{})}
		lane.open = b
		b.timer = time.AfterFunc(p.cfg.Gather, func() { p.flush(lane, b) })
	}
	b.links = append(b.links, l)
	if len(b.links) >= p.form.Batch {
		b.timer.Stop()
		p.send(lane)
	}
	return b, len(b.links) - 1
}

func (p *Purger) flush(lane *purgeLane, b *purgeBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lane.open == b {
		p.send(lane)
	}
}

// send closes a lane's open batch and sends it in the background; the caller holds mu.
func (p *Purger) send(lane *purgeLane) {
	b := lane.open
	lane.open = nil
	b.errs = make([]error, len(b.links))
	p.work.Go(func() {
		p.purge(lane, b.links, b.errs)
		close(b.done)
	})
}

// errLinks says that an ErrPermanent may concern some of a request's links only.
var errLinks = errors.New("the request is refused as it is")

// purge sends one request for the links. If the CDN refuses them for good, each half is tried alone, so that one link that it
// does not like costs the others nothing.
func (p *Purger) purge(lane *purgeLane, links []PurgeLink, errs []error) {
	err := p.requests(lane, links)
	if half := len(links) / 2; half > 0 && errors.Is(err, errLinks) {
		p.purge(lane, links[:half], errs[:half])
		p.purge(lane, links[half:], errs[half:])
		return
	}
	for i := range errs {
		errs[i] = err
	}
}
