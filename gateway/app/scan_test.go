package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/hoplog/hoplog/gateway/scan"
)

func TestScanSettings(t *testing.T) {
	for _, c := range []struct{ limit, allow, want string }{
		{"60", scanAllow, "guard"}, {"1", "", "guard"}, {"0", "", "off"}, {"-1", "", "usage"}, {"60", "198.51.100.7", "usage"}, {"60", "lan", "usage"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		scanFlags(flags)
		v := viper.New()
		if err := v.BindPFlags(flags); err != nil {
			t.Fatal(err)
		}
		v.Set("scan-limit", c.limit)
		v.Set("scan-allow", c.allow)
		guard, err := settings{v}.scanGuard()
		var usage usageError
		got := map[bool]string{true: "off", false: "guard"}[guard == nil]
		switch {
		case errors.As(err, &usage):
			got = "usage"
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		}
		if got != c.want {
			t.Errorf("%+v: %s %v", c, got, err)
		}
	}
}

func TestScanIsShown(t *testing.T) {
	quiet := &statusReport{Scan: &scan.Status{Sources: 3}}
	if line := scanLine(quiet.Scan); !strings.HasPrefix(line, "nobody") {
		t.Error(line)
	}
	loud := &statusReport{Scan: &scan.Status{UnderWay: true, Closed: 2, RefusedGuesses: 7, RefusedLinks: 1, Network: "198.51.100.0/24", Pressed: true}}
	advised := 0
	for _, r := range []*statusReport{quiet, loud, {}} {
		r.scansOff(func(_, off, _ string) {
			advised++
			for _, part := range []string{"2 closed", "7 guesses", "198.51.100.0/24", "eighth"} {
				if !strings.Contains(off, part) {
					t.Errorf("%q lacks %q", off, part)
				}
			}
		})
	}
	if advised != 1 {
		t.Errorf("advised %d times", advised)
	}
}
