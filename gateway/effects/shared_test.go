package effects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway/effects"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// TestSharedTierGetsTheNewestRecord: the tier is given what visitors are served by, as of the newest version, whichever
// change it was called for; the version lets it refuse what is older than what it has.
func TestSharedTierGetsTheNewestRecord(t *testing.T) {
	r := newRig(t)
	r.create("a", 0)
	r.update("a", 2, 60)
	r.events.Change(host, "a", pb.StatusAction_BAN)
	r.ship()
	fold, err := effects.OpenFold(effects.FoldConfig{Dir: r.dir, Source: runner.FromLog(r.broker), Pebble: runner.PebbleOptions{Logger: slog.New(slog.DiscardHandler)}})
	r.must(err)
	defer fold.Close()
	r.must(fold.RunToEnd(soon(t)))
	var key string
	var record *pb.Redirect
	tier := effects.SharedTier(fold, time.Second, func(_ context.Context, routeKey []byte, link *pb.Redirect) error {
		key, record = string(routeKey), link
		return nil
	})
	r.must(tier.Do(soon(t), &effects.Change{Namespace: host, Code: "a", Version: 2}))
	if key != events.RouteKey(host, "a") || record.GetVersion() != 3 || record.GetTarget() != "https://a.example/2" || !record.GetBanned() {
		t.Errorf("key %q record %v", key, record)
	}
	if err := tier.Do(soon(t), &effects.Change{Namespace: host, Code: "nobody", Version: 1}); !errors.Is(err, effects.ErrPermanent) {
		t.Errorf("a link that there is not: %v", err)
	}
	down := effects.SharedTier(fold, time.Second, func(context.Context, []byte, *pb.Redirect) error { return fmt.Errorf("down") })
	if err := down.Do(soon(t), &effects.Change{Namespace: host, Code: "a", Version: 2}); err == nil || errors.Is(err, effects.ErrPermanent) {
		t.Errorf("a tier that is down: %v", err)
	}
}
