package pubsub_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

// brokerEnv makes this test binary an embedded broker that can be killed: "DIR ADDR".
const brokerEnv = "PUBSUB_TEST_BROKER"

func TestMain(m *testing.M) {
	if dir, addr, ok := strings.Cut(os.Getenv(brokerEnv), " "); ok {
		if _, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: addr}, quiet()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

// restartable starts an embedded broker in a process of its own, which is started again whenever it dies, and returns the
// command that kills it.
func restartable(t *testing.T) (addr string, kill []string) {
	t.Helper()
	addr = loopback.FreeAddr(t)
	dir, pid := t.TempDir(), filepath.Join(t.TempDir(), "pid")
	var mu sync.Mutex
	var current *exec.Cmd
	over := false
	start := func() *exec.Cmd {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return nil
		}
		current = exec.Command(os.Args[0])
		current.Env = append(os.Environ(), brokerEnv+"="+dir+" "+addr)
		current.Stderr = os.Stderr
		current.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := current.Start(); err != nil {
			t.Error(err)
			return nil
		}
		if err := os.WriteFile(pid, []byte(strconv.Itoa(current.Process.Pid)), 0o600); err != nil {
			t.Error(err)
		}
		return current
	}
	var watch sync.WaitGroup
	first := start()
	watch.Go(func() {
		for cmd := first; cmd != nil; cmd = start() {
			_ = cmd.Wait()
		}
	})
	t.Cleanup(func() {
		mu.Lock()
		over = true
		_ = current.Process.Kill()
		mu.Unlock()
		watch.Wait()
	})
	open(t, addr)                                                             // it answers
	return addr, []string{"sh", "-c", "kill -9 $(cat '" + pid + "') || true"} // it may be dead already
}
