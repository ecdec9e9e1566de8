package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLoadStaysOnThisMachine(t *testing.T) {
	for addr, fine := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "localhost:8080": true, "": true,
		"192.0.2.1:80": false, "10.0.0.1:80": false, "0.0.0.0:80": false, "[2001:db8::1]:80": false, "no-port": false,
	} {
		if err := checkLoopback(addr); (err == nil) != fine {
			t.Errorf("%q: %v", addr, err)
		}
	}
	for _, running := range []Running{
		{Server: "http://192.0.2.1:8080"}, {Server: "http://127.0.0.1:8080", Redirect: "192.0.2.1:8081"}, {Server: "http://127.0.0.1:8080", Admin: "192.0.2.1:9090"},
	} {
		s := Setup{Running: &running}
		if _, err := s.open(context.Background()); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%+v: %v", running, err)
		}
	}
	s := Setup{Running: &Running{Server: "https://localhost:8080"}}
	if _, err := s.open(context.Background()); err == nil {
		t.Error("a server of another scheme is taken")
	}
}

func TestSettingsOfTheEnvironmentDoNotReachWhatIsMeasured(t *testing.T) {
	got := withoutSettings([]string{"PATH=/bin", "HOPLOG_PARTITIONS=64", "HOPLOG_KEY=secret", "HOPLOG_CHDB=/opt/libchdb.so"})
	if !slices.Equal(got, []string{"PATH=/bin", "HOPLOG_CHDB=/opt/libchdb.so"}) {
		t.Error(got)
	}
}

func TestAProcessThatEndsAtItsStartIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "hoplog")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho the disk is full\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := Setup{Binary: binary, Dir: dir}
	began := time.Now()
	_, err := s.open(context.Background())
	if !errors.Is(err, ErrNoStart) || !strings.Contains(err.Error(), "the disk is full") || time.Since(began) > startWithin/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "hoplog-bench-*")); left != nil {
		t.Errorf("it leaves %v", left)
	}
}

func TestProcessorTime(t *testing.T) {
	got, err := parseStat("7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15")
	if err != nil || got != 4*time.Second {
		t.Errorf("%v, %v", got, err)
	}
	for _, stat := range []string{"", "7 (a) S 1 2", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x 150 13"} {
		if _, err := parseStat(stat); err == nil {
			t.Errorf("%q is taken", stat)
		}
	}
	meter, own := cpuOfPID(os.Getpid()), cpuOfSelf()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if used, err := meter(context.Background()); err != nil {
			t.Fatal(err)
		} else if used > own && cpuOfSelf() > own {
			return
		}
	}
	t.Error("this process uses no time")
}

func TestTheMachineIsDescribed(t *testing.T) {
	m := describe("v1", t.TempDir())
	if m.CPU == "" || m.Cores < 1 || m.MemoryGiB <= 0 || m.Kernel == "" || m.Filesystem == "unknown" || m.Hoplog != "v1" || !strings.HasPrefix(m.Go, "go1.") {
		t.Errorf("%+v", m)
	}
}
