package eventlog_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/loopback"
	"github.com/hoplog/hoplog/events/eventlog/realkafka"
)

// roleEnv makes this test binary another process of a test: a broker or a group member that can be killed.
const roleEnv = "EVENTLOG_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		play(role)
		return
	}
	os.Exit(m.Run())
}

func play(role string) {
	var err error
	args := strings.Split(role, " ")
	switch args[0] {
	case "broker":
		err = playBroker(args[1], args[2])
	case "member":
		err = playMember(args[1], args[2], args[3])
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	select {}
}

func playBroker(dir, addr string) error {
	b, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: addr}, quiet())
	if err == nil {
		fmt.Println("addr", b.Addr())
	}
	return err
}

// broker is what a conformance test may do to a broker.
type broker interface {
	Addr() string
	Kill() // kill -9
	Restart()
	Pause() // SIGSTOP
	Resume()
}

// onBoth runs a test on the embedded broker and on a real Kafka.
func onBoth(t *testing.T, test func(t *testing.T, b broker)) {
	t.Run("embedded", func(t *testing.T) { test(t, startEmbeddedProcess(t)) })
	t.Run("kafka", func(t *testing.T) { test(t, realkafka.Start(t)) })
}

// embeddedProcess is the embedded broker in a process of its own, so that it can be killed.
type embeddedProcess struct {
	t    testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
}

func startEmbeddedProcess(t testing.TB) *embeddedProcess {
	t.Helper()
	p := &embeddedProcess{t: t, dir: t.TempDir(), addr: loopback.FreeAddr(t)}
	p.Restart()
	t.Cleanup(p.Kill)
	return p
}

func (p *embeddedProcess) Addr() string { return p.addr }

func (p *embeddedProcess) Kill() { killProcess(p.cmd) }

func (p *embeddedProcess) Pause() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *embeddedProcess) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *embeddedProcess) Restart() {
	p.t.Helper()
	var line string
	p.cmd, line = spawn(p.t, "broker "+p.dir+" "+p.addr)
	if line != "addr "+p.addr {
		p.t.Fatalf("embedded broker did not start: %s", line)
	}
}

// spawn runs this binary in a role and returns the first line it prints.
func spawn(t testing.TB, role string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s ended at its start: %v", role, err)
	}
	return cmd, strings.TrimSpace(line)
}

func killProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// embeddedHere starts the embedded broker in this process.
func embeddedHere(t testing.TB) *eventlog.Embedded {
	t.Helper()
	return embeddedIn(t, t.TempDir())
}

func embeddedIn(t testing.TB, dir string) *eventlog.Embedded {
	t.Helper()
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: "127.0.0.1:0"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// open opens a log with the usual topics of 4 partitions.
func open(t testing.TB, addr string) *eventlog.Log {
	t.Helper()
	l := openBare(t, eventlog.Config{Brokers: []string{addr}})
	if err := l.EnsureTopics(soon(t), eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	return l
}

func openBare(t testing.TB, cfg eventlog.Config) *eventlog.Log {
	t.Helper()
	l, err := eventlog.Open(cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if err := l.WaitReady(soon(t), 1); err != nil {
		t.Fatal(err)
	}
	return l
}

// patient is how long that may take which is to happen: it costs nothing when it happens at once, and the machine may be busy.
const patient = 2 * time.Minute

// soon is for what is to happen; within for what is to end in time.
func soon(t testing.TB) context.Context { t.Helper(); return within(t, patient) }

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func appender(t testing.TB, l *eventlog.Log, topic string) *eventlog.Appender {
	t.Helper()
	a, err := l.NewAppender(topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func tail(t testing.TB, l *eventlog.Log, topic string, from map[int32]int64) *eventlog.Tail {
	t.Helper()
	tl, err := l.NewTail(topic, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tl.Close)
	return tl
}

// values makes records whose values are prefix0, prefix1, …
func values(prefix string, n int) []eventlog.Record {
	out := make([]eventlog.Record, n)
	for i := range out {
		out[i] = eventlog.Record{Key: []byte{0, byte(i)}, Value: fmt.Appendf(nil, "%s%d", prefix, i)}
	}
	return out
}

// read polls until n records of the partition came.
func read(t testing.TB, tl *eventlog.Tail, partition int32, n int) []eventlog.Record {
	t.Helper()
	ctx := soon(t)
	var out []eventlog.Record
	for len(out) < n {
		batches, err := tl.Poll(ctx, 0)
		if err != nil {
			t.Fatalf("after %d of %d records: %v (last error: %v)", len(out), n, err, tl.LastError())
		}
		for _, b := range batches {
			if b.Partition == partition {
				out = append(out, b.Records...)
			}
		}
	}
	return out
}
