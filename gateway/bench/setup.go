package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hoplog/hoplog/gateway/client"
)

// Setup says what a scenario measures, and where.
type Setup struct {
	// Binary is the hoplog binary that processes of the scenario's own are started from.
	Binary string
	// Version is that binary's.
	Version string
	// Dir is where their data goes, and goes from when they end; default the system's directory for such.
	Dir string
	// Kafka are the addresses of a Kafka on this machine, host:port, comma separated, that processes of the scenario's own work
	// on; empty: the embedded broker. The topics are made there and stay.
	Kafka string
	// Arguments are further ones of processes of the scenario's own.
	Arguments []string
	// Running, if not nil, is measured instead of processes of the scenario's own.
	Running *Running
	// Progress (may be nil) hears how far the scenario is.
	Progress Progress
}

// Running are the addresses of running processes, all on this machine. What a scenario makes there stays there.
type Running struct {
	Server   string // URL of the command API
	Key      string
	Redirect string // host:port of a redirect node; empty: redirects are not looked at
	Admin    string // host:port of the measured process's admin address; empty: its processor time is not known
}

// Progress hears how far a step of a scenario is; total 0: nobody knows. A new step begins with a new name. It is
// called by one goroutine at a time.
type Progress func(step string, done, total int64)

func (p Progress) tell(step string, done, total int64) {
	if p != nil {
		p(step, done, total)
	}
}

// target is what a scenario talks to.
type target struct {
	api, redirect, admin, kafka string // host:port
	key                         string
	client                      *client.API
	cpu                         cpuMeter
	own                         *process // nil: it was running before
	begin                       starter  // of own, again and again
	dir                         string
}

// starter starts a process with further arguments.
type starter func(ctx context.Context, further ...string) (*process, error)

// open starts a process, or takes what is running.
func (s *Setup) open(ctx context.Context) (*target, error) {
	t, err := s.running()
	if t == nil && err == nil {
		t, err = s.startOwn(ctx)
	}
	if err != nil {
		return nil, err
	}
	if t.client, err = client.New(client.Config{Server: "http://" + t.api, Key: t.key}); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (s *Setup) running() (*target, error) {
	r := s.Running
	if r == nil {
		return nil, nil
	}
	server, err := url.Parse(r.Server)
	if err != nil || server.Scheme != "http" || server.Port() == "" {
		return nil, fmt.Errorf("server %q: want http://host:port", r.Server)
	}
	t := &target{api: server.Host, redirect: r.Redirect, admin: r.Admin, key: r.Key, cpu: cpuUnknown}
	for _, addr := range []string{t.api, t.redirect, t.admin} {
		if err := checkLoopback(addr); err != nil {
			return nil, err
		}
	}
	if r.Admin != "" {
		t.cpu = cpuOfAdmin(r.Admin)
	}
	return t, nil
}

// checkLoopback refuses addresses of other machines. The empty address is none.
func checkLoopback(addr string) error {
	if addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", addr, err)
	}
	ips := []net.IP{net.ParseIP(host)}
	if ips[0] == nil {
		if ips, err = net.LookupIP(host); err != nil {
			return fmt.Errorf("address %q: %w", addr, err)
		}
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return fmt.Errorf("address %q: %w", addr, ErrNotLoopback)
		}
	}
	return nil
}

// startOwn starts everything that creates and visits links in one process.
func (s *Setup) startOwn(ctx context.Context) (*target, error) {
	for addr := range strings.SplitSeq(s.Kafka, ",") {
		if err := checkLoopback(addr); err != nil {
			return nil, err
		}
	}
	dir, err := s.tempDir()
	if err != nil {
		return nil, err
	}
	t := &target{dir: dir, key: randomKey()}
	ports, err := freePorts(5)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t.api, t.redirect, t.admin, t.kafka = ports[0], ports[1], ports[2], ports[3]
	command := []string{"dev", "--clickhouse", ports[4]}
	if s.Kafka != "" {
		t.kafka, command = s.Kafka, []string{"serve", "--roles", "api,commands,redirect", "--domain", t.redirect}
	}
	s.Progress.tell("starting hoplog "+command[0], 0, 0)
	command = append(command, "--data", filepath.Join(dir, "data"), "--api", t.api, "--redirect", t.redirect, "--admin", t.admin, "--kafka", t.kafka)
	command = append(command, s.Arguments...)
	t.begin = func(ctx context.Context, further ...string) (*process, error) {
		return s.start(ctx, t.admin, []string{"HOPLOG_ADMIN_KEY=" + t.key}, filepath.Join(dir, "hoplog.log"), slices.Concat(command, further)...)
	}
	if t.own, err = t.begin(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t.cpu = cpuOfPID(t.own.pid())
	return t, nil
}

// close stops what was started for the target and removes its data.
func (t *target) close() error {
	if t.own == nil {
		return nil
	}
	return errors.Join(t.own.stop(), os.RemoveAll(t.dir))
}

func (s *Setup) tempDir() (string, error) {
	dir, err := os.MkdirTemp(s.Dir, "hoplog-bench-")
	if err != nil {
		return "", fmt.Errorf("making a directory for data: %w", err)
	}
	return dir, nil
}

// dataDir is where temporary data will go.
func (s *Setup) dataDir() string {
	if s.Dir != "" {
		return s.Dir
	}
	return os.TempDir()
}

func randomKey() string {
	random := make([]byte, 24)
	_, _ = rand.Read(random) // never fails
	return "bench-" + hex.EncodeToString(random)
}

// freePorts finds loopback addresses on which nobody listens now.
func freePorts(n int) ([]string, error) {
	if n == 0 {
		return nil, nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("looking for a free port: %w", err)
	}
	defer ln.Close() // not before the others are found: they shall differ
	others, err := freePorts(n - 1)
	return append(others, ln.Addr().String()), err
}

// removeAll removes a directory at the end of what used it; err is that function's.
func removeAll(dir string, err *error) { *err = errors.Join(*err, os.RemoveAll(dir)) }
