package owners_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/owners"
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
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func newLog() *runnertest.Log { return runnertest.NewLog(eventlog.EventsLink, 4) }

// given folds a log into a store.
func given(tb testing.TB, source runner.Source) *owners.Store {
	tb.Helper()
	s, err := owners.Open(owners.Config{Dir: "owners", Source: source,
		Pebble: runner.PebbleOptions{FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	must(tb, s.RunToEnd(soon(tb)))
	return s
}

func titled(title string, tags ...string) *pb.LinkContent {
	return &pb.LinkContent{Target: "https://a.example/Page", Title: title, Tags: tags}
}

// pages follows the cursors to the end and returns the codes.
func pages(tb testing.TB, s *owners.Store, q owners.Query, nowUS int64) (codes []string) {
	tb.Helper()
	for range 1000 {
		page, err := s.List(q, nowUS)
		must(tb, err)
		if q.Limit > 0 && len(page.Links) > q.Limit {
			tb.Fatalf("%d links on a page of %d", len(page.Links), q.Limit)
		}
		for _, link := range page.Links {
			codes = append(codes, link.GetRef().GetCode())
		}
		if page.Next == "" {
			return codes
		}
		q.Cursor = page.Next
	}
	tb.Fatal("the pages do not end")
	return nil
}

// TestList has one link of each kind, oldest first: a to h.
func TestList(t *testing.T) {
	const now = 2_000_000_000_000_000
	log := newLog()
	log.Create("acme", host, "a", titled("Äpfel", "fruit"))
	log.Create("acme", "other.example", "b", titled("", "fruit", "red"))
	log.Create("acme", host, "c", &pb.LinkContent{Target: "https://a.example/?q=FRUIT", NotBeforeUs: now + 1})
	log.Create("acme", host, "d", &pb.LinkContent{Target: "https://a.example/", ExpiresUs: now})
	log.Create("somebody", host, "e", titled("not acme's", "fruit"))
	log.Create("acme", host, "f", titled("", "fruit"))
	log.Create("acme", host, "g", titled("", "fruit"))
	log.Create("acme", host, "h", titled("", "fruit"))
	log.Change(host, "f", pb.StatusAction_DISABLE)
	log.Change(host, "g", pb.StatusAction_BAN)
	log.Change(host, "h", pb.StatusAction_DELETE)
	broker := runnertest.Broker(t, 4)
	must(t, log.Ship(soon(t), broker))
	s := given(t, runner.FromLog(broker))
	for _, c := range []struct {
		name  string
		query owners.Query
		want  string
	}{
		{"all but the deleted, newest first", owners.Query{}, "gfdcba"},
		{"oldest first", owners.Query{Sort: owners.OldestFirst}, "abcdfg"},
		{"another owner", owners.Query{Owner: "somebody"}, "e"},
		{"nobody", owners.Query{Owner: "some"}, ""},
		{"tag", owners.Query{Tag: "fruit"}, "gfba"},
		{"tag, oldest first", owners.Query{Tag: "fruit", Sort: owners.OldestFirst}, "abfg"},
		{"part of a tag", owners.Query{Tag: "frui"}, ""},
		{"domain", owners.Query{Domain: "other.example"}, "b"},
		{"active", owners.Query{Status: readmodels.StatusActive}, "ba"},
		{"scheduled", owners.Query{Status: readmodels.StatusScheduled}, "c"},
		{"expired", owners.Query{Status: readmodels.StatusExpired}, "d"},
		{"disabled", owners.Query{Status: readmodels.StatusDisabled}, "f"},
		{"banned", owners.Query{Status: readmodels.StatusBanned}, "g"},
		{"deleted", owners.Query{Status: readmodels.StatusDeleted}, "h"},
		{"deleted with a tag", owners.Query{Status: readmodels.StatusDeleted, Tag: "fruit"}, "h"},
		{"text in the title, any case", owners.Query{Text: "äPFEL"}, "a"},
		{"text in the target", owners.Query{Text: "q=fruit"}, "c"},
		{"text in the code", owners.Query{Text: "B"}, "b"},
		{"text and tag", owners.Query{Text: "page", Tag: "red"}, "b"},
		{"text nowhere", owners.Query{Text: "zebra"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.query.Owner == "" {
				c.query.Owner = "acme"
			}
			for _, limit := range []int{0, 1, 2, 100} {
				c.query.Limit = limit
				if got := strings.Join(pages(t, s, c.query, now), ""); got != c.want {
					t.Errorf("limit %d: got %q, want %q", limit, got, c.want)
				}
			}
		})
	}
}

func TestBadCursors(t *testing.T) {
	log := newLog()
	for i := range 5 {
		log.Create("acme", host, fmt.Sprint("c", i), titled(""))
	}
	s := given(t, log)
	page, err := s.List(owners.Query{Owner: "acme", Limit: 2}, 1)
	must(t, err)
	good := page.Next
	raw, err := base64.RawURLEncoding.DecodeString(good)
	must(t, err)
	raw[5] ^= 1
	for name, q := range map[string]owners.Query{
		"not base64":      {Owner: "acme", Cursor: "!!"},
		"padded":          {Owner: "acme", Cursor: good + "="},
		"short":           {Owner: "acme", Cursor: good[:8]},
		"changed":         {Owner: "acme", Cursor: base64.RawURLEncoding.EncodeToString(raw)},
		"another owner's": {Owner: "other", Cursor: good},
		"another query's": {Owner: "acme", Tag: "x", Cursor: good},
		"another order's": {Owner: "acme", Sort: owners.OldestFirst, Cursor: good},
	} {
		if _, err := s.List(q, 1); !errors.Is(err, owners.ErrBadCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err = s.List(owners.Query{Owner: "acme", Limit: 4, Cursor: good}, 1); err != nil || len(page.Links) != 3 || page.Next != "" {
		t.Errorf("the good one: %v, %v", page, err)
	}
}

// TestPageIsBounded: a filter that finds nothing for long gives a short page and a cursor that goes on.
func TestPageIsBounded(t *testing.T) {
	log := newLog()
	const links = 10_500
	for i := range links {
		log.Create("acme", host, fmt.Sprint("c", i), titled(""))
	}
	s := given(t, log)
	page, err := s.List(owners.Query{Owner: "acme", Text: "c0"}, 1)
	must(t, err)
	if len(page.Links) != 0 || page.Next == "" {
		t.Errorf("%d links, next %q", len(page.Links), page.Next)
	}
	if got := pages(t, s, owners.Query{Owner: "acme", Text: "c0"}, 1); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("got %q", got)
	}
	if got := len(pages(t, s, owners.Query{Owner: "acme", Limit: 1000}, 1)); got != links {
		t.Errorf("%d links, want %d", got, links)
	}
}

// TestTagsAgreeWithTheLinks changes links at random; the index, the counts and a plain walk must agree.
func TestTagsAgreeWithTheLinks(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	log, state := newLog(), map[string][]string{}
	some := func() (tags []string) {
		for _, tag := range []string{"a", "b", "ab", "\x00", "ü"} {
			if random.IntN(3) == 0 {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	const links = 100
	for i := range links {
		code := fmt.Sprint("c", i)
		state[code] = some()
		log.Create("acme", host, code, titled("", state[code]...))
	}
	deleted := map[string]bool{}
	for range 500 {
		code := fmt.Sprint("c", random.IntN(links))
		if deleted[code] {
			continue
		}
		if random.IntN(20) == 0 {
			deleted[code], state[code] = true, nil
			log.Change(host, code, pb.StatusAction_DELETE)
			continue
		}
		state[code] = some()
		log.Update(host, code, titled("", state[code]...))
	}
	s := given(t, log)
	want := map[string]int64{}
	for _, tags := range state {
		for _, tag := range tags {
			want[tag]++
		}
	}
	tags, err := s.Tags("acme")
	must(t, err)
	if len(tags) != len(want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
	for _, c := range tags {
		if c.Links != want[c.Tag] {
			t.Errorf("tag %q: %d links, want %d", c.Tag, c.Links, want[c.Tag])
		}
		if got := pages(t, s, owners.Query{Owner: "acme", Tag: c.Tag, Limit: 7}, 1); int64(len(got)) != c.Links {
			t.Errorf("tag %q: %d listed, want %d", c.Tag, len(got), c.Links)
		}
	}
	if got := len(pages(t, s, owners.Query{Owner: "acme", Limit: 7}, 1)); got != links-len(deleted) {
		t.Errorf("%d listed, want %d", got, links-len(deleted))
	}
}
