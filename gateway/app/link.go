package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/client"
)

const linkHelp = "LINK is DOMAIN/CODE, CODE alone, or a short URL. CODE alone is on the domain of --domain, else on that of your links if it is one."

func newLink() *cobra.Command {
	c := &cobra.Command{
		Use:   "link",
		Short: "Create, read and change links through the command API",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", "link "+args[0])
			}
			return c.Help()
		},
	}
	c.AddCommand(newLinkCreate(), newLinkGet(), newLinkUpdate(), newLinkHistory(), newLinkList(),
		newLinkChange("disable", "Disable a link: visitors see 410", (*client.API).Disable),
		newLinkChange("enable", "Enable a disabled link", (*client.API).Enable),
		newLinkChange("ban", "Ban a link: visitors see 403, or 451 with --legal", (*client.API).Ban),
		newLinkChange("unban", "Lift a ban", (*client.API).Unban),
		newLinkChange("delete", "Delete a link for good; its code stays taken", (*client.API).Delete))
	return c
}

// calling is a command that asks the API, at work.
type calling struct {
	settings
	api  *client.API
	args []string
	out  io.Writer
	err  io.Writer
}

// linkCommand makes a sub-command that calls f with a client of the API.
func linkCommand(use, short string, args cobra.PositionalArgs, f func(ctx context.Context, c *calling) error, flags ...flagSet) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			api, err := openAPI(s)
			if err != nil {
				return err
			}
			call := &calling{settings: s, api: api, args: args, out: c.OutOrStdout(), err: c.ErrOrStderr()}
			return call.explain(f(c.Context(), call))
		},
	}
	if strings.Contains(use, "LINK") {
		c.Long = short + ".\n" + linkHelp
	}
	return withFlags(c, append(flags, clientFlags, jsonFlag)...)
}

func openAPI(s settings) (*client.API, error) {
	server := s.GetString(setServer)
	if at, err := url.Parse(server); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, usagef("--server %.100q: want a URL as http://127.0.0.1:8080", server)
	}
	if s.GetString(setKey) == "" {
		return nil, usagef("no API key: set HOPLOG_KEY (`hoplog dev` printed one at its first start)")
	}
	api, err := client.New(client.Config{Server: server, Key: s.GetString(setKey)})
	if err != nil {
		return nil, usageError{err}
	}
	return api, nil
}

// explain adds to an error of the API what can be done about it.
func (c *calling) explain(err error) error {
	var refusal *client.Error
	var undecided *client.UndecidedError
	var dial *net.OpError
	unreachable := errors.As(err, &dial) && dial.Op == "dial"
	switch {
	case errors.As(err, &undecided) && unreachable:
		return fmt.Errorf("no API answers at %s: is `hoplog dev` running? Name it with --server, and repeat this with --idempotency-key %s, so that nothing is done twice (%w)",
			c.GetString(setServer), undecided.Key, dial)
	case errors.As(err, &undecided):
		return fmt.Errorf("nobody knows yet whether it was done; repeat this with --idempotency-key %s, and nothing is done twice: %w", undecided.Key, undecided.Cause)
	case unreachable:
		return fmt.Errorf("no API answers at %s: is `hoplog dev` running? Name it with --server (%w)", c.GetString(setServer), dial)
	case errors.As(err, &refusal) && refusal.Code == client.ErrorCodeUnauthorized:
		return fmt.Errorf("%w; set HOPLOG_KEY to a key of this installation", err)
	}
	return err
}

func domainFlag(f *pflag.FlagSet) {
	f.String("domain", "", "short domain of a CODE that stands alone")
}

func positionFlag(f *pflag.FlagSet) {
	f.String("position", "", "answer from a state that holds this position, as a write returned it")
}

func writeFlags(f *pflag.FlagSet) {
	f.String("idempotency-key", "", "key of this write: repeated with it, it is done once; default: a new one")
}

func changeFlags(f *pflag.FlagSet) {
	f.String("if-match", "", "version that the link must still have")
	f.String("reason", "", "why; kept in the link's history")
}

// link returns the domain and code that the command's LINK names.
func (c *calling) link(ctx context.Context) (linkName, error) {
	name, err := parseLink(c.args[0])
	if err != nil || name.domain != "" {
		return name, err
	}
	if name.domain = c.GetString("domain"); name.domain == "" {
		name.domain, err = c.ownDomain(ctx)
	}
	return name, err
}

// domainSample is how many of the newest links are looked at for their domain.
const domainSample = 100

// ownDomain returns the domain of the caller's links, if they are all on one: the API does not tell its default domain.
func (c *calling) ownDomain(ctx context.Context) (string, error) {
	limit := int32(domainSample)
	page, err := c.api.List(ctx, client.ListLinksParams{Limit: &limit})
	if err != nil {
		return "", err
	}
	var domains []string
	for i := range page.Links {
		if d := page.Links[i].Domain; !slices.Contains(domains, d) {
			domains = append(domains, d)
		}
	}
	switch len(domains) {
	case 1:
		return domains[0], nil
	case 0:
		return "", errors.New("you have no link yet that shows your short domain: name the link as DOMAIN/CODE, or the domain with --domain")
	}
	return "", fmt.Errorf("your links are on %s: name the link as DOMAIN/CODE, or the domain with --domain", strings.Join(domains, ", "))
}

// options are those of a write.
func (c *calling) options() (o client.Options, err error) {
	o = client.Options{Key: c.GetString("idempotency-key"), Reason: c.GetString("reason"), Legal: c.GetBool("legal")}
	match := strings.Trim(c.GetString("if-match"), `"`)
	if match == "" || match == "*" {
		return o, nil
	}
	if o.IfVersion, err = strconv.ParseUint(match, 10, 64); err != nil || o.IfVersion == 0 {
		return o, usagef("--if-match %.40q: want a version, such as 3", match)
	}
	return o, nil
}

func (c *calling) written(w *client.Written, err error) error {
	if err != nil {
		return err
	}
	if w.Replayed {
		fmt.Fprintln(c.err, "this was done before under the same idempotency key; nothing was done now")
	}
	return show(c, w.Link, printLink)
}

// show prints an answer as JSON or as a table.
func show[T any](c *calling, v *T, table func(io.Writer, *T) error) error {
	if c.GetBool("json") {
		return printJSON(c.out, v)
	}
	return table(c.out, v)
}

func newLinkGet() *cobra.Command {
	return linkCommand("get LINK", "Show a link", exactArgs(1), func(ctx context.Context, c *calling) error {
		name, err := c.link(ctx)
		if err != nil {
			return err
		}
		link, err := c.api.Get(ctx, name.domain, name.code, c.GetString("position"))
		if err != nil {
			return err
		}
		return show(c, link, printLink)
	}, domainFlag, positionFlag)
}

func newLinkHistory() *cobra.Command {
	return linkCommand("history LINK", "Show all that happened to a link", exactArgs(1), func(ctx context.Context, c *calling) error {
		name, err := c.link(ctx)
		if err != nil {
			return err
		}
		history, err := c.api.History(ctx, name.domain, name.code, c.GetString("position"))
		if err != nil {
			return err
		}
		return show(c, history, printHistory)
	}, domainFlag, positionFlag)
}

type changeLink func(api *client.API, ctx context.Context, domain, code string, o client.Options) (*client.Written, error)

func newLinkChange(verb, short string, change changeLink) *cobra.Command {
	c := linkCommand(verb+" LINK", short, exactArgs(1), func(ctx context.Context, c *calling) error {
		o, err := c.options()
		if err != nil {
			return err
		}
		name, err := c.link(ctx)
		if err != nil {
			return err
		}
		return c.written(change(c.api, ctx, name.domain, name.code, o))
	}, domainFlag, changeFlags, writeFlags)
	if verb == "ban" {
		c.Flags().Bool("legal", false, "the reason is a legal one")
	}
	return c
}
