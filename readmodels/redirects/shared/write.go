package shared

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Put makes Redis hold a link as it is after an event, unless it holds a newer version; deleted links stay as such. After it
// returns nil, Redis holds nothing older, and tells nodes at once, without waiting for them. With an error (ErrUnavailable, or what Redis says) that is not
// known: repeat it. It is for the effects role, which calls it for every accepted event of a link, and asks Redis even while
// nobody else does. The route key is borrowed.
func (t *Tier) Put(ctx context.Context, routeKey []byte, link *pb.Redirect) error {
	value, err := appendValue(nil, routeKey, link)
	if err != nil {
		return err
	}
	client := t.client.Load()
	if client == nil {
		return fmt.Errorf("writing a link to Redis: %w: not connected yet", ErrUnavailable)
	}
	began := time.Now()
	args := t.arguments(value, 0)
	var did string
	err = bounded(ctx, connectWithin, func(ctx context.Context) (err error) {
		said, err := fence.Exec(ctx, *client, []string{t.key(routeKey)}, args).ToString()
		if err == nil {
			did = said
		}
		return err
	})
	t.cfg.Observe(OpPut, time.Since(began))
	if t.refused(err) {
		t.counts.lost.Add(1)
		return fmt.Errorf("writing a link to Redis: %w", err)
	}
	t.judge(err)
	if err != nil {
		t.counts.lost.Add(1)
		return fmt.Errorf("writing a link to Redis: %w: %w", ErrUnavailable, err)
	}
	t.count(did)
	return nil
}

func (t *Tier) arguments(value []byte, arrives int64) []string {
	return []string{string(value), strconv.FormatInt(t.life(), 10), strconv.FormatInt(arrives, 10)}
}

func (t *Tier) count(did string) {
	switch did {
	case wrote:
		t.counts.written.Add(1)
	case wasSame:
		t.counts.same.Add(1)
	case wasNewer:
		t.counts.newer.Add(1)
	case wasLate:
		t.counts.late.Add(1)
	case wasNoRoom:
		t.counts.full.Add(1)
	}
}

// offer is a record from a node's own store, which was current then.
type offer struct {
	record *redirects.Record
	asOf   time.Time
}

const (
	offersWaiting = 1024
	fillBatch     = 64
	// fillEvery paces a node's fills: at most 1,280 a second.
	fillEvery = 50 * time.Millisecond
	// fillWithin is how old a fill may be when it arrives, the difference of the clocks of node and Redis included.
	fillWithin = 10 * time.Second
)

// Offer takes a record for Redis, soon and if there is room. It never waits.
func (t *Tier) Offer(r *redirects.Record, asOf time.Time) {
	if !t.breaker.closed.Load() {
		t.counts.dropped.Add(1)
		return
	}
	select {
	case t.offers <- offer{r, asOf}:
	default:
		t.counts.dropped.Add(1)
	}
}

// Refresh offers all that each yields again and again, until ctx is done: links that are always in a node's memory are never
// missed, and so not offered otherwise. The pause between rounds grows up to a quarter of a record's life. It is short again
// when Redis is back, which may have lost all, and when there was nothing to offer: the node has just started or was behind.
func (t *Tier) Refresh(ctx context.Context, each iter.Seq2[*redirects.Record, time.Time]) error {
	for wait := refreshFirst; ; {
		back := t.breaker.closing()
		select {
		case <-back:
		case <-ctx.Done():
			return nil
		}
		if t.round(ctx, each) {
			wait = min(2*wait, t.cfg.TTL/4)
		} else {
			wait = refreshFirst
		}
		again, ended := t.pause(ctx, wait, back)
		if ended {
			return nil
		}
		if again {
			wait = refreshFirst
		}
	}
}

// refreshFirst is the shortest pause between rounds.
const refreshFirst = time.Second

// round reports whether there was something to offer.
func (t *Tier) round(ctx context.Context, each iter.Seq2[*redirects.Record, time.Time]) (offered bool) {
	for r, asOf := range each {
		select {
		case t.hot <- offer{r, asOf}:
			offered = true
		case <-ctx.Done():
			return offered
		}
		if !t.breaker.closed.Load() {
			return offered
		}
	}
	return offered
}

// pause waits for the next round. It is cut short when Redis was away since and is back, and when ctx is done.
func (t *Tier) pause(ctx context.Context, wait time.Duration, since <-chan struct{}) (back, ended bool) {
	next := time.NewTimer(wait)
	defer next.Stop()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for t.breaker.closing() == since {
		select {
		case <-ctx.Done():
			return false, true
		case <-next.C:
			return false, false
		case <-watch.C:
		}
	}
	return true, false
}

// fill writes what was offered, in batches.
func (t *Tier) fill(ctx context.Context) {
	pace := time.NewTicker(fillEvery)
	defer pace.Stop()
	for batch := make([]offer, 0, fillBatch); ; batch = batch[:0] {
		select {
		case <-ctx.Done():
			return
		case o := <-t.offers:
			batch = append(batch, o)
		case o := <-t.hot:
			batch = append(batch, o)
		}
		batch = t.gather(batch)
		if t.breaker.closed.Load() {
			t.write(ctx, batch)
		} else {
			t.counts.dropped.Add(uint64(len(batch)))
		}
		clear(batch)
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

// gather adds what waits; those of visits first, but half a batch is for those of Refresh.
func (t *Tier) gather(batch []offer) []offer {
	for len(batch) < fillBatch/2 {
		select {
		case o := <-t.offers:
			batch = append(batch, o)
			continue
		default:
		}
		break
	}
	for len(batch) < fillBatch {
		select {
		case o := <-t.hot:
			batch = append(batch, o)
		case o := <-t.offers:
			batch = append(batch, o)
		case <-time.After(time.Millisecond): // Refresh hands them over one by one
			return batch
		}
	}
	return batch
}

func (t *Tier) write(ctx context.Context, batch []offer) {
	execs := make([]rueidis.LuaExec, 0, len(batch))
	var link pb.Redirect
	for _, o := range batch {
		routeKey := []byte(o.record.RouteKey())
		o.record.Message(&link)
		value, err := appendValue(nil, routeKey, &link)
		if err != nil {
			t.counts.lost.Add(1)
			continue
		}
		execs = append(execs, rueidis.LuaExec{Keys: []string{t.key(routeKey)}, Args: t.arguments(value, o.asOf.Add(fillWithin).UnixMilli())})
	}
	client := *t.client.Load()
	began := time.Now()
	answers := make(chan []rueidis.RedisResult, 1)
	err := bounded(ctx, connectWithin, func(ctx context.Context) error {
		answers <- fence.ExecMulti(ctx, client, execs...)
		return nil
	})
	t.cfg.Observe(OpFill, time.Since(began))
	if err != nil {
		t.counts.lost.Add(uint64(len(execs)))
		t.judge(err)
		return
	}
	t.tally(<-answers)
}

// tally counts what became of a batch. That Redis refuses a write does not mean that it does not answer.
func (t *Tier) tally(results []rueidis.RedisResult) {
	var failed error
	for _, result := range results {
		did, err := result.ToString()
		if err == nil {
			t.count(did)
			continue
		}
		t.counts.lost.Add(1)
		if !t.refused(err) {
			failed = err
		}
	}
	t.judge(failed)
}

// refused reports whether Redis answered, and said no; what it said is kept for the status.
func (t *Tier) refused(err error) bool {
	said, answered := rueidis.IsRedisErr(err)
	if answered {
		why := said.Error()
		t.refusal.Store(&why)
	}
	return answered
}
