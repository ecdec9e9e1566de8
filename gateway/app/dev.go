package app

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func devFlags(f *pflag.FlagSet) {
	f.Int("partitions", 2, "partitions of the topics, when they are made")
	f.String("chdb", "", "path of libchdb.so, if it is not beside the binary")
	f.String("roles", "", "what this process does beside the embedded broker and ClickHouse, by default everything: "+strings.Join(allRoles, ","))
}

func serveFlags(f *pflag.FlagSet) {
	f.Int("partitions", 16, "partitions of the topics, when they are made")
	f.String("roles", "", "what this process does: "+strings.Join(allRoles, ","))
}

func newDev() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: all roles, an embedded broker and an embedded ClickHouse",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			roles, err := s.devRoles()
			if err != nil {
				return err
			}
			n, err := newNode(c, s, roles, true)
			if err != nil {
				return err
			}
			return n.run(c.Context())
		},
	}
	return withFlags(c, processFlags, devFlags, adminFlags, logFlags, kafkaFlags, clickhouseFlags, redisFlags)
}

func newServe() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve --roles ROLE,...",
		Short: "Run some roles against real Kafka and ClickHouse",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			roles, err := rolesOf(s.rolesGiven())
			if err != nil {
				return err
			}
			n, err := newNode(c, s, roles, false)
			if err != nil {
				return err
			}
			return n.run(c.Context())
		},
	}
	return withFlags(c, processFlags, serveFlags, adminFlags, logFlags, kafkaFlags, clickhouseFlags, redisFlags)
}

// devRoles are those of --roles, else all for which there is something to do.
func (s settings) devRoles() ([]string, error) {
	if given := s.rolesGiven(); given != "" {
		return rolesOf(given)
	}
	return slices.DeleteFunc(slices.Clone(allRoles), func(role string) bool { return role == roleEffects && !s.hasEffects() }), nil
}

func (s settings) rolesGiven() string { return strings.Join(s.GetStringSlice("roles"), ",") }

func rolesOf(list string) (roles []string, err error) {
	for _, role := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(",[] ", r) }) {
		if !slices.Contains(allRoles, role) {
			return nil, usagef("role %q: this version has %s", role, strings.Join(allRoles, ", "))
		}
		roles = append(roles, role)
	}
	if len(roles) == 0 {
		return nil, usagef("name the roles of this process: --roles %s", strings.Join(allRoles, ","))
	}
	return roles, nil
}

// showFirstKey prints the first API key. It is printed before it is written, so that no key is in the log that nobody saw.
func (n *node) showFirstKey(key string) {
	n.firstKey = key
	n.announce("first start; the admin key, shown only now: %s", key)
}

// tell prints where everything is once the process is ready.
func (n *node) tell(ctx context.Context) {
	for !n.health.report().Ready {
		if !sleep(ctx, readyPoll) {
			return
		}
	}
	n.announce("hoplog %s is ready: %s", version, strings.Join(n.roles, ", "))
	if n.has(roleAPI) {
		n.announce("  API        http://%s/   (description: http://%[1]s/v1/openapi.yaml)", n.GetString("api"))
	}
	if n.has(roleRedirect) {
		n.announce("  redirects  http://%s/", n.control.Current().DefaultDomain().GetNamespace())
	}
	n.announce("  admin      http://%s/readyz /metrics /status", n.GetString(setAdmin))
	if n.dev {
		n.announce("  Kafka      %s", n.GetString(setKafka))
		if n.parts.engine != nil {
			n.announce("  ClickHouse http://%s/", n.parts.engine.Addr())
		}
	}
	if n.has(roleAPI) {
		key := n.firstKey
		if key == "" {
			key = "$HOPLOG_KEY"
		}
		n.announce("try:\n  curl -s http://%s/v1/links -H \"Authorization: Bearer %s\" -d '{\"target\":\"https://example.com/\"}'", n.GetString("api"), key)
	}
}
