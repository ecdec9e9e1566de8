package links_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/links"
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

// given folds a log into a store.
func given(tb testing.TB, source runner.Source, committed func([]runner.Accepted)) *links.Store {
	tb.Helper()
	s, err := links.Open(links.Config{Dir: "links", Source: source, Committed: committed,
		Pebble: runner.PebbleOptions{FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	must(tb, s.RunToEnd(soon(tb)))
	return s
}

func newLog() *runnertest.Log { return runnertest.NewLog(eventlog.EventsLink, 4) }

func to(target string, tags ...string) *pb.LinkContent {
	return &pb.LinkContent{Target: target, Tags: tags}
}

// life is a link that saw everything, on the broker.
func life(t *testing.T) (*links.Store, []*events.Envelope) {
	t.Helper()
	log := newLog()
	all := []*events.Envelope{
		log.Create("acme", host, "abc", to("https://a.example/", "x")),
		log.Update(host, "abc", to("https://b.example/", "x", "y")),
		log.Change(host, "abc", pb.StatusAction_BAN),
		log.Change(host, "abc", pb.StatusAction_UNBAN),
		log.Change(host, "abc", pb.StatusAction_DELETE),
	}
	log.Create("acme", host, "abcd", to("https://other.example/")) // whose name begins alike
	broker := runnertest.Broker(t, 4)
	must(t, log.Ship(soon(t), broker))
	return given(t, runner.FromLog(broker), nil), all
}

func TestLinkAsItIsAndWas(t *testing.T) {
	s, all := life(t)
	versions := make([]*pb.Link, len(all)+1)
	for i, e := range all {
		version, at := uint64(i+1), e.GetStamp().GetTimeUs()
		link, err := s.At(host, "abc", version)
		must(t, err)
		versions[i+1] = link
		if link.GetVersion() != version || link.GetUpdatedUs() != at {
			t.Errorf("at version %d: %v", version, link)
		}
		asOf, err := s.AsOf(host, "abc", at)
		must(t, err)
		byPosition, err := s.AsOfPosition(host, "abc", e.Position(events.StreamLink))
		must(t, err)
		if !proto.Equal(asOf, link) || !proto.Equal(byPosition, link) {
			t.Errorf("version %d: as of its time %v, as of its position %v", version, asOf, byPosition)
		}
	}
	if versions[1].GetContent().GetTarget() != "https://a.example/" || !versions[3].GetBanned() || versions[4].GetBanned() {
		t.Errorf("versions %v", versions)
	}
	now, err := s.Get(host, "abc")
	must(t, err)
	if !proto.Equal(now, versions[5]) || !now.GetDeleted() || now.GetCreatedUs() != all[0].GetStamp().GetTimeUs() {
		t.Errorf("now %v", now)
	}
}

// A link shows the same whether it is still as it was created, was changed with the same commit or with a later one.
func TestFirstChange(t *testing.T) {
	log := newLog()
	created := log.Create("acme", host, "abc", to("https://a.example/", "x"))
	log.Create("acme", host, "same", to("https://a.example/"))
	log.Update(host, "same", to("https://b.example/"))
	s := given(t, log, nil)
	first, err := s.Get(host, "abc")
	must(t, err)
	want := &pb.Link{Ref: created.GetEvents()[0].GetLinkCreated().GetLink(), Content: to("https://a.example/", "x"), Version: 1,
		CreatedUs: created.GetStamp().GetTimeUs(), UpdatedUs: created.GetStamp().GetTimeUs()}
	if !proto.Equal(first, want) {
		t.Errorf("as created: %v, want %v", first, want)
	}
	before, err := s.History(host, "abc")
	must(t, err)
	if len(before) != 1 || before[0].GetSeq() != 1 {
		t.Fatalf("history %v", before)
	}
	for version, want := range map[uint64]error{0: links.ErrNotFound, 1: nil, 2: links.ErrNotFound} {
		if _, err := s.At(host, "abc", version); !errors.Is(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	log.Change(host, "abc", pb.StatusAction_DISABLE)
	must(t, s.RunToEnd(soon(t)))
	for _, code := range []string{"abc", "same"} {
		now, err := s.Get(host, code)
		must(t, err)
		after, err := s.History(host, code)
		must(t, err)
		if now.GetVersion() != 2 || len(after) != 2 {
			t.Errorf("%s: %v, history %v", code, now, after)
		}
		if at, err := s.At(host, code, 1); err != nil || at.GetVersion() != 1 || at.GetDisabled() || at.GetContent().GetTarget() != "https://a.example/" {
			t.Errorf("%s at version 1: %v, %v", code, at, err)
		}
		if code == "abc" && !proto.Equal(after[0], before[0]) {
			t.Errorf("the first entry was %v and became %v", before[0], after[0])
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	s, all := life(t)
	first := all[0]
	before := first.Position(events.StreamLink)
	before.Seq--
	other := before
	other.Bucket++
	for name, c := range map[string]struct {
		read func() error
		want error
	}{
		"unknown link":        {func() error { _, err := s.Get(host, "ABC"); return err }, links.ErrNotFound},
		"unknown history":     {func() error { _, err := s.History(host, "ab"); return err }, links.ErrNotFound},
		"version 0":           {func() error { _, err := s.At(host, "abc", 0); return err }, links.ErrNotFound},
		"a version to come":   {func() error { _, err := s.At(host, "abc", 6); return err }, links.ErrNotFound},
		"before its time":     {func() error { _, err := s.AsOf(host, "abc", first.GetStamp().GetTimeUs()-1); return err }, links.ErrNotFound},
		"before its position": {func() error { _, err := s.AsOfPosition(host, "abc", before); return err }, links.ErrNotFound},
		"another bucket":      {func() error { _, err := s.AsOfPosition(host, "abc", other); return err }, runner.ErrForeignStream},
	} {
		if err := c.read(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestHistory(t *testing.T) {
	s, all := life(t)
	entries, err := s.History(host, "abc")
	must(t, err)
	if len(entries) != len(all) {
		t.Fatalf("%d entries, want %d", len(entries), len(all))
	}
	var changes []string
	var link *pb.Link
	for i, entry := range entries {
		e := all[i]
		if events.VersionOf(entry.GetEvent()) != uint64(i+1) || entry.GetActor() != "key:test" || entry.GetSeq() != e.GetSeq() ||
			entry.GetBucket() != e.GetBucket() || entry.GetTimeUs() != e.GetStamp().GetTimeUs() || events.Hash(entry.GetHash()) != e.Hash {
			t.Errorf("entry %d: %v", i, entry)
		}
		after, err := s.At(host, "abc", uint64(i+1))
		must(t, err)
		for _, c := range readmodels.Changes(link, after) {
			changes = append(changes, fmt.Sprintf("%d %s %v → %v", i+1, c.Field, c.From, c.To))
		}
		link = after
	}
	want := []string{"1 target <nil> → https://a.example/", "1 tags <nil> → [x]", "1 redirect_status <nil> → 302", "1 query <nil> → keep",
		"1 cache_ttl <nil> → 0", "2 target https://a.example/ → https://b.example/", "2 tags [x] → [x y]", "3 banned false → true",
		"4 banned true → false", "5 deleted false → true"}
	if !slices.Equal(changes, want) {
		t.Errorf("changes\n%q, want\n%q", changes, want)
	}
}

// outcome appends an envelope that says what became of a request in a bucket, at a time.
func outcome(log *runnertest.Log, bucket uint32, key string, timeUS int64, o *pb.Outcome) {
	log.Append(&pb.Envelope{Bucket: bucket, Request: &pb.RequestRef{Owner: "acme", Key: key, BodyHash: []byte(key)}, Outcome: o, Stamp: &pb.Stamp{TimeUs: timeUS}})
}

func codes(found []links.Request) (out []string) {
	for _, r := range found {
		out = append(out, fmt.Sprintf("%d:%s%s@%s", r.Row, r.GetOutcome().GetCode(), r.GetOutcome().GetError(), r.Position))
	}
	return out
}

func TestRequests(t *testing.T) {
	log := newLog()
	outcome(log, 7, "k", 100, &pb.Outcome{Code: "first"})
	outcome(log, 7, "k", 101, &pb.Outcome{Code: "first", Replayed: true})
	outcome(log, 7, "k", 102, &pb.Outcome{Error: "idempotency_key_reused"})
	outcome(log, 3, "k", 103, &pb.Outcome{Code: "later, elsewhere"})
	outcome(log, 9, "k", 100, &pb.Outcome{Code: "same time, higher bucket"})
	outcome(log, 7, "never", 104, &pb.Outcome{Error: "unavailable"})
	outcome(log, 7, "refused", 105, &pb.Outcome{Error: "code_taken"})
	outcome(log, 7, "k\xff\x00", 106, &pb.Outcome{Code: "a key like the end of another"})
	outcome(log, 7, "", 107, &pb.Outcome{Code: "no key"})
	outcome(log, 7, "again", 108, &pb.Outcome{Code: "old"})
	outcome(log, 7, "again", 108+8*24*3600*1_000_000, &pb.Outcome{Code: "after the key had expired"})
	s := given(t, log, nil)
	for key, want := range map[string][]string{
		"k":       {"0:first@link/7/1", "0:same time, higher bucket@link/9/1", "0:later, elsewhere@link/3/1"},
		"never":   nil,
		"refused": {"0:code_taken@link/7/5"},
		"again":   {"0:after the key had expired@link/7/9"},
		"":        nil,
	} {
		found, err := s.Request("acme", key)
		must(t, err)
		if !slices.Equal(codes(found), want) {
			t.Errorf("%q: got %q, want %q", key, codes(found), want)
		}
	}
	if found, err := s.Request("acm", "ek"); err != nil || len(found) != 0 {
		t.Errorf("another owner: %q, %v", codes(found), err)
	}
}

func TestRequestRows(t *testing.T) {
	log := newLog()
	for _, row := range []int{10, 2, 0, 999} {
		outcome(log, uint32(row), fmt.Sprintf("b\x00%d", row), int64(1000-row), &pb.Outcome{Code: fmt.Sprint("row", row)})
	}
	outcome(log, 50, "b\x002", 1, &pb.Outcome{Code: "row 2 in another bucket, earlier"})
	outcome(log, 51, "b", 1, &pb.Outcome{Code: "the key itself"})
	outcome(log, 52, "b\x00x", 1, &pb.Outcome{Code: "no row"})
	outcome(log, 53, "b\x0002", 1, &pb.Outcome{Code: "no row either"})
	outcome(log, 54, "bb\x001", 1, &pb.Outcome{Code: "another batch"})
	s := given(t, log, nil)
	found, err := s.RequestRows("acme", "b")
	must(t, err)
	want := []string{"0:row0@link/0/1", "2:row 2 in another bucket, earlier@link/50/1", "10:row10@link/10/1", "999:row999@link/999/1"}
	if !slices.Equal(codes(found), want) {
		t.Errorf("got %q, want %q", codes(found), want)
	}
	single, err := s.Request("acme", "b")
	must(t, err)
	if want := []string{"0:the key itself@link/51/1"}; !slices.Equal(codes(single), want) {
		t.Errorf("got %q, want %q", codes(single), want)
	}
}

func TestCommittedHearsWhatCanBeRead(t *testing.T) {
	log := newLog()
	var s *links.Store
	var heard []string
	opened := make(chan struct{})
	committed := func(accepted []runner.Accepted) {
		<-opened
		for _, a := range accepted {
			heard = append(heard, string(a.GetCommandId()))
			if code := a.GetOutcome().GetCode(); code != "" {
				if _, err := s.Get(host, code); err != nil {
					t.Errorf("%s: %v", code, err)
				}
			}
		}
	}
	s, err := links.Open(links.Config{Dir: t.TempDir(), Source: log, Committed: committed})
	must(t, err)
	defer s.Close()
	close(opened)
	want := []string{string(log.Create("acme", host, "abc", to("https://a.example/")).GetCommandId()),
		string(log.Append(&pb.Envelope{Bucket: events.BadKeyBucket(1), Outcome: &pb.Outcome{Error: "invalid_request"}}).GetCommandId())}
	log.AppendVoid(events.BucketOf(host, "abc"))
	must(t, s.RunToEnd(soon(t)))
	slices.Sort(want)
	slices.Sort(heard)
	if !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	if n := s.Status().Voids; n != 1 {
		t.Errorf("%d void", n)
	}
}
