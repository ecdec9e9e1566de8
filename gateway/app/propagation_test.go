package app

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// What was measured counts for ten minutes; what took longer than promised is late.
func TestPropagationOfTheLastMinutes(t *testing.T) {
	n := &node{registry: prometheus.NewRegistry()}
	p := n.newPropagation("redirect", time.Second)
	n.newPropagation("purge", 3*time.Second) // beside it
	now := time.Unix(1_800_000_000, 0)
	p.observe(20*time.Millisecond, now)
	p.observe(1500*time.Millisecond, now.Add(time.Minute))
	p.observe(-time.Second, now.Add(2*time.Minute)) // the writer's clock is ahead
	for _, c := range []struct {
		at   time.Duration
		want propagationStatus
	}{
		{2 * time.Minute, propagationStatus{"redirect", 1000, 1500, 3, 1}},
		{10*time.Minute + 30*time.Second, propagationStatus{"redirect", 1000, 1500, 2, 1}},
		{11*time.Minute + 30*time.Second, propagationStatus{"redirect", 1000, 0, 1, 0}},
		{20 * time.Minute, propagationStatus{Cache: "redirect", BoundMS: 1000}},
	} {
		if got := p.status(now.Add(c.at)); got != c.want {
			t.Errorf("after %s: %+v, want %+v", c.at, got, c.want)
		}
	}
}

// settingsOf loads the settings of a process from flags.
func settingsOf(t *testing.T, args ...string) (*cobra.Command, settings) {
	t.Helper()
	c := newDev()
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	s, err := load(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestPropagationBound(t *testing.T) {
	for _, c := range []struct {
		args []string
		want time.Duration // 0: refused
	}{
		{nil, time.Second},
		{[]string{"--propagation", "300ms"}, 300 * time.Millisecond},
		{[]string{"--purge-url", "http://cdn.example/"}, 3 * time.Second},
		{[]string{"--purge-url", "http://cdn.example/", "--propagation", "2s", "--purge-within", "5s"}, 7 * time.Second},
		{[]string{"--propagation", "0s"}, 0},
		{[]string{"--purge-within", "2h"}, 0},
	} {
		_, s := settingsOf(t, c.args...)
		if err := s.checkPropagation(); (err != nil) != (c.want == 0) {
			t.Errorf("%v: %v", c.args, err)
		}
		if c.want != 0 && s.propagationBound() != c.want {
			t.Errorf("%v: %s, want %s", c.args, s.propagationBound(), c.want)
		}
	}
}

// Texts of a purge request may hold what somebody should have put into the token: they are shown by name only.
func TestPurgeTextsAreNotShown(t *testing.T) {
	t.Setenv("HOPLOG_CHDB", "") // restored at the end
	if err := os.Unsetenv("HOPLOG_CHDB"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOPLOG_PURGE_TOKEN", "hidden-1")
	c, s := settingsOf(t, "--purge-url", "http://cdn.example/hidden-2", "--purge-headers", "Authorization: hidden-3", "--purge-body", "hidden-4", "--purge-batch", "7")
	if got := printed(s.shown(c)); got != "purge-batch=7 purge-body=(set) purge-headers=(set) purge-token=(set) purge-url=(set)" {
		t.Errorf("shown: %s", got)
	}
}

// printed is a list of log attributes in order of their names.
func printed(list []any) string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprint(a))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
