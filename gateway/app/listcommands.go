package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/client"
)

// group is a command that is only there for its sub-commands.
func group(use, short string, list ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", use+" "+args[0])
			}
			return c.Help()
		},
	}
	c.AddCommand(list...)
	return c
}

func newDeny() *cobra.Command {
	add := linkCommand("add KIND VALUE", "Deny a code, a target host, hosts below one, or a network of visitors", exactArgs(2), func(ctx context.Context, c *calling) error {
		expires, err := c.time("expires-at")
		if err != nil {
			return err
		}
		reason := string(client.DenyReasonAbuse)
		if c.GetBool("legal") {
			reason = string(client.DenyReasonLegal)
		}
		return c.listed(c.api.Deny(ctx, client.DenyAdd{Kind: c.args[0], Value: c.args[1], Reason: &reason, Note: given(c, "note", c.GetString), ExpiresAt: expires}, c.listOptions()))
	}, entryFlags, writeFlags, func(f *pflag.FlagSet) { f.Bool("legal", false, "the reason is a legal one: visitors see 451, not 403") })
	add.Long = add.Short + ".\nKIND is code (VALUE: DOMAIN/CODE), host, host_suffix (the host and all below it) or network (as 192.0.2.0/24)."
	return group("deny", "The denylist: what visitors must not reach", add, newEntries(client.Denylist), newUnlist(client.Denylist))
}

func newAllow() *cobra.Command {
	add := linkCommand("add HOST", "Take one host out of denials that are broader than a host", exactArgs(1), func(ctx context.Context, c *calling) error {
		expires, err := c.time("expires-at")
		if err != nil {
			return err
		}
		return c.listed(c.api.Allow(ctx, client.AllowAdd{Value: c.args[0], Note: given(c, "note", c.GetString), ExpiresAt: expires}, c.listOptions()))
	}, entryFlags, writeFlags)
	return group("allow", "The allowlist: hosts that broader denials do not concern", add, newEntries(client.Allowlist), newUnlist(client.Allowlist))
}

func newTrust() *cobra.Command {
	set := linkCommand("set KIND VALUE TIER", "Say how far an owner, or a link, is trusted", exactArgs(3), func(ctx context.Context, c *calling) error {
		expires, err := c.time("expires-at")
		if err != nil {
			return err
		}
		return c.listed(c.api.Trust(ctx, client.TrustAdd{Kind: c.args[0], Value: c.args[1], Tier: c.args[2], Note: given(c, "note", c.GetString), ExpiresAt: expires}, c.listOptions()))
	}, entryFlags, writeFlags)
	set.Long = set.Short + ".\nKIND is owner or code (VALUE: DOMAIN/CODE), TIER is low, standard or high."
	return group("trust", "Trust in owners and in single links", set, newEntries(client.TrustList), newUnlist(client.TrustList))
}

func newSwitch() *cobra.Command {
	turn := func(verb, short string, closed bool) *cobra.Command {
		return linkCommand(verb+" TIER", short, exactArgs(1), func(ctx context.Context, c *calling) error {
			s, err := c.api.Switch(ctx, c.args[0], closed, c.listOptions())
			if err != nil {
				return err
			}
			return show(c, &client.SwitchList{Switches: []client.Switch{*s}}, printSwitches)
		}, noteFlag, writeFlags)
	}
	list := linkCommand("list", "Show the switches", exactArgs(0), func(ctx context.Context, c *calling) error {
		switches, err := c.api.Switches(ctx)
		if err != nil {
			return err
		}
		return show(c, switches, printSwitches)
	})
	return group("switch", "The emergency switches: close a tier of links, with two admin keys",
		turn("close", "Confirm that a tier is to be closed: its links answer 503", true), turn("open", "Confirm that a tier is to be opened", false), list)
}

func noteFlag(f *pflag.FlagSet) { f.String("note", "", "why; kept in the history") }

func entryFlags(f *pflag.FlagSet) {
	noteFlag(f)
	f.String("expires-at", "", "the entry does not count from this time on (RFC 3339)")
}

func entriesFlags(f *pflag.FlagSet) {
	f.String("kind", "", "only entries of this kind")
	f.String("q", "", "only entries whose value has this in it")
	f.String("cursor", "", "go on behind an earlier list")
	f.Int32("limit", 100, "how many entries at most")
	f.String("position", "", "answer from a state that holds this position, as a write returned it")
}

func newEntries(list string) *cobra.Command {
	return linkCommand("list", "List the entries", exactArgs(0), func(ctx context.Context, c *calling) error {
		text := func(name string) *string { return given(c, name, c.GetString) }
		page, err := c.api.Entries(ctx, list, client.ListDenylistParams{Kind: text("kind"), Q: text("q"), Cursor: text("cursor"),
			Limit: given(c, "limit", c.GetInt32), HoplogPosition: text("position")})
		if err != nil {
			return err
		}
		return show(c, page, printEntries)
	}, entriesFlags)
}

func newUnlist(list string) *cobra.Command {
	return linkCommand("remove ID", "Remove an entry", exactArgs(1), func(ctx context.Context, c *calling) error {
		return c.listed(c.api.Unlist(ctx, list, c.args[0], c.listOptions()))
	}, noteFlag, writeFlags)
}

func (c *calling) listOptions() client.Options {
	return client.Options{Key: c.GetString("idempotency-key"), Reason: c.GetString("note")}
}

func (c *calling) listed(l *client.Listed, err error) error {
	if err != nil {
		return err
	}
	if l.Replayed {
		fmt.Fprintln(c.err, "this was done before under the same idempotency key; nothing was done now")
	}
	return show(c, l.Entry, func(w io.Writer, e *client.ListEntry) error {
		return printEntries(w, &client.ListPage{Entries: []client.ListEntry{*e}})
	})
}

func printEntries(w io.Writer, page *client.ListPage) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tKIND\tVALUE\tSAYS\tCOUNTS\tADDED\tBY\tNOTE")
	for _, e := range page.Entries {
		says := "allowed"
		switch {
		case e.Reason != nil:
			says = string(*e.Reason)
		case e.Tier != nil:
			says = string(*e.Tier)
		}
		counts := "no"
		switch {
		case e.Active && e.ExpiresAt != nil:
			counts = "until " + e.ExpiresAt.UTC().Format(time.DateTime)
		case e.Active:
			counts = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Id, e.Kind, printable(e.Value), says, counts, e.AddedAt.UTC().Format(time.DateTime), printable(e.Actor), cell(e.Note))
	}
	if err := t.Flush(); err != nil || page.NextCursor == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --cursor %s\n", *page.NextCursor)
	return err
}

func printSwitches(w io.Writer, list *client.SwitchList) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TIER\tSTATE\tNOTE")
	for _, s := range list.Switches {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Tier, s.Summary, cell(s.Note))
	}
	return t.Flush()
}
