// Package redistest runs a real redis-server for tests: on a free port, without a disk, ended with the test. What stands in
// PATH is taken, else what `make redis` fetched; without either the test is skipped and says so.
//
// It must only be imported by tests.
package redistest

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

// patience bounds waiting for a server, on a busy machine.
const patience = 30 * time.Second

// Server is a redis-server. Its methods are for one goroutine.
type Server struct {
	// Addr is host:port, the same in every life.
	Addr string
	t    testing.TB
	// first comes before all settings, args after them.
	first, args []string
	cmd         *exec.Cmd
}

// Start starts a server with settings of one's own, as on redis-server's command line.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	binary(t, "redis-server")
	s := &Server{Addr: loopback.FreeAddr(t), t: t, args: args}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// StartSentinel starts a sentinel that watches a master by a name.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	binary(t, "redis-server")
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte("sentinel monitor "+name+" "+host+" "+port+" 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: loopback.FreeAddr(t), t: t, first: []string{file, "--sentinel"}}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Restart starts a server that was killed. It comes back empty.
func (s *Server) Restart() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append(slices.Clone(s.first), "--port", port, "--bind", "127.0.0.1", "--dir", s.t.TempDir())
	if s.first == nil {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, s.args...)
	s.cmd = command(s.t, "redis-server", args...)
	var out bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &out, &out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("starting redis-server: %v", err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			s.Kill()
			s.t.Fatalf("redis-server does not listen on %s: %s", s.Addr, out.String())
		}
	}
}

// Kill ends the server at once; what it held is gone. One that was killed may be killed again.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed, as it says
	s.cmd = nil
}

// Freeze stops the server where it is, until Thaw. Its connections stay.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signalling redis-server: %v", err)
	}
}

// CLI runs a command by redis-cli and returns what it prints, without the last line's end.
func (s *Server) CLI(args ...string) string {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	out, err := command(s.t, "redis-cli", append([]string{"-p", port}, args...)...).Output()
	if err != nil {
		s.t.Fatalf("redis-cli %q: %v", args, err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// fetched is where `make redis` unpacks the distribution's packages, in the module's root.
const fetched = ".tools/redis"

// binary finds a program of Redis.
func binary(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path := filepath.Join(moduleRoot(t), fetched, "usr", "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: no %s on this machine: run `make redis`", name)
	}
	return path
}

// command makes a command of a program of Redis, with the libraries that came with it.
func command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t, name), args...)
	libraries, _ := filepath.Glob(filepath.Join(moduleRoot(t), fetched, "usr", "lib", "*-linux-*"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return cmd
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod above")
		}
	}
	t.Fatalf("looking for the module's root: %v", err)
	return ""
}
