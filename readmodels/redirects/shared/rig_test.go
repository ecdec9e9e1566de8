package shared_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
	"github.com/hoplog/hoplog/schemas/pb"
)

const host = "s.example"

func keyOf(code string) []byte { return []byte(events.RouteKey(host, code)) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// eventually waits until something holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("still not: %s", what)
		}
	}
}

// targetOf is where a version of a link leads, so that a mixture of two versions is noticed.
func targetOf(code string, version uint64) string {
	return fmt.Sprintf("https://%s.example/%d", code, version)
}

func linkOf(code string, version uint64) *pb.Redirect {
	return &pb.Redirect{Version: version, LinkId: 7, Target: targetOf(code, version)}
}

func recordOf(code string, version uint64) *redirects.Record {
	return redirects.NewRecord(keyOf(code), events.BucketOfKey(keyOf(code)), linkOf(code, version))
}

// run opens a tier and runs it until the test ends. It has patience with a busy machine.
func run(tb testing.TB, cfg shared.Config) *shared.Tier {
	tb.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	tier, err := shared.Open(cfg)
	must(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tier.Run(ctx) }()
	tb.Cleanup(func() { cancel(); must(tb, <-done) })
	return tier
}

// connect is run that waits for the connection.
func connect(tb testing.TB, server *redistest.Server, cfg shared.Config) *shared.Tier {
	tb.Helper()
	if cfg.URL == "" {
		cfg.URL = "redis://" + server.Addr
	}
	tier := run(tb, cfg)
	inUse(tb, tier)
	return tier
}

func inUse(tb testing.TB, tier *shared.Tier) {
	tb.Helper()
	eventually(tb, "the tier is in use", func() bool { return tier.Status().State == "closed" })
}

func put(tb testing.TB, tier *shared.Tier, code string, version uint64) {
	tb.Helper()
	must(tb, tier.Put(context.Background(), keyOf(code), linkOf(code, version)))
}

// version is what a tier says of a code; 0: nothing.
func version(tb testing.TB, tier *shared.Tier, code string) uint64 {
	tb.Helper()
	link := tier.Get(keyOf(code))
	if link != nil && link.GetTarget() != targetOf(code, link.GetVersion()) {
		tb.Errorf("%s version %d leads to %s", code, link.GetVersion(), link.GetTarget())
	}
	return link.GetVersion()
}

// plain is a client of somebody else.
func plain(tb testing.TB, server *redistest.Server) rueidis.Client {
	tb.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true, ForceSingleClient: true})
	must(tb, err)
	tb.Cleanup(client.Close)
	return client
}

func do(tb testing.TB, client rueidis.Client, args ...string) *rueidis.RedisMessage {
	tb.Helper()
	got, err := client.Do(context.Background(), client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		tb.Fatalf("%q: %v", args, err)
	}
	return &got
}

func stored(code string) string { return "hoplog:link:" + string(keyOf(code)) }
