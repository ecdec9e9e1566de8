package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/loopback"
)

const (
	adminKey = "systemtest-key-0123456789abcdefghijklmnop"
	browser  = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)

// binary is the built binary: $HOPLOG_BIN, or bin/hoplog of this tree.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("HOPLOG_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "hoplog")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no binary to test: run `make build` (%v)", err)
	}
	return path
}

// process is one running hoplog.
type process struct {
	t     testing.TB
	args  []string
	env   []string
	data  string
	ports map[string]string // setting → address
	cmd   *exec.Cmd
	out   *log
	ended chan error
}

// dev prepares `hoplog dev` on free ports; start starts it.
func dev(t testing.TB, args ...string) *process {
	t.Helper()
	p := newProcess(t, append([]string{"dev"}, args...), "api", "redirect", "admin", "kafka", "clickhouse")
	p.start()
	return p
}

func newProcess(t testing.TB, args []string, listens ...string) *process {
	p := &process{t: t, args: args, data: t.TempDir(), ports: map[string]string{}, out: &log{}}
	for _, setting := range listens {
		p.ports[setting] = loopback.FreeAddr(t)
	}
	t.Cleanup(p.kill)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of hoplog %s:\n%s", strings.Join(p.args, " "), p.out.tail())
		}
	})
	return p
}

func (p *process) environment() []string {
	env := append(os.Environ(), "HOPLOG_ADMIN_KEY="+adminKey, "HOPLOG_KEY="+adminKey)
	for setting, addr := range p.ports {
		env = append(env, "HOPLOG_"+strings.ToUpper(setting)+"="+addr)
	}
	return append(append(env, "HOPLOG_SERVER=http://"+p.ports["api"]), p.env...)
}

// start starts the process and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	p.launch()
	p.ready()
}

func (p *process) launch() {
	p.t.Helper()
	cmd := exec.Command(binary(p.t), append(p.args, "--data", p.data)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environment(), p.out, p.out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.ended = cmd, make(chan error, 1)
	go func(ended chan error) { ended <- cmd.Wait() }(p.ended)
}

// patient is how long a start, or anything else that is to happen, may take: the machine may be busy with brokers that start, too.
const patient = 2 * time.Minute

func (p *process) ready() {
	p.t.Helper()
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.ended <- err
			p.t.Fatalf("hoplog %v ended at start: %v\n%s", p.args, err, p.out.tail())
		default:
		}
		if status, _ := p.get(p.ports["admin"], "/readyz"); status == http.StatusOK {
			return
		}
	}
	_, body := p.get(p.ports["admin"], "/readyz")
	p.t.Fatalf("hoplog %v is not ready after %s: %s\n%s", p.args, patient, body, p.out.tail())
}

func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended //nolint:errcheck // killed, as it says
	p.cmd = nil
}

// stop sends SIGTERM and returns the exit code and how long it took.
func (p *process) stop() (code int, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		return exitCode(err), time.Since(began)
	case <-time.After(patient):
		p.t.Fatalf("still there %s after SIGTERM\n%s", patient, p.out.tail())
		return 0, 0
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// cli runs a sub-command against the process.
func (p *process) cli(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(p.t), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environment(), &out, &errs
	err := cmd.Run()
	return exitCode(err), out.String(), errs.String()
}

// cliJSON runs a sub-command with --json and decodes what it prints.
func (p *process) cliJSON(into any, args ...string) (code int) {
	p.t.Helper()
	code, out, errs := p.cli(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		p.t.Fatalf("hoplog %v: exit %d, %v: %s %s", args, code, err, out, errs)
	}
	return code
}

var direct = &http.Client{
	Timeout:       time.Minute,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (p *process) get(addr, path string) (int, string) {
	resp, err := direct.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (a answer) str(field string) string { s, _ := a.body[field].(string); return s }

// api calls the command API. body is JSON text, or anything to be encoded; nil for none.
func (p *process) api(method, path string, body any, headers ...string) answer {
	p.t.Helper()
	a, err := p.tryAPI(method, path, body, headers...)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (p *process) tryAPI(method, path string, body any, headers ...string) (a answer, err error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return a, err
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, "http://"+p.ports["api"]+path, reader)
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := direct.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a = answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // what is no object stays in raw
	return a, err
}

// fields are a request's JSON.
type fields = map[string]any

func (p *process) create(f fields, headers ...string) answer {
	p.t.Helper()
	return p.api("POST", "/v1/links", f, headers...)
}

// made creates a link that must be made, and waits until the redirects serve it.
func (p *process) made(f fields) (code string) {
	p.t.Helper()
	a := p.create(f)
	if a.status != http.StatusCreated {
		p.t.Fatalf("create %v: %d %s", f, a.status, a.raw)
	}
	code = a.str("code")
	p.eventually("the redirects serve "+code, func() bool { return p.visitAs("HEAD", "/"+url.PathEscape(code)).status != http.StatusNotFound })
	return code
}

// domain is the default short domain of dev.
func (p *process) domain() string {
	_, port, _ := net.SplitHostPort(p.ports["redirect"])
	return "localhost:" + port
}

func (p *process) link(code string, tail ...string) string {
	return "/v1/links/" + p.domain() + "/" + url.PathEscape(code) + strings.Join(tail, "")
}

// visit asks the redirects for a path, byte for byte, as a browser would.
func (p *process) visit(path string, headers ...string) answer {
	p.t.Helper()
	return p.visitAs("GET", path, headers...)
}

func (p *process) visitAs(method, path string, headers ...string) answer {
	p.t.Helper()
	a, err := p.tryVisit(method, path, headers...)
	if err != nil {
		p.t.Fatalf("%s %q: %v", method, path, err)
	}
	return a
}

func (p *process) tryVisit(method, path string, headers ...string) (a answer, err error) {
	req := &http.Request{Method: method, URL: &url.URL{Scheme: "http", Host: p.ports["redirect"], Opaque: path},
		Header: http.Header{"User-Agent": {browser}}, Host: p.domain()}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), direct.Timeout)
	defer cancel()
	resp, err := direct.Transport.RoundTrip(req.WithContext(ctx)) // a client would judge the Location
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}, err
}

// eventually polls until probe is true, and returns how long that took. It waits as long as brokers and groups need that were
// killed on a busy machine: what comes at once costs nothing, and a bound that is promised is for the test to compare.
func (p *process) eventually(what string, probe func() bool) time.Duration {
	p.t.Helper()
	began := time.Now()
	for time.Since(began) < patient {
		if probe() {
			return time.Since(began)
		}
		time.Sleep(10*time.Millisecond + min(time.Since(began)/50, 90*time.Millisecond))
	}
	p.t.Fatalf("not within %s: %s", patient, what)
	return 0
}

// log keeps what a process wrote.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// tail returns the end of it.
func (l *log) tail() string {
	text := l.String()
	return text[max(0, len(text)-3000):]
}
