package redirects_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

const host = "s.example"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func soon(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

func to(target string) *pb.LinkContent { return &pb.LinkContent{Target: target} }

func newLog() *runnertest.Log { return runnertest.NewLog(eventlog.EventsLink, benchPartitions) }

// lookup returns the record of a code, nil when there is none.
func lookup(tb testing.TB, s *redirects.Store, code string) *pb.Redirect {
	tb.Helper()
	link, err := s.Lookup([]byte(events.RouteKey(host, code)))
	must(tb, err)
	return link
}

func TestLookupFollowsTheLog(t *testing.T) {
	log := newLog()
	broker := runnertest.Broker(t, benchPartitions)
	s := open(t, t.TempDir(), runner.FromLog(broker))
	defer s.Close()
	for _, step := range []struct {
		name string
		do   func()
		want func(r *pb.Redirect) bool
	}{
		{"unknown", func() {}, func(r *pb.Redirect) bool { return r == nil }},
		{"created", func() { log.Create("acme", host, "abc", to("https://a.example/")) }, func(r *pb.Redirect) bool { return r.GetTarget() == "https://a.example/" }},
		{"updated", func() { log.Update(host, "abc", to("https://b.example/")) }, func(r *pb.Redirect) bool { return r.GetTarget() == "https://b.example/" && r.GetVersion() == 2 }},
		{"banned", func() { log.Change(host, "abc", pb.StatusAction_BAN) }, (*pb.Redirect).GetBanned},
		{"deleted", func() { log.Change(host, "abc", pb.StatusAction_DELETE) }, (*pb.Redirect).GetDeleted},
	} {
		lookup(t, s, "abc") // into memory
		step.do()
		must(t, log.Ship(soon(t), broker))
		must(t, s.RunToEnd(soon(t)))
		for range 2 {
			if r := lookup(t, s, "abc"); !step.want(r) {
				t.Fatalf("%s: got %v", step.name, r)
			}
		}
	}
	if r := lookup(t, s, "ABC"); r != nil {
		t.Errorf("another case: %v", r)
	}
}

// TestNoOldRecordOutlivesACommit edits one link many times while many goroutines look it up: after a version's position
// was waited for, nobody may see an older one.
func TestNoOldRecordOutlivesACommit(t *testing.T) {
	log := newLog()
	s := open(t, t.TempDir(), log)
	log.Create("acme", host, "abc", to("https://a.example/"))
	must(t, s.RunToEnd(soon(t)))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var least atomic.Uint64
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				floor := least.Load()
				if got := lookup(t, s, "abc").GetVersion(); got < floor {
					t.Errorf("version %d after %d was committed", got, floor)
					return
				}
			}
		})
	}
	for version := uint64(2); version < 1500; version++ {
		e := log.Update(host, "abc", to(fmt.Sprintf("https://a.example/%d", version)))
		must(t, s.WaitFor(soon(t), e.Position(events.StreamLink)))
		least.Store(version)
	}
	cancel()
	all.Wait()
	must(t, s.Close())
}

// busyLog is a log in which every kind of event occurs.
func busyLog(links int) *runnertest.Log {
	log := newLog()
	for i := range links {
		log.Create("acme", host, code(i), to("https://a.example/"))
		if i%3 == 0 {
			log.Update(host, code(i/2), to(fmt.Sprint("https://b.example/", i)))
		}
		if i%5 == 0 {
			log.Change(host, code(i/3), pb.StatusAction_DISABLE)
		}
	}
	return log
}

func TestRebuildIsEqual(t *testing.T) {
	log, dir := busyLog(3000), t.TempDir()
	s := open(t, dir, log)
	must(t, s.RunToEnd(soon(t)))
	before, err := s.HashPerBucket()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	// The log grows and readers read while it is rebuilt.
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			log.Update(host, code(i%3000), to(fmt.Sprint("https://c.example/", i)))
			lookup(t, s, code(i%3000))
			time.Sleep(50 * time.Microsecond)
		}
	})
	var done, total int64
	for range 3 {
		report, err := s.Rebuild(soon(t), func(d, t int64) { done, total = d, t })
		must(t, err)
		if len(report.Differing) != 0 || report.Records == 0 || report.Buckets == 0 {
			t.Errorf("report %+v", report)
		}
		if done == 0 || done > total {
			t.Errorf("progress %d of %d", done, total)
		}
	}
	cancel()
	all.Wait()
	must(t, s.RunToEnd(soon(t)))
	after, err := s.HashPerBucket()
	must(t, err)
	if len(after) != len(before) {
		t.Errorf("%d buckets, before %d", len(after), len(before))
	}
	must(t, s.Close())
	if names := list(t, dir); !slices.Equal(names, []string{"CURRENT", "gen-000004"}) {
		t.Errorf("left behind: %q", names)
	}
	// It opens as what it was, and folds nothing again.
	s = open(t, dir, log)
	defer s.Close()
	must(t, s.RunToEnd(soon(t)))
	again, err := s.HashPerBucket()
	must(t, err)
	for bucket, hash := range after {
		if again[bucket] != hash {
			t.Errorf("bucket %d differs after a restart", bucket)
		}
	}
	if n := s.Status().Applied; n != 0 {
		t.Errorf("%d envelopes folded again", n)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRebuildFindsDamage changes a record, drops one and adds one in the live store.
func TestRebuildFindsDamage(t *testing.T) {
	log, dir := busyLog(500), t.TempDir()
	s := open(t, dir, log)
	must(t, s.RunToEnd(soon(t)))
	must(t, s.Close())
	damage(t, filepath.Join(dir, "gen-000001"))
	s = open(t, dir, log)
	defer s.Close()
	must(t, s.RunToEnd(soon(t)))
	if got := lookup(t, s, code(7)).GetTarget(); got != "https://evil.example/" {
		t.Fatalf("the damage is not served: %s", got)
	}
	report, err := s.Rebuild(soon(t), nil)
	must(t, err)
	want := []uint32{events.BucketOf(host, code(7)), events.BucketOf(host, code(8)), events.BucketOf(host, "planted")}
	slices.Sort(want)
	if !slices.Equal(report.Differing, want) {
		t.Errorf("differing %v, want %v", report.Differing, want)
	}
	if got := lookup(t, s, code(7)).GetTarget(); got == "https://evil.example/" {
		t.Error("the damage is still served")
	}
	if lookup(t, s, code(8)) == nil || lookup(t, s, "planted") != nil {
		t.Error("a record that was dropped is missing, or one that was planted is there")
	}
	if report, err = s.Rebuild(soon(t), nil); err != nil || len(report.Differing) != 0 {
		t.Errorf("rebuilt again: %+v, %v", report, err)
	}
}

func damage(t *testing.T, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	must(t, err)
	defer db.Close()
	evil, err := (&pb.Redirect{LinkId: 1, Version: 1, Target: "https://evil.example/"}).MarshalVT()
	must(t, err)
	must(t, db.Set(storeKey(code(7)), evil, nil))
	must(t, db.Set(storeKey("planted"), evil, nil))
	must(t, db.Delete(storeKey(code(8)), nil))
}

// silent is a pebble.Logger.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// storeKey is the layout of the store: 'r', bucket, route key.
func storeKey(code string) []byte {
	key := append([]byte{'r'}, events.BucketKey(events.BucketOf(host, code))...)
	return append(key, events.RouteKey(host, code)...)
}

func TestRebuildThatFailsLeavesTheLiveStore(t *testing.T) {
	log, dir := busyLog(200), t.TempDir()
	s := open(t, dir, log)
	defer s.Close()
	must(t, s.RunToEnd(soon(t)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Rebuild(ctx, nil); err == nil {
		t.Error("no error")
	}
	log.Truncate(1, 3)
	var alarm *events.Alarm
	if _, err := s.Rebuild(soon(t), nil); !errors.As(err, &alarm) || alarm.Partition != 1 {
		t.Errorf("a log that lost its tail: %v", err)
	}
	if names := list(t, dir); !slices.Equal(names, []string{"CURRENT", "gen-000001"}) {
		t.Errorf("left behind: %q", names)
	}
	if lookup(t, s, code(1)) == nil {
		t.Error("the live store is gone")
	}
}
