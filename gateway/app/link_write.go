package app

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/client"
)

// contentFlags are the fields that a create sets and an update changes.
func contentFlags(f *pflag.FlagSet) {
	f.String("title", "", "title")
	f.StringArray("tag", nil, "tag; may stand several times")
	f.String("not-before", "", "visitors see 404 before this time (RFC 3339)")
	f.String("expires-at", "", "visitors see 410 from this time on (RFC 3339)")
	f.Int32("redirect-status", 302, "301, 302, 307 or 308")
	f.String("query", "keep", "what becomes of a visitor's query: keep, override, append, drop or reject")
	f.Int32("cache-ttl", 0, "seconds for which browsers and proxies may keep the redirect")
	f.String("expired-url", "", "where visitors are sent once the link is expired, disabled or deleted")
}

func createFlags(f *pflag.FlagSet) {
	f.String("domain", "", "short domain; the default domain when left out")
	f.String("code", "", "code; a generated one when left out")
	f.Int32("code-length", 7, "characters of a generated code")
	f.String("code-mode", "sequential", "how a code is generated: sequential or random")
	f.Bool("dedupe", false, "answer with your active link that has this target, if there is one")
}

func updateFlags(f *pflag.FlagSet) { f.String("target", "", "target URL") }

func newLinkCreate() *cobra.Command {
	return linkCommand("create TARGET", "Create a link to a target URL", exactArgs(1), func(ctx context.Context, c *calling) error {
		link := client.LinkCreate{Target: c.args[0], Title: given(c, "title", c.GetString), Query: given(c, "query", c.GetString),
			RedirectStatus: given(c, "redirect-status", c.GetInt32), CacheTtl: given(c, "cache-ttl", c.GetInt32), Tags: given(c, "tag", c.tags), ExpiredUrl: given(c, "expired-url", c.GetString),
			Domain: given(c, "domain", c.GetString), Code: given(c, "code", c.GetString), CodeLength: given(c, "code-length", c.GetInt32), Dedupe: given(c, "dedupe", c.GetBool)}
		if c.IsSet("code-mode") {
			mode := client.CodeMode(c.GetString("code-mode"))
			link.CodeMode = &mode
		}
		var err error
		if link.NotBefore, err = c.time("not-before"); err != nil {
			return err
		}
		if link.ExpiresAt, err = c.time("expires-at"); err != nil {
			return err
		}
		o, err := c.options()
		if err != nil {
			return err
		}
		return c.written(c.api.Create(ctx, link, o))
	}, createFlags, contentFlags, writeFlags)
}

func newLinkUpdate() *cobra.Command {
	c := linkCommand("update LINK", "Change fields of a link", exactArgs(1), func(ctx context.Context, c *calling) error {
		fields, err := c.changes()
		if err != nil {
			return err
		}
		o, err := c.options()
		if err != nil {
			return err
		}
		name, err := c.link(ctx)
		if err != nil {
			return err
		}
		return c.written(c.api.Update(ctx, name.domain, name.code, fields, o))
	}, updateFlags, contentFlags, domainFlag, changeFlags, writeFlags)
	c.Long += "\nOnly the fields whose flags are given change. An empty value, as in --title '', takes the field back to its default."
	return c
}

// changes are the fields of an update that were given, under their names in the API.
func (c *calling) changes() (map[string]any, error) {
	fields := map[string]any{}
	for _, name := range []string{"target", "title", "query"} {
		if c.IsSet(name) {
			fields[name] = orNil(c.GetString(name))
		}
	}
	if c.IsSet("expired-url") {
		fields["expired_url"] = orNil(c.GetString("expired-url"))
	}
	if c.IsSet("tag") {
		fields["tags"] = c.tags("tag")
	}
	if c.IsSet("redirect-status") {
		fields["redirect_status"] = orNil(c.GetInt32("redirect-status"))
	}
	if c.IsSet("cache-ttl") {
		fields["cache_ttl"] = c.GetInt32("cache-ttl")
	}
	for flag, name := range map[string]string{"not-before": "not_before", "expires-at": "expires_at"} {
		if !c.IsSet(flag) {
			continue
		}
		at, err := c.time(flag)
		if err != nil {
			return nil, err
		}
		if fields[name] = nil; at != nil {
			fields[name] = at
		}
	}
	if len(fields) == 0 {
		return nil, usagef("nothing to change: give a field, such as --target URL")
	}
	return fields, nil
}

// given returns the value of a setting that somebody set, nil if nobody did.
func given[T any](c *calling, name string, get func(string) T) *T {
	if !c.IsSet(name) {
		return nil
	}
	v := get(name)
	return &v
}

func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// tags are all that were given but empty ones.
func (c *calling) tags(name string) []string {
	tags := []string{}
	for _, tag := range c.GetStringSlice(name) {
		if tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

func (c *calling) time(name string) (*time.Time, error) {
	at, err := timeSetting(c.settings, name)
	if err != nil || at.IsZero() {
		return nil, err
	}
	return &at, nil
}
