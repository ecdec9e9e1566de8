package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Time limits of a child.
const (
	startLimit  = 30 * time.Second // process start to ready
	stopLimit   = 8 * time.Second  // SIGTERM to SIGKILL
	backoffMin  = 100 * time.Millisecond
	backoffMax  = 5 * time.Second
	stableAfter = time.Minute // a child that lived so long resets the back-off
)

// Child is an engine process and what keeps it alive: when it dies it is started again, after 0.1 s, then twice that, up to
// 5 s. While it is down its address refuses connections. Safe for concurrent use.
type Child struct {
	opt      Options
	log      *slog.Logger
	current  atomic.Pointer[process]
	restarts atomic.Uint64
	stopOnce sync.Once
	stopping chan struct{}
	stopped  chan struct{}
}

// process is one life of the child.
type process struct {
	cmd     *exec.Cmd
	control io.WriteCloser // closing it ends the child
	started time.Time
	addr    string
	version string
	exited  chan struct{}
	result  error // of Wait, once exited is closed
}

// Start starts the engine and returns when it answers, which takes about a second (more when the library is not in the
// page cache). ctx bounds the start only; the engine lives until [Child.Stop], or until this process ends in any way.
func Start(ctx context.Context, o Options) (*Child, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o, err = o.absolute(); err != nil {
		return nil, fmt.Errorf("starting clickhouse engine: %w", err)
	}
	if _, err := os.Stat(o.Lib); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoEngine, err)
	}
	c := &Child{opt: o, log: o.Log, stopping: make(chan struct{}), stopped: make(chan struct{})}
	p, err := c.launch(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting clickhouse engine: %w", err)
	}
	c.opt.Addr = p.addr // a port that was picked is kept
	c.current.Store(p)
	go c.supervise(p)
	return c, nil
}

// Addr is the host:port of the engine; it does not change.
func (c *Child) Addr() string { return c.opt.Addr }

// Version of ClickHouse, as SELECT version() has it.
func (c *Child) Version() string {
	if p := c.current.Load(); p != nil {
		return p.version
	}
	return ""
}

// Pid of the running process, 0 while there is none.
func (c *Child) Pid() int {
	if p := c.current.Load(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Ready reports whether the engine runs.
func (c *Child) Ready() bool { return c.current.Load() != nil }

// Restarts counts how often the engine died and was started again.
func (c *Child) Restarts() uint64 { return c.restarts.Load() }

// Stop ends the engine in order: it drains and closes its files. After stopLimit, or when ctx ends, it is killed, which
// loses nothing that was acknowledged. Further calls wait for the first.
func (c *Child) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { close(c.stopping) })
	if p := c.current.Load(); p != nil {
		p.terminate(ctx)
	}
	select {
	case <-c.stopped:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("stopping clickhouse engine: supervisor hangs")
	}
}

// supervise waits for the end of each process and starts the next.
func (c *Child) supervise(p *process) {
	defer close(c.stopped)
	backoff := backoffMin
	for {
		<-p.exited
		c.current.Store(nil)
		if c.isStopping() {
			return
		}
		if time.Since(p.started) > stableAfter {
			backoff = backoffMin
		}
		c.log.Warn("clickhouse engine died", "err", p.result, "lived", time.Since(p.started), "restarts", c.Restarts())
		if p = c.relaunch(&backoff); p == nil {
			return
		}
		c.restarts.Add(1)
		c.current.Store(p)
		c.log.Info("clickhouse engine is back", "pid", p.cmd.Process.Pid, "restarts", c.Restarts())
		if c.isStopping() { // Stop may have looked before p was stored
			p.terminate(context.Background())
		}
	}
}

// relaunch tries until a process is ready; nil when stopping.
func (c *Child) relaunch(backoff *time.Duration) *process {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-c.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		select {
		case <-c.stopping:
			return nil
		case <-time.After(*backoff):
		}
		*backoff = min(*backoff*2, backoffMax)
		p, err := c.launch(ctx)
		if err == nil {
			return p
		}
		if !c.isStopping() {
			c.log.Error("clickhouse engine does not start", "err", err, "retry", *backoff)
		}
	}
}

func (c *Child) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// launch starts a process and waits until it answers.
func (c *Child) launch(ctx context.Context) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p, report, err := c.spawn()
	if err != nil {
		return nil, err
	}
	defer func() { _ = report.Close() }()
	if err := p.await(ctx, report); err != nil {
		_ = p.cmd.Process.Kill() // it may be dead already
		<-p.exited
		return nil, err
	}
	return p, nil
}

// spawn starts the process. The thread that does it stays until the process ends: the kernel sends the parent-death
// signal at the death of that thread, not of the whole parent.
func (c *Child) spawn() (*process, *os.File, error) {
	options, err := json.Marshal(c.opt)
	if err != nil {
		return nil, nil, err
	}
	report, childReport, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(c.opt.Command[0], c.opt.Command[1:]...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{childReport}
	cmd.SysProcAttr = childAttributes()
	p := &process{cmd: cmd, started: time.Now(), exited: make(chan struct{})}
	if p.control, err = cmd.StdinPipe(); err == nil {
		err = p.run()
	}
	_ = childReport.Close() // the child has its copy
	if err != nil {
		_ = report.Close()
		return nil, nil, fmt.Errorf("starting %s: %w", c.opt.Command[0], err)
	}
	// A process that is dead already cannot take its options; that shows in its report.
	_, _ = p.control.Write(append(options, '\n'))
	return p, report, nil
}

func (p *process) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.result = p.cmd.Wait()
			close(p.exited)
		}
	}()
	return <-started
}

// await reads the child's report and asks it a first time.
func (p *process) await(ctx context.Context, report *os.File) error {
	deadline, _ := ctx.Deadline()
	_ = report.SetReadDeadline(deadline) // without it a mute child is met by the parent's own limit
	stop := context.AfterFunc(ctx, func() { _ = report.SetReadDeadline(time.Now()) })
	defer stop()
	var s status
	if err := json.NewDecoder(report).Decode(&s); err != nil {
		select {
		case <-p.exited:
			return fmt.Errorf("it ended before it was ready: %w", errors.Join(p.result, err))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.Error != "" {
		return s.err()
	}
	p.addr, p.version = s.Addr, s.Version
	return ping(ctx, s.Addr)
}

func ping(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/ping", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64))
	if err == nil && !bytes.Equal(body, []byte("Ok.\n")) {
		err = fmt.Errorf("unexpected answer %q to a ping", body)
	}
	return err
}

// terminate asks the process to end, then makes it.
func (p *process) terminate(ctx context.Context) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be dead already, here and below
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
	case <-time.After(stopLimit):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}
