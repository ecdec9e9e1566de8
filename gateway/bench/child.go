package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a child of ours. It dies with us.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended
}

const (
	startWithin = 60 * time.Second
	stopWithin  = 12 * time.Second
	readyPoll   = 20 * time.Millisecond
	movedPoll   = 500 * time.Millisecond
	// answerWithin bounds one question to an admin address.
	answerWithin = 5 * time.Second
	logTail      = 2000
)

// start runs hoplog and waits until it is ready. The environment's settings do not reach it: what is measured shall not
// depend on them.
func (s *Setup) start(ctx context.Context, admin string, env []string, log string, args ...string) (*process, error) {
	return s.startLong(ctx, admin, env, log, nil, args...)
}

// startLong is start of a process that may take long, and is waited for as long as what moved returns grows.
func (s *Setup) startLong(ctx context.Context, admin string, env []string, log string, moved func(context.Context) int64, args ...string) (*process, error) {
	cmd := exec.Command(s.Binary, args...)
	cmd.Env = append(withoutSettings(os.Environ()), env...)
	p, err := launch(cmd, log)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, admin, moved); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func withoutSettings(environ []string) (kept []string) {
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "HOPLOG_") || strings.HasPrefix(entry, "HOPLOG_CHDB=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// launch starts a command with its output in a file.
func launch(cmd *exec.Cmd, log string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("making a log file: %w", err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = file, file, diesWithUs()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoStart, err)
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended, its log says
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// await returns when the process says that it is ready. Moved, if not nil, is asked now and then how far it is.
func (p *process) await(ctx context.Context, admin string, moved func(context.Context) int64) error {
	var most int64
	for since, asked := time.Now(), time.Now(); ; {
		if isReady(ctx, admin) {
			return nil
		}
		if moved != nil && time.Since(asked) >= movedPoll {
			if now := moved(ctx); now > most {
				most, since = now, time.Now()
			}
			asked = time.Now()
		}
		if time.Since(since) > startWithin {
			return fmt.Errorf("%w: not ready after %v; the end of its output: %s", ErrNoStart, startWithin, p.lastWords())
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%w: it ended; the end of its output: %s", ErrNoStart, p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; the end of its output: %s", ErrNoStart, ctx.Err(), p.lastWords())
		case <-time.After(readyPoll):
		}
	}
}

func isReady(ctx context.Context, admin string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *process) lastWords() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(text[max(0, len(text)-logTail):])
}

// kill ends the process as a crash does, and returns when it has ended.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	return err
}

// stop ends the process, by force if it takes too long, and returns when it has ended.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopWithin):
	}
	err := fmt.Errorf("%s did not stop within %v of SIGTERM", p.cmd.Args[0], stopWithin)
	_ = p.cmd.Process.Kill()
	<-p.ended
	return err
}
