// Package realkafka starts real Apache Kafka brokers (KRaft) on loopback for tests, from jars that `make kafka` fetched: one
// alone, or a cluster.
//
// Invariant: a test never fails for want of Java or the jars; it is skipped and says why and what to do. A broker dies
// with its test. It must not import anything of this module.
package realkafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

var (
	//go:embed files/pom.xml
	pom []byte
	//go:embed files/server.properties
	serverProperties []byte
	//go:embed files/log4j2.properties
	log4jProperties []byte
)

// POM is the Maven project whose dependencies are the broker's jars:
// mvn -q -B -f FILE dependency:copy-dependencies -DoutputDirectory=.tools/kafka/libs
func POM() []byte { return pom }

// Broker is one running (or killed) broker with its data in a directory of the test.
type Broker struct {
	t      testing.TB
	dir    string
	java   string
	libs   string
	ports  struct{ plain, controller, secure int }
	secure *Security
	// node and voters place it in its cluster; extra are settings that only a cluster has.
	node   int
	voters string
	extra  []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a broker and waits until it answers. The test is skipped when Java or the jars are missing.
func Start(t testing.TB) *Broker { return start(t, false) }

// StartSecure is Start with a second listener that demands TLS and SASL; see Broker.Security.
func StartSecure(t testing.TB) *Broker { return start(t, true) }

// Addr is the plain listener, host:port.
func (b *Broker) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.ports.plain) }

func start(t testing.TB, secure bool) *Broker {
	t.Helper()
	b := newBroker(t, 1)
	b.voters = b.vote()
	if secure {
		b.secure = newSecurity(t, b.dir, fmt.Sprintf("127.0.0.1:%d", b.ports.secure))
	}
	b.prepare()
	b.Restart()
	return b
}

// newBroker chooses a place and ports for a broker that is not prepared yet.
func newBroker(t testing.TB, node int) *Broker {
	t.Helper()
	b := &Broker{t: t, node: node, java: findJava(t), libs: findLibs(t), dir: t.TempDir()}
	b.ports.plain, b.ports.controller, b.ports.secure = loopback.FreePort(t), loopback.FreePort(t), loopback.FreePort(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", b, b.logTail())
		}
	})
	t.Cleanup(b.Kill)
	return b
}

// vote is how a broker's controller is named among the voters.
func (b *Broker) vote() string { return fmt.Sprintf("%d@127.0.0.1:%d", b.node, b.ports.controller) }

// prepare writes the settings and formats the storage.
func (b *Broker) prepare() {
	b.t.Helper()
	b.write("server.properties", b.properties())
	b.write("log4j2.properties", string(log4jProperties))
	b.format()
}

// Restart starts the broker again on its old data and ports, and waits until it answers.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Launch()
	b.await()
}

// Launch is Restart without the wait.
func (b *Broker) Launch() {
	b.t.Helper()
	out, err := os.OpenFile(b.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.t.Fatalf("opening the broker's log: %v", err)
	}
	defer out.Close()
	b.cmd = b.javaCommand("-Xms256m", "-Xmx512m", "-Dlog4j2.configurationFile="+b.path("log4j2.properties"),
		"kafka.Kafka", b.path("server.properties"))
	b.cmd.Stdout, b.cmd.Stderr = out, out
	if err := b.cmd.Start(); err != nil {
		b.t.Fatalf("starting kafka: %v", err)
	}
	b.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(b.cmd, b.exited)
}

// Kill kills the broker (SIGKILL) and waits until it is gone. Harmless when it already is.
func (b *Broker) Kill() {
	if b.cmd == nil || b.cmd.Process == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
}

// Pause freezes the broker (SIGSTOP); Resume thaws it.
func (b *Broker) Pause() { _ = b.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume thaws a paused broker.
func (b *Broker) Resume() { _ = b.cmd.Process.Signal(syscall.SIGCONT) }

// await waits for an open port of a living process. Clients wait for metadata themselves.
func (b *Broker) await() {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		conn, err := net.DialTimeout("tcp", b.Addr(), time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-b.exited:
			b.t.Fatalf("kafka ended at its start:\n%s", b.logTail())
		case <-deadline:
			b.t.Fatalf("kafka did not start within %s:\n%s", patience, b.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (b *Broker) properties() string {
	listeners := fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", b.ports.plain)
	if b.secure != nil {
		listeners += fmt.Sprintf(",SECURE://127.0.0.1:%d", b.ports.secure)
	}
	lines := []string{
		string(serverProperties),
		fmt.Sprintf("listeners=%s,CONTROLLER://127.0.0.1:%d", listeners, b.ports.controller),
		"advertised.listeners=" + listeners,
		fmt.Sprintf("node.id=%d", b.node),
		"controller.quorum.voters=" + b.voters,
		"log.dirs=" + b.path("data"),
	}
	lines = append(lines, b.extra...) // a later line counts before an earlier one
	if b.secure != nil {
		lines = append(lines, b.secure.properties()...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (b *Broker) format() {
	b.t.Helper()
	args := []string{"-Xmx128m", "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", b.path("server.properties")}
	if b.secure != nil {
		args = append(args, b.secure.scramArgs()...)
	}
	if out, err := b.javaCommand(args...).CombinedOutput(); err != nil {
		b.t.Fatalf("formatting kafka's storage: %v\n%s", err, out)
	}
}

func (b *Broker) javaCommand(args ...string) *exec.Cmd {
	common := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(b.libs, "*")}
	cmd := exec.CommandContext(context.Background(), b.java, append(common, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // dies with the test, whatever ends it
	return cmd
}

// LogFile is the file that the broker writes its log to.
func (b *Broker) LogFile() string { return b.path("broker.log") }

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

func (b *Broker) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(content), 0o600); err != nil {
		b.t.Fatalf("writing %s: %v", name, err)
	}
}

func (b *Broker) logTail() string {
	raw, err := os.ReadFile(b.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-8000):])
}

func findJava(t testing.TB) string {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("SKIPPED on a real Kafka: no java on the PATH (a JDK 17 and Maven are needed, then: make kafka)")
	}
	return java
}

// findLibs looks for .tools/kafka/libs beside the module's go.mod.
func findLibs(t testing.TB) string {
	t.Helper()
	libs, err := Libs()
	if err != nil {
		t.Skipf("SKIPPED on a real Kafka: %v (to fetch them: make kafka)", err)
	}
	return libs
}

// Libs returns the folder of the broker's jars, or an error that says what is missing.
func Libs() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
	}
	libs := filepath.Join(dir, ".tools", "kafka", "libs")
	if found, _ := filepath.Glob(filepath.Join(libs, "kafka_*.jar")); len(found) == 0 {
		return "", fmt.Errorf("no kafka jars in %s", filepath.Join(".tools", "kafka", "libs"))
	}
	return libs, nil
}
