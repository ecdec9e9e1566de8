package links_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

func titled(title string, tags ...string) *pb.LinkContent {
	return &pb.LinkContent{Target: "https://a.example/Page", Title: title, Tags: tags}
}

// pages follows the cursors to the end and returns the codes.
func pages(tb testing.TB, s *links.Store, q links.Query, nowUS int64) (codes []string) {
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
	s := given(t, runner.FromLog(broker), nil)
	for _, c := range []struct {
		name  string
		query links.Query
		want  string
	}{
		{"all but the deleted, newest first", links.Query{}, "gfdcba"},
		{"oldest first", links.Query{Sort: links.OldestFirst}, "abcdfg"},
		{"another owner", links.Query{Owner: "somebody"}, "e"},
		{"nobody", links.Query{Owner: "some"}, ""},
		{"tag", links.Query{Tag: "fruit"}, "gfba"},
		{"tag, oldest first", links.Query{Tag: "fruit", Sort: links.OldestFirst}, "abfg"},
		{"part of a tag", links.Query{Tag: "frui"}, ""},
		{"domain", links.Query{Domain: "other.example"}, "b"},
		{"active", links.Query{Status: readmodels.StatusActive}, "ba"},
		{"scheduled", links.Query{Status: readmodels.StatusScheduled}, "c"},
		{"expired", links.Query{Status: readmodels.StatusExpired}, "d"},
		{"disabled", links.Query{Status: readmodels.StatusDisabled}, "f"},
		{"banned", links.Query{Status: readmodels.StatusBanned}, "g"},
		{"deleted", links.Query{Status: readmodels.StatusDeleted}, "h"},
		{"deleted with a tag", links.Query{Status: readmodels.StatusDeleted, Tag: "fruit"}, "h"},
		{"text in the title, any case", links.Query{Text: "äPFEL"}, "a"},
		{"text in the target", links.Query{Text: "q=fruit"}, "c"},
		{"text in the code", links.Query{Text: "B"}, "b"},
		{"text and tag", links.Query{Text: "page", Tag: "red"}, "b"},
		{"text nowhere", links.Query{Text: "zebra"}, ""},
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
	s := given(t, log, nil)
	page, err := s.List(links.Query{Owner: "acme", Limit: 2}, 1)
	must(t, err)
	good := page.Next
	raw, err := base64.RawURLEncoding.DecodeString(good)
	must(t, err)
	raw[5] ^= 1
	for name, q := range map[string]links.Query{
		"not base64":      {Owner: "acme", Cursor: "!!"},
		"padded":          {Owner: "acme", Cursor: good + "="},
		"short":           {Owner: "acme", Cursor: good[:8]},
		"changed":         {Owner: "acme", Cursor: base64.RawURLEncoding.EncodeToString(raw)},
		"another owner's": {Owner: "other", Cursor: good},
		"another query's": {Owner: "acme", Tag: "x", Cursor: good},
		"another order's": {Owner: "acme", Sort: links.OldestFirst, Cursor: good},
	} {
		if _, err := s.List(q, 1); !errors.Is(err, links.ErrBadCursor) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err = s.List(links.Query{Owner: "acme", Limit: 4, Cursor: good}, 1); err != nil || len(page.Links) != 3 || page.Next != "" {
		t.Errorf("the good one: %v, %v", page, err)
	}
}

// TestPageIsBounded: a filter that finds nothing for long gives a short page and a cursor that goes on.
func TestPageIsBounded(t *testing.T) {
	log := newLog()
	const many = 10_500
	for i := range many {
		log.Create("acme", host, fmt.Sprint("c", i), titled(""))
	}
	s := given(t, log, nil)
	page, err := s.List(links.Query{Owner: "acme", Text: "c0"}, 1)
	must(t, err)
	if len(page.Links) != 0 || page.Next == "" {
		t.Errorf("%d links, next %q", len(page.Links), page.Next)
	}
	if got := pages(t, s, links.Query{Owner: "acme", Text: "c0"}, 1); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("got %q", got)
	}
	if got := len(pages(t, s, links.Query{Owner: "acme", Limit: 1000}, 1)); got != many {
		t.Errorf("%d links, want %d", got, many)
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
	const many = 100
	for i := range many {
		code := fmt.Sprint("c", i)
		state[code] = some()
		log.Create("acme", host, code, titled("", state[code]...))
	}
	deleted := map[string]bool{}
	for range 500 {
		code := fmt.Sprint("c", random.IntN(many))
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
	s := given(t, log, nil)
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
		if got := pages(t, s, links.Query{Owner: "acme", Tag: c.Tag, Limit: 7}, 1); int64(len(got)) != c.Links {
			t.Errorf("tag %q: %d listed, want %d", c.Tag, len(got), c.Links)
		}
	}
	if got := len(pages(t, s, links.Query{Owner: "acme", Limit: 7}, 1)); got != many-len(deleted) {
		t.Errorf("%d listed, want %d", got, many-len(deleted))
	}
}
