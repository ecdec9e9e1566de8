package shared

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Get returns the record that Redis has at a route key, which is borrowed; nil: it has none, or does not say so in time. It
// may be older than what the caller knows.
func (t *Tier) Get(routeKey []byte) *pb.Redirect {
	client := t.client.Load()
	if client == nil || !t.breaker.closed.Load() {
		t.counts.skipped.Add(1)
		return nil
	}
	select {
	case t.asks <- struct{}{}:
	default:
		t.counts.crowded.Add(1)
		return nil
	}
	began := time.Now()
	key := t.key(routeKey)
	var value string
	err := bounded(context.Background(), t.cfg.Timeout, func(ctx context.Context) (err error) {
		defer func() { <-t.asks }() // when it is over indeed
		got, err := (*client).DoCache(ctx, (*client).B().Get().Key(key).Cache(), trackedFor).ToString()
		if err == nil {
			value = got
		}
		return err
	})
	t.cfg.Observe(OpGet, time.Since(began))
	switch {
	case rueidis.IsRedisNil(err):
		t.judge(nil)
		t.counts.misses.Add(1)
		return nil
	case isWrongType(err):
		t.judge(nil)
		t.counts.unusable.Add(1)
		return nil
	case err != nil:
		t.judge(err)
		t.counts.failed.Add(1)
		return nil
	}
	t.judge(nil)
	return t.read(routeKey, value)
}

func (t *Tier) read(routeKey []byte, value string) *pb.Redirect {
	link, err := parseValue(routeKey, []byte(value))
	switch {
	case errors.Is(err, errBare):
		t.counts.misses.Add(1)
		return nil
	case err != nil:
		t.counts.unusable.Add(1)
		return nil
	}
	t.counts.hits.Add(1)
	return link
}

// isWrongType: another's list or hash stands at a key of ours.
func isWrongType(err error) bool {
	said, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(said.Error(), "WRONGTYPE")
}
