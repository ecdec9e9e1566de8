package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

// parentVariable makes this test binary a parent that starts an engine with the options in it, prints the engine's pid
// and address, and then does nothing until it is killed.
const parentVariable = "HOPLOG_ENGINE_TEST_PARENT"

func runParent() {
	var o engine.Options
	if err := json.Unmarshal([]byte(os.Getenv(parentVariable)), &o); err != nil {
		panic(err)
	}
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	o.Command = []string{exe}
	c, err := engine.Start(context.Background(), o)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Pid(), c.Addr())
	select {}
}

// startParent returns the parent's process, its engine's pid and address.
func startParent(t *testing.T, o engine.Options) (*osexec.Cmd, int, string) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(o.Command[0])
	cmd.Env = append(os.Environ(), parentVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the parent did not start its engine: %v", err)
	}
	var pid int
	var addr string
	if _, err := fmt.Sscan(line, &pid, &addr); err != nil {
		t.Fatal(err)
	}
	return cmd, pid, addr
}

func alive(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(state), ") Z ")
}

// patient is how long that may take which is to happen: the machine may be busy.
const patient = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patient, what)
		}
	}
}

func TestEngineDiesWithItsKilledParent(t *testing.T) {
	dir := t.TempDir()
	o := enginetest.Options(t, dir)
	for round := range 3 {
		parent, pid, addr := startParent(t, o)
		exec(t, dial(t, addr), "CREATE TABLE IF NOT EXISTS kept (round UInt64) ENGINE = MergeTree ORDER BY round")
		exec(t, dial(t, addr), fmt.Sprintf("INSERT INTO kept VALUES (%d)", round))
		o.Addr = addr // the next one wants the same address and directory, at once
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		if round == 2 {
			eventually(t, "the engine ends", func() bool { return !alive(pid) })
			t.Logf("the engine ended %s after its parent", time.Since(killed).Round(time.Millisecond))
		}
		_ = parent.Wait()
	}
	c := enginetest.StartWith(t, o)
	if n := count(t, dial(t, c.Addr()), "SELECT count() FROM kept"); n != 3 {
		t.Errorf("%d of 3 acknowledged rows", n)
	}
}

func TestKilledEngineComesBackWithAllAcknowledgedRows(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	exec(t, conn, "CREATE TABLE acked (n UInt64) ENGINE = MergeTree ORDER BY n")
	acked := uint64(0)
	for kills := uint64(1); kills <= 3; kills++ {
		pid := c.Pid()
		go func() {
			time.Sleep(200 * time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}()
		for {
			batch, err := conn.PrepareBatch(context.Background(), "INSERT INTO acked")
			if err == nil {
				err = errors.Join(batch.Append(acked), batch.Send())
			}
			if err != nil {
				break
			}
			acked++
		}
		eventually(t, "the engine is back", func() bool { return c.Restarts() == kills && c.Ready() })
		// The last, unanswered row may or may not be there; it is sent again.
		if n := count(t, conn, "SELECT uniqExact(n) FROM acked"); n != acked && n != acked+1 {
			t.Fatalf("%d rows, %d acknowledged", n, acked)
		}
	}
	if acked == 0 {
		t.Error("nothing was inserted")
	}
	t.Logf("%d inserts acknowledged", acked)
}

func TestSecondEngineIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := enginetest.Start(t, dir)
	o := enginetest.Options(t, dir)
	o.Wait = 100 * time.Millisecond
	if _, err := engine.Start(context.Background(), o); !errors.Is(err, engine.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("same directory: %v", err)
	}
	o.DataDir, o.Addr = t.TempDir(), first.Addr()
	if _, err := engine.Start(context.Background(), o); !errors.Is(err, engine.ErrAddrInUse) {
		t.Errorf("same address: %v", err)
	}
	if got := do(t, "GET", queryURL(first.Addr(), "SELECT 1"), ""); got.body != "1\n" {
		t.Errorf("the first engine answers %+v", got)
	}
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	c := enginetest.Start(t, dir)
	conn := dial(t, c.Addr())
	exec(t, conn, "CREATE TABLE kept (a UInt64) ENGINE = MergeTree ORDER BY a")
	slow := make(chan answer)
	go func() { slow <- do(t, "POST", queryURL(c.Addr(), "INSERT INTO kept SELECT sleep(1) + 7"), "") }()
	eventually(t, "the insert runs", func() bool {
		return count(t, conn, "SELECT count() FROM system.processes WHERE query LIKE 'INSERT%'") == 1
	})
	pid, start := c.Pid(), time.Now()
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %s", time.Since(start).Round(time.Millisecond))
	if got := <-slow; got.status != 200 {
		t.Errorf("running insert: %+v", got)
	}
	if alive(pid) || c.Ready() || c.Restarts() != 0 {
		t.Errorf("alive %v, ready %v, restarts %d", alive(pid), c.Ready(), c.Restarts())
	}
	if _, err := net.Dial("tcp", c.Addr()); err == nil {
		t.Error("the address is still served")
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Errorf("second stop: %v", err)
	}
	again := enginetest.Start(t, dir)
	if n := count(t, dial(t, again.Addr()), "SELECT sum(a) FROM kept"); n != 7 {
		t.Errorf("sum %d after restart", n)
	}
}

func TestStopKillsALongRead(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	read := make(chan answer, 1)
	go func() {
		read <- do(t, "GET", queryURL(c.Addr(), "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"), "")
	}()
	time.Sleep(200 * time.Millisecond)
	start := time.Now()
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("stopping took %s", d)
	}
	if got := <-read; got.header.Get("X-ClickHouse-Exception-Code") != "394" {
		t.Errorf("the read got %+v, want QUERY_WAS_CANCELLED", got)
	}
}

func TestStopWhileTheEngineCannotStart(t *testing.T) {
	o := enginetest.Options(t, t.TempDir())
	lib := filepath.Join(t.TempDir(), engine.LibraryName)
	if err := os.Symlink(o.Lib, lib); err != nil {
		t.Fatal(err)
	}
	o.Lib = lib
	c := enginetest.StartWith(t, o)
	if err := errors.Join(os.Remove(lib), syscall.Kill(c.Pid(), syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its death is noticed", func() bool { return !c.Ready() })
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	if err := c.Stop(context.Background()); err != nil || time.Since(start) > 3*time.Second {
		t.Errorf("stopping: %v after %s", err, time.Since(start))
	}
}

func TestUnusableDirectoryIsReported(t *testing.T) {
	o := enginetest.Options(t, t.TempDir())
	c := enginetest.StartWith(t, o)
	exec(t, dial(t, c.Addr()), "CREATE DATABASE broken")
	exec(t, dial(t, c.Addr()), "CREATE TABLE broken.t (a UInt8) ENGINE = MergeTree ORDER BY a")
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(o.DataDir, "metadata", "broken", "t.sql"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	if err := os.WriteFile(tables[0], []byte("ATTACH TABLE nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Start(context.Background(), o); !errors.Is(err, engine.ErrOpen) {
		t.Errorf("got %v", err)
	}
}

func TestMissingLibrary(t *testing.T) {
	o := engine.Options{Lib: filepath.Join(t.TempDir(), "libchdb.so"), DataDir: t.TempDir()}
	if _, err := engine.Start(context.Background(), o); !errors.Is(err, engine.ErrNoEngine) || !strings.Contains(err.Error(), "make engine") {
		t.Errorf("start: %v", err)
	}
	if _, err := engine.Find(o.Lib); !errors.Is(err, engine.ErrNoEngine) {
		t.Errorf("find: %v", err)
	}
	t.Chdir(t.TempDir())
	if _, err := engine.Find(""); !errors.Is(err, engine.ErrNoEngine) {
		t.Errorf("find: %v", err)
	}
	if err := errors.Join(os.Mkdir("bin", 0o700), os.WriteFile("bin/libchdb.so", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if path, err := engine.Find(""); err != nil || !filepath.IsAbs(path) {
		t.Errorf("find: %q, %v", path, err)
	}
}

// Without its handlers the Go runtime of the child could not turn a nil dereference into a panic, nor preempt.
func TestEngineKeepsTheRuntimesSignalHandlers(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	do(t, "GET", queryURL(c.Addr(), "SELECT 1"), "") // each request opens a session, which resets handlers
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Pid()))
	if err != nil {
		t.Skip("SKIPPED: no /proc here")
	}
	_, after, _ := strings.Cut(string(text), "SigCgt:")
	var caught uint64
	if _, err := fmt.Sscanf(strings.TrimSpace(after), "%x", &caught); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGILL, syscall.SIGABRT, syscall.SIGFPE, syscall.SIGBUS, syscall.SIGSEGV, syscall.SIGURG} {
		if caught&(1<<(sig-1)) == 0 {
			t.Errorf("%s is not caught", sig)
		}
	}
}

// Whoever answers a visitor on the same machine comes first.
func TestEngineStandsBack(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.Pid()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads: %v", len(threads), err)
	}
	behind := 0
	for _, thread := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", c.Pid(), thread.Name()))
		if _, rest, ok := strings.Cut(string(text), ") "); ok && strings.Fields(rest)[16] == "10" {
			behind++
		}
	}
	// One watches over the memory and has a priority of the engine's choice.
	if behind < len(threads)-1 {
		t.Errorf("%d threads of %d stand back", behind, len(threads))
	}
}

func TestChildRefusesToRunByHand(t *testing.T) {
	if code := engine.Main(); code != 2 {
		t.Errorf("exit code %d", code)
	}
}
