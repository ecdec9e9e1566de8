package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/client"
)

func newDomain() *cobra.Command {
	list := linkCommand("list", "List the short domains", exactArgs(0), func(ctx context.Context, c *calling) error {
		page, err := c.api.Domains(ctx, client.ListDomainsParams{Cursor: given(c, "cursor", c.GetString), Limit: given(c, "limit", c.GetInt32), HoplogPosition: given(c, "position", c.GetString)})
		if err != nil {
			return err
		}
		return show(c, page, printDomains)
	}, func(f *pflag.FlagSet) {
		f.String("cursor", "", "go on behind an earlier list")
		f.Int32("limit", 100, "how many domains at most")
		f.String("position", "", "answer from a state that holds this position, as a write returned it")
	})
	get := linkCommand("get DOMAIN", "Show a short domain and its settings", exactArgs(1), func(ctx context.Context, c *calling) error {
		domain, err := c.api.Domain(ctx, c.args[0])
		if err != nil {
			return err
		}
		return show(c, domain, printDomain)
	})
	update := linkCommand("update DOMAIN", "Change settings of a short domain", exactArgs(1), func(ctx context.Context, c *calling) error {
		if !c.IsSet("not-found-url") {
			return usagef("nothing to change: give --not-found-url")
		}
		settings := map[string]any{"not_found_url": orNil(c.GetString("not-found-url"))}
		o, err := c.options()
		if err != nil {
			return err
		}
		domain, err := c.api.UpdateDomain(ctx, c.args[0], settings, o)
		if err != nil {
			return err
		}
		return show(c, domain, printDomain)
	}, writeFlags, func(f *pflag.FlagSet) {
		f.String("if-match", "", "version that the domain must still have")
		f.String("not-found-url", "", "where visitors of codes that do not exist are sent; '': they see 404")
	})
	return group("domain", "Short domains", list, get, update)
}

func printDomain(w io.Writer, d *client.Domain) error {
	return printDomains(w, &client.DomainPage{Domains: []client.Domain{*d}})
}

func printDomains(w io.Writer, page *client.DomainPage) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "DOMAIN\tVERSION\tDEFAULT\tOWNER\tALIASES\tNOT FOUND URL")
	yes := map[bool]string{true: "yes", false: "no"}
	text := func(s *string) string {
		if s == nil {
			return "-"
		}
		return printable(*s)
	}
	for _, d := range page.Domains {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", printable(d.Domain), d.Version, yes[d.IsDefault], text(d.Owner), cmp.Or(printable(strings.Join(d.Aliases, ", ")), "-"), text(d.NotFoundUrl))
	}
	if err := t.Flush(); err != nil || page.NextCursor == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --cursor %s\n", *page.NextCursor)
	return err
}
