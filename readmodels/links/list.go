package links

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Sort is the order of a list.
type Sort string

// Orders. Links of the same microsecond stand by their id, ascending in NewestFirst.
const (
	NewestFirst Sort = "-created"
	OldestFirst Sort = "created"
)

// Query asks for a page of an owner's links. Empty fields filter nothing, but deleted links are shown only when asked for.
type Query struct {
	Owner  string
	Text   string // part of the code, title or target, whatever the case
	Tag    string
	Domain string // namespace
	Status string // at the time of the question
	Sort   Sort   // default NewestFirst
	Cursor string // Page.Next of the page before, of the same query
	Limit  int    // default 50
}

// Page is a part of a list. It may be short, even empty, and still not the last: that is so only when Next is empty.
type Page struct {
	Links []*pb.Link
	Next  string
}

const (
	defaultLimit = 50
	// maxScan bounds the rows that one page looks at.
	maxScan = 10_000
)

// List returns the next page as of nowUS (microseconds). The error is ErrBadCursor, or trouble with the store.
func (s *Store) List(q Query, nowUS int64) (*Page, error) {
	if q.Sort == "" {
		q.Sort = NewestFirst
	}
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	after, err := q.after()
	if err != nil {
		return nil, err
	}
	page, err := s.scan(&q, after, newFilter(&q, nowUS))
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	return page, nil
}

// scan walks the owner's rows, or those of one tag, from behind a place.
func (s *Store) scan(q *Query, after []byte, f *filter) (page *Page, err error) {
	prefix := appendOwner(nil, rowPrefix, q.Owner)
	byTag := q.Tag != "" && q.Status != readmodels.StatusDeleted // tombstones stand under no tag
	if byTag {
		prefix = appendTag(nil, q.Owner, q.Tag)
	}
	it, err := s.pebble.DB().NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: runner.After(prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	page = &Page{}
	step := it.Next
	if q.Sort == OldestFirst {
		step = it.Prev
	}
	seen := 0
	for ok := begin(it, q.Sort, prefix, after); ok; ok = step() {
		if len(page.Links) == q.Limit || seen == maxScan {
			page.Next = q.cursor(after)
			return page, it.Error()
		}
		seen++
		after = append(after[:0:0], it.Key()[len(prefix):]...)
		link, err := s.listed(it, q.Owner, after, byTag)
		if err != nil {
			return nil, err
		}
		if f.matches(link) {
			page.Links = append(page.Links, link)
		}
	}
	return page, it.Error()
}

// begin goes to the first row behind a place; nil is the beginning.
func begin(it *pebble.Iterator, order Sort, prefix, after []byte) bool {
	at := slices.Concat(prefix, after)
	switch {
	case order == OldestFirst && after == nil:
		return it.Last()
	case order == OldestFirst:
		return it.SeekLT(at)
	case after == nil:
		return it.First()
	}
	return it.SeekGE(append(at, 0)) // no key lies between a key and the same with a zero byte behind
}

// listed returns the link that the iterator stands on. A tag names but the place: the link may have lost the tag since.
func (s *Store) listed(it *pebble.Iterator, owner string, place []byte, byTag bool) (*pb.Link, error) {
	if byTag {
		return s.linkAt(append(appendOwner(nil, rowPrefix, owner), place...))
	}
	row, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	return decodeRow(row)
}

// filter is a query as a question to one link.
type filter struct {
	*Query
	text  string // lower case
	nowUS int64
}

func newFilter(q *Query, nowUS int64) *filter {
	return &filter{q, strings.ToLower(q.Text), nowUS}
}

func (f *filter) matches(link *pb.Link) bool {
	status := readmodels.StatusAt(link, f.nowUS)
	switch {
	case f.Status == "" && status == readmodels.StatusDeleted,
		f.Status != "" && f.Status != status,
		f.Domain != "" && f.Domain != link.GetRef().GetNamespace(),
		f.Tag != "" && !slices.Contains(link.GetContent().GetTags(), f.Tag):
		return false
	}
	return f.text == "" || f.in(link.GetRef().GetCode()) || f.in(link.GetContent().GetTitle()) || f.in(link.GetContent().GetTarget())
}

func (f *filter) in(text string) bool { return strings.Contains(strings.ToLower(text), f.text) }
