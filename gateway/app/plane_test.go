package app

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/viper"

	"github.com/hoplog/hoplog/gateway"
)

func TestTrust(t *testing.T) {
	for _, c := range []struct {
		header, networks string
		want             string // "usage": refused
	}{
		{"x-forwarded-for", "", "false []"},
		{"X-Forwarded-For", " ", "false []"},
		{"Forwarded", "10.0.0.0/8, 2001:db8::/32", "true [10.0.0.0/8 2001:db8::/32]"},
		{"via", "", "usage"},
		{"forwarded", "10.0.0.1", "usage"},
		{"forwarded", "lan", "usage"},
	} {
		v := viper.New()
		v.Set("trusted-header", c.header)
		v.Set("proxy-protocol", c.networks)
		var deps gateway.RedirectDeps
		err := (&node{settings: settings{v}}).trust(&deps)
		got := fmt.Sprint(deps.TrustForwarded, " ", deps.Proxies)
		var usage usageError
		if errors.As(err, &usage) {
			got = "usage"
		}
		if got != c.want {
			t.Errorf("%q and %q: %s, %v, want %s", c.header, c.networks, got, err, c.want)
		}
	}
}

func TestTLSNeedsBoth(t *testing.T) {
	for _, set := range []string{"redirect-tls", "redirect-certs"} {
		v := viper.New()
		v.Set(set, "x")
		var usage usageError
		if err := (&node{settings: settings{v}}).serveTLS(nil); !errors.As(err, &usage) {
			t.Errorf("%s alone: %v", set, err)
		}
	}
}
