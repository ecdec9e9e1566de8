package systemtest

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

func TestStartAndStop(t *testing.T) {
	p := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	began := time.Now()
	p.start()
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	for _, words := range []string{"http://" + p.ports["api"], p.domain(), "curl"} {
		p.eventually("the start says "+words, func() bool { return strings.Contains(p.out.String(), words) })
	}
	if strings.Contains(p.out.String(), adminKey) {
		t.Error("the given admin key was printed")
	}
	code := p.made(fields{"target": "https://example.com/"})

	second := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	second.data = p.data
	second.launch()
	select {
	case err := <-second.ended:
		second.ended <- err
		if exitCode(err) != 1 || !strings.Contains(second.out.String(), "in use") || !strings.Contains(second.out.String(), p.data) {
			t.Errorf("a second start on the same data: exit %d: %s", exitCode(err), second.out)
		}
	case <-time.After(patient):
		t.Error("a second start on the same data directory was not refused")
	}

	p.kill()
	p.start()
	p.eventually("the link is there after kill -9", func() bool { return p.visit("/"+code).status == http.StatusFound })
	red := watchReadiness(p)
	exit, took := p.stop()
	if exit != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: exit %d after %s", exit, took)
	}
	if !<-red {
		t.Error("/readyz did not turn red before the end")
	}
	p.start()
}

// watchReadiness reports whether /readyz said 503 before the process was gone.
func watchReadiness(p *process) chan bool {
	addr, out := p.ports["admin"], make(chan bool, 1)
	go func() {
		for end := time.Now().Add(patient); time.Now().Before(end); {
			switch status, _ := p.get(addr, "/readyz"); status {
			case http.StatusServiceUnavailable:
				out <- true
				return
			case 0:
				out <- false
				return
			}
		}
		out <- false
	}()
	return out
}

// The first start without HOPLOG_ADMIN_KEY prints a key, and that key works; later starts print none.
func TestFirstKey(t *testing.T) {
	p := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	p.env = []string{"HOPLOG_ADMIN_KEY="}
	p.start()
	var key string
	p.eventually("the start shows a key", func() bool {
		_, rest, _ := strings.Cut(p.out.String(), "shown only now: ")
		var whole bool
		key, _, whole = strings.Cut(rest, "\n")
		return whole && len(key) >= 40
	})
	if a := p.api("GET", "/v1/links", nil, "Authorization", "Bearer "+key); a.status != http.StatusOK {
		t.Errorf("with the printed key: %d %s", a.status, a.raw)
	}
	if a := p.api("GET", "/v1/links", nil); a.status != http.StatusUnauthorized {
		t.Errorf("with another key: %d", a.status)
	}
	if exit, _ := p.stop(); exit != 0 {
		t.Fatal("exit", exit)
	}
	before := len(p.out.String())
	p.start()
	if again := p.out.String()[before:]; strings.Contains(again, "shown only now") || strings.Contains(again, key) {
		t.Errorf("the second start shows a key: %s", again)
	}
}

func TestWrongUse(t *testing.T) {
	p := newProcess(t, nil)
	for _, args := range [][]string{{"nonsense"}, {"dev", "--nonsense"}, {"serve"}, {"serve", "--roles", "nonsense"}, {"dev", "--partitions", "3"}, {"status", "extra"}, {"dev", "--config", "/nowhere.yaml"}, {"dev", "--redis", "http://x:secret@h"}} {
		if code, out, errs := p.cli(args...); code != 2 || out != "" || !strings.Contains(errs, "hoplog: ") {
			t.Errorf("hoplog %v: exit %d, %q, %q", args, code, out, errs)
		}
	}
	if code, _, errs := p.cli("status", "--admin", loopback.FreeAddr(t)); code != 1 || !strings.Contains(errs, "--admin") {
		t.Errorf("status of nothing: exit %d, %s", code, errs)
	}
}

// When ClickHouse dies, redirects and writes do not notice, it comes back, and nothing is lost.
func TestClickHouseDies(t *testing.T) {
	p := dev(t)
	code := p.made(fields{"target": "https://example.com/"})
	visit := func(n int) {
		for range n {
			if a := p.visit("/" + code); a.status != http.StatusFound {
				t.Fatalf("visit: %d", a.status)
			}
		}
	}
	visit(50)
	pid := enginePID(t, p)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	visit(50)
	p.made(fields{"target": "https://example.com/meanwhile"})
	p.eventually("100 clicks are counted", func() bool { return clicksOf(p, code) == 100 })
	var s struct{ ClickHouse struct{ Restarts int } }
	if p.cliJSON(&s, "status"); s.ClickHouse.Restarts != 1 {
		t.Errorf("%d restarts of ClickHouse", s.ClickHouse.Restarts)
	}
}

func clicksOf(p *process, code string) int {
	a := p.api("GET", p.link(code, "/stats"), nil)
	var s struct{ Total struct{ Clicks int } }
	if json.Unmarshal([]byte(a.raw), &s) != nil || a.status != http.StatusOK {
		return -1
	}
	return s.Total.Clicks
}
