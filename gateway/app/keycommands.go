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

func newKey() *cobra.Command {
	create := linkCommand("create", "Make an API key and print it, once", exactArgs(0), func(ctx context.Context, c *calling) error {
		made, err := c.api.CreateKey(ctx, client.KeyCreate{Owner: given(c, "owner", c.GetString), Admin: given(c, "as-admin", c.GetBool), Note: given(c, "note", c.GetString)}, c.listOptions())
		if err != nil {
			return err
		}
		return show(c, made, printMadeKey)
	}, noteFlag, writeFlags, func(f *pflag.FlagSet) {
		f.String("owner", "", "whose links the key makes and sees; default: the owner of the key in use")
		// Not --admin: its variable would be that of the admin address.
		f.Bool("as-admin", false, "the key may use the control plane too")
	})
	list := linkCommand("list", "List the API keys that count", exactArgs(0), func(ctx context.Context, c *calling) error {
		page, err := c.api.Keys(ctx, client.ListKeysParams{Cursor: given(c, "cursor", c.GetString), Limit: given(c, "limit", c.GetInt32), HoplogPosition: given(c, "position", c.GetString)})
		if err != nil {
			return err
		}
		return show(c, page, printKeys)
	}, func(f *pflag.FlagSet) {
		f.String("cursor", "", "go on behind an earlier list")
		f.Int32("limit", 100, "how many keys at most")
		f.String("position", "", "answer from a state that holds this position, as a write returned it")
	})
	revoke := linkCommand("revoke ID", "Revoke an API key", exactArgs(1), func(ctx context.Context, c *calling) error {
		was, err := c.api.RevokeKey(ctx, c.args[0], c.listOptions())
		if err != nil {
			return err
		}
		return show(c, was, func(w io.Writer, k *client.ApiKey) error {
			return printKeys(w, &client.KeyPage{Keys: []client.ApiKey{*k}})
		})
	}, noteFlag, writeFlags)
	return group("key", "API keys", create, list, revoke)
}

func printMadeKey(w io.Writer, k *client.ApiKey) error {
	if err := printKeys(w, &client.KeyPage{Keys: []client.ApiKey{*k}}); err != nil {
		return err
	}
	if k.Secret == nil {
		_, err := fmt.Fprintln(w, "this was done before under the same idempotency key; the key itself was shown then")
		return err
	}
	_, err := fmt.Fprintf(w, "the key, shown only now: %s\n", *k.Secret)
	return err
}

func printKeys(w io.Writer, page *client.KeyPage) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tOWNER\tADMIN\tCOUNTS\tADDED\tBY\tNOTE")
	yes := map[bool]string{true: "yes", false: "no"}
	for _, k := range page.Keys {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(k.Id), printable(k.Owner), yes[k.Admin], yes[k.Active], k.AddedAt.UTC().Format(time.DateTime), printable(k.Actor), cell(k.Note))
	}
	if err := t.Flush(); err != nil || page.NextCursor == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --cursor %s\n", *page.NextCursor)
	return err
}
