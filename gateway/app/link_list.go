package app

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/client"
)

const (
	defaultList = 50
	maxPage     = 1000
)

func listFlags(f *pflag.FlagSet) {
	f.String("q", "", "only links whose code, title or target has this in it")
	f.String("tag", "", "only links with this tag")
	f.String("domain", "", "only links on this short domain")
	f.String("status", "", "only links that are scheduled, active, expired, disabled, banned or deleted")
	f.String("sort", "-created", "-created: newest first; created: oldest first")
	f.String("cursor", "", "go on behind an earlier list")
	f.Int("limit", defaultList, "how many links at most; 0: all")
	f.String("position", "", "answer from a state that holds this position, as a write returned it")
}

func newLinkList() *cobra.Command {
	return linkCommand("list", "List your links", exactArgs(0), func(ctx context.Context, c *calling) error {
		page, err := c.list(ctx)
		if err != nil {
			return err
		}
		return show(c, page, printLinks)
	}, listFlags)
}

// list reads pages until there are enough links or no more: a page of the API may be short and not the last.
func (c *calling) list(ctx context.Context) (*client.LinkPage, error) {
	limit := c.GetInt("limit")
	if limit < 0 {
		return nil, usagef("--limit %d: want how many links, or 0 for all", limit)
	}
	text := func(name string) *string { return given(c, name, c.GetString) }
	params := client.ListLinksParams{Q: text("q"), Tag: text("tag"), Domain: text("domain"), Cursor: text("cursor"), HoplogPosition: text("position"),
		Status: (*client.LinkStatus)(text("status")), Sort: (*client.LinkSort)(text("sort"))}
	all := &client.LinkPage{Links: []client.Link{}}
	for {
		size := int32(maxPage)
		if limit > 0 {
			size = int32(min(limit-len(all.Links), maxPage))
		}
		params.Limit = &size
		page, err := c.api.List(ctx, params)
		if err != nil {
			return nil, err
		}
		if all.AsOf.IsZero() {
			all.AsOf = page.AsOf // the oldest of all pages
		}
		all.Links = append(all.Links, page.Links...)
		all.NextCursor, params.Cursor = page.NextCursor, page.NextCursor
		if page.NextCursor == nil || limit > 0 && len(all.Links) >= limit {
			return all, nil
		}
	}
}
