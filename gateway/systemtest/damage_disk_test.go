package systemtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a file system of its own for a data directory; without the right to do so the test is skipped, loudly.
func smallDisk(t *testing.T, megabytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", megabytes), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no file system can be mounted here (needs root): %v %s", err, out)
	}
	t.Cleanup(func() {
		for range 100 { // what was killed lets go of it in a moment
			if exec.Command("umount", dir).Run() == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%s stays mounted", dir)
	})
	return dir
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// occupy writes into a file until so many bytes are left.
func occupy(t *testing.T, dir string, left int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); free(t, dir) > left; {
		if n := free(t, dir) - left; n < int64(len(chunk)) {
			chunk = chunk[:n]
		}
		if _, err := f.Write(chunk); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return
			}
			t.Fatal(err)
		}
	}
}

// A disk that fills up under load: writes get 503 with the reason, redirects go on, nothing that was acknowledged is lost, and
// when there is room again all goes on without a restart.
func TestFullDisk(t *testing.T) {
	p := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	p.data = filepath.Join(smallDisk(t, 900), "data")
	t.Cleanup(p.kill) // before the disk is unmounted
	p.start()
	known := p.made(fields{"target": "https://example.com/known"})

	var acked sync.Map // key → code
	var stop atomic.Bool
	var load sync.WaitGroup
	for worker := range 4 {
		load.Go(func() {
			for i := 0; !stop.Load(); {
				key := fmt.Sprintf("full-%d-%d", worker, i)
				a, err := p.tryAPI("POST", "/v1/links", fields{"target": "https://example.com/" + key}, "Idempotency-Key", key)
				switch {
				case err == nil && (a.status == http.StatusCreated || a.status == http.StatusOK):
					acked.Store(key, a.str("code"))
					i++
				case err == nil && a.status != http.StatusServiceUnavailable && a.status != http.StatusAccepted:
					t.Errorf("a create: %d %s", a.status, a.raw)
					return
				default:
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	load.Go(func() {
		for !stop.Load() {
			if a, err := p.tryVisit("GET", "/"+known); err != nil || a.status != http.StatusFound {
				t.Errorf("a redirect: %v %d", err, a.status)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(500 * time.Millisecond)
	for _, left := range []int64{40 << 20, 0} { // below the reserve; then not a byte
		occupy(t, filepath.Dir(p.data), left)
		p.eventually("writes are refused with the reason", func() bool {
			a := p.create(fields{"target": "https://example.com/refused"})
			return a.status == http.StatusServiceUnavailable && a.str("code") == "unavailable" && strings.Contains(a.raw, "disk is full") && a.header.Get("Retry-After") != ""
		})
		time.Sleep(1500 * time.Millisecond)
		if status, body := p.get(p.ports["admin"], "/readyz"); status != http.StatusOK || !strings.Contains(body, "disk is full") || !strings.Contains(body, "degraded") {
			t.Errorf("with %d bytes left /readyz says %d %s", left, status, body)
		}
		if a := p.api("GET", p.link(known), nil); a.status != http.StatusOK {
			t.Errorf("reading a link: %d %s", a.status, a.raw)
		}
	}
	if err := os.Remove(filepath.Join(filepath.Dir(p.data), "ballast")); err != nil {
		t.Fatal(err)
	}
	p.eventually("writes go on", func() bool {
		return p.create(fields{"target": "https://example.com/again"}).status == http.StatusCreated
	})
	time.Sleep(500 * time.Millisecond)
	stop.Store(true)
	load.Wait()
	p.ready()
	p.acknowledged(&acked)
	p.audits(nil)
	p.kill()
	p.start()
	p.acknowledged(&acked)
}

// acknowledged expects that every create that was answered is there: its key answers again as it did.
func (p *process) acknowledged(acked *sync.Map) {
	p.t.Helper()
	n := 0
	acked.Range(func(key, code any) bool {
		n++
		a := p.create(fields{"target": "https://example.com/" + key.(string)}, "Idempotency-Key", key.(string))
		if a.status != http.StatusOK || a.str("code") != code {
			p.t.Errorf("key %s again: %d %s, was %s", key, a.status, a.raw, code)
		}
		return n < 1000
	})
	if n == 0 {
		p.t.Error("nothing was acknowledged")
	}
	p.t.Logf("%d acknowledged creates are there", n)
}

// A data directory that cannot be written to is refused at the start, by name.
func TestReadOnlyDirectory(t *testing.T) {
	disk := smallDisk(t, 200)
	p := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	p.data = filepath.Join(disk, "data")
	t.Cleanup(p.kill)
	p.start()
	p.made(fields{"target": "https://example.com/"})
	if code, _ := p.stop(); code != 0 {
		t.Fatal("exit", code)
	}
	if out, err := exec.Command("mount", "-o", "remount,ro", disk).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: cannot be mounted read-only: %v %s", err, out)
	}
	p.refuses(p.data, "read-only", "--data")
	p.cmd = nil
	missing := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
	missing.data = filepath.Join(disk, "other")
	missing.refuses(missing.data, "read-only", "--data")
	if out, err := exec.Command("mount", "-o", "remount,rw", disk).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	p.start()
}

// A denial holds on a node that has no room for anything else.
func TestListsHoldOnAFullDisk(t *testing.T) {
	p := dev(t)
	code := p.create(fields{"target": "https://evil.example/"}).str("code")
	node := p.serve(t, "redirect")
	visited := func(status int) func() bool {
		return func() bool { return node.visitAs("HEAD", "/"+code, "Host", p.domain()).status == status }
	}
	node.eventually("the node serves the link", visited(http.StatusFound))
	if code, _ := node.stop(); code != 0 {
		t.Fatal("exit", code)
	}
	node.args = append(node.args, "--disk-reserve", "100000000") // MiB: no disk has them
	node.start()
	node.eventually("the node is full and serves the link", func() bool {
		_, ready := node.get(node.ports["admin"], "/readyz")
		return visited(http.StatusFound)() && strings.Contains(ready, "disk is full")
	})
	if a := p.api("POST", "/v1/denylist", fields{"kind": "host", "value": "evil.example"}); a.status >= 300 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	node.eventually("the denial holds", visited(http.StatusForbidden))
}
