package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/gateway/client"
)

// RedirectConfig is how many links are visited, and how.
type RedirectConfig struct {
	Setup
	Links       int
	Connections int
	During      time.Duration // of each round of each server
	Rounds      int
}

// RedirectResult is what a redirect costs, beside nginx when it is there.
type RedirectResult struct {
	Hoplog RedirectServer  `json:"hoplog"`
	Nginx  *RedirectServer `json:"nginx,omitempty"`
	// Without says why there is no nginx.
	Without         string  `json:"without_nginx,omitempty"`
	CPURatio        float64 `json:"cpu_ratio,omitempty"` // of CPU per redirect, to nginx
	ThroughputRatio float64 `json:"throughput_ratio,omitempty"`
	Links           int     `json:"links"`
	MemoryMiB       float64 `json:"memory_mib,omitempty"`     // of the redirect node after the load
	ReadySeconds    float64 `json:"ready_seconds,omitempty"`  // from the node's start on an empty disk to ready
	CreatedPerS     float64 `json:"links_created_per_second"` // while making the links, in batches
	Checked         int     `json:"links_checked"`            // that their Location is what was created
	Floors          []Floor `json:"floors,omitempty"`
}

// RedirectServer is one server's figures: medians, and the rounds that they are of.
type RedirectServer struct {
	PerSecond float64         `json:"requests_per_second"`
	CPU       float64         `json:"cpu_us_per_request"` // 0: not known
	P50MS     float64         `json:"p50_ms"`
	P99MS     float64         `json:"p99_ms"`
	Rounds    []RedirectRound `json:"rounds"`
}

// RedirectRound is one round of load on one server.
type RedirectRound struct {
	PerSecond float64 `json:"requests_per_second"`
	CPU       float64 `json:"cpu_us_per_request"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	LoadCPU   float64 `json:"load_cpu_us_per_request"`
	Latencies []Bin   `json:"latencies"`
}

const (
	draws          = 50_000
	redirectWarmUp = time.Second
	makingBatch    = 1000
	makingAtOnce   = 4
	nodeAgent      = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)

// Redirect measures a redirect node that is a process of its own, while the log and the click sink work in another beside
// it. With ErrWrong there is a result.
func Redirect(ctx context.Context, cfg RedirectConfig) (_ *RedirectResult, err error) {
	t, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if t.redirect == "" {
		return nil, errors.New("measuring redirects: name the redirect node's address")
	}
	result := &RedirectResult{Links: cfg.Links}
	links, err := cfg.makeLinks(ctx, t, result)
	if err != nil {
		return nil, err
	}
	node, err := cfg.startNode(ctx, t, result)
	if err != nil {
		return nil, err
	}
	if node != nil {
		defer func() { err = errors.Join(err, node.stop()) }()
	}
	if err := cfg.check(ctx, t, links, result); err != nil {
		return result, err
	}
	if err := cfg.rounds(ctx, t, links, result); err != nil {
		return result, err
	}
	if node != nil {
		result.MemoryMiB = memoryOf(node.pid())
	}
	return result, nil
}

// makeLinks creates the links that will be visited.
func (cfg *RedirectConfig) makeLinks(ctx context.Context, t *target, result *RedirectResult) ([]client.Link, error) {
	links := make([]client.Link, cfg.Links)
	began := time.Now()
	made := make(chan int)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(makingAtOnce + 1)
	group.Go(func() error {
		for done := 0; done < cfg.Links; {
			select {
			case n := <-made:
				done += n
				cfg.Progress.tell("making links", int64(done), int64(cfg.Links))
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	for from := 0; from < cfg.Links; from += makingBatch {
		batch := links[from:min(from+makingBatch, cfg.Links)]
		group.Go(func() error {
			if err := makeBatch(ctx, t.client, from, batch, client.Options{}); err != nil {
				return err
			}
			select {
			case made <- len(batch):
			case <-ctx.Done():
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("making links: %w", err)
	}
	result.CreatedPerS = per(float64(cfg.Links), time.Since(began).Seconds())
	return links, nil
}

func makeBatch(ctx context.Context, api *client.API, from int, links []client.Link, o client.Options) error {
	rows := make([]client.LinkCreate, len(links))
	for i := range rows {
		rows[i].Target = targetOf(from + i)
	}
	results, _, err := api.CreateBatch(ctx, rows, o)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Link == nil {
			return fmt.Errorf("row %d: status %d: %+v", i, r.Status, r.Error)
		}
		links[i] = *r.Link
		links[i].Target = rows[i].Target
	}
	return nil
}

// startNode starts the redirect node that is measured, beside the process that holds the log. What was running before is
// measured where it is: then there is no node of ours.
func (cfg *RedirectConfig) startNode(ctx context.Context, t *target, result *RedirectResult) (*process, error) {
	if t.own == nil {
		return nil, nil
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	cfg.Progress.tell("starting the redirect node", 0, 0)
	began := time.Now()
	node, err := cfg.start(ctx, ports[1], nil, filepath.Join(t.dir, "node.log"), "serve", "--roles", "redirect", "--data", filepath.Join(t.dir, "node"),
		"--kafka", t.kafka, "--redirect", ports[0], "--admin", ports[1])
	if err != nil {
		return nil, err
	}
	result.ReadySeconds = time.Since(began).Seconds()
	t.redirect, t.cpu = ports[0], cpuOfPID(node.pid())
	return node, nil
}

// checkLinks is how many links are visited one by one before the load.
const checkLinks = 200

func (cfg *RedirectConfig) check(ctx context.Context, t *target, links []client.Link, result *RedirectResult) error {
	cfg.Progress.tell("checking links", 0, 0)
	step := max(1, len(links)/checkLinks)
	for i := len(links) - 1; i >= 0; i -= step { // the newest first: the node may still be following
		if err := t.visit(ctx, t.redirect, links[i].Domain, links[i].Code, links[i].Target); err != nil {
			return fmt.Errorf("%w: %w", ErrWrong, err)
		}
		result.Checked++
	}
	return nil
}

func (cfg *RedirectConfig) rounds(ctx context.Context, t *target, links []client.Link, result *RedirectResult) error {
	visits := newVisitSource(links, zipfDraws(1, len(links), draws))
	beside, why, err := startNginx(ctx, cfg.Dir)
	if err != nil {
		return err
	}
	if result.Without = why; beside != nil {
		defer func() { _ = beside.stop() }() // its data is gone with it
		result.Nginx = &RedirectServer{}
	}
	for round := range cfg.Rounds {
		step := fmt.Sprintf("round %d of %d: ", round+1, cfg.Rounds)
		if beside != nil {
			if err := cfg.drive(ctx, step+"nginx", beside.addr, beside.cpu, visits, result.Nginx); err != nil {
				return err
			}
		}
		if err := cfg.drive(ctx, step+"hoplog", t.redirect, t.cpu, visits, &result.Hoplog); err != nil {
			return err
		}
	}
	result.Hoplog.sum()
	if beside != nil {
		result.Nginx.sum()
		result.CPURatio, result.ThroughputRatio = per(result.Hoplog.CPU, result.Nginx.CPU), per(result.Hoplog.PerSecond, result.Nginx.PerSecond)
		if result.Hoplog.CPU > 0 {
			result.Floors = []Floor{atMost("CPU per redirect, times nginx", floorRedirect, result.CPURatio)}
		}
	}
	return nil
}

// drive adds one round on one server, after a warm-up that is not measured.
func (cfg *RedirectConfig) drive(ctx context.Context, step, addr string, cpu cpuMeter, visits source, into *RedirectServer) error {
	l := load{addr: addr, connections: cfg.Connections, during: redirectWarmUp, source: visits}
	if _, err := l.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	l.during = cfg.During
	l.tell = func(since time.Duration) { cfg.Progress.tell(step, int64(since.Seconds()), int64(l.during.Seconds())) }
	before, err := cpu(ctx)
	if err != nil {
		return err
	}
	own := cpuOfSelf()
	done, err := l.run(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	own = cpuOfSelf() - own
	after, err := cpu(ctx)
	if err != nil {
		return err
	}
	if done.wrong > 0 {
		return fmt.Errorf("%w: %s: %d of %d requests, the first: %s", ErrWrong, step, done.wrong, done.requests, done.problem)
	}
	requests := float64(done.requests)
	into.Rounds = append(into.Rounds, RedirectRound{PerSecond: done.perSecond(), CPU: per(us(after-before), requests),
		P50MS: ms(done.latency.Quantile(0.5)), P99MS: ms(done.latency.Quantile(0.99)), MaxMS: ms(done.latency.Max()),
		LoadCPU: per(us(own), requests), Latencies: done.latency.Bins()})
	return nil
}

// sum takes the medians over the rounds.
func (s *RedirectServer) sum() {
	s.PerSecond = medianOf(s.Rounds, func(r RedirectRound) float64 { return r.PerSecond })
	s.CPU = medianOf(s.Rounds, func(r RedirectRound) float64 { return r.CPU })
	s.P50MS = medianOf(s.Rounds, func(r RedirectRound) float64 { return r.P50MS })
	s.P99MS = medianOf(s.Rounds, func(r RedirectRound) float64 { return r.P99MS })
}

// visitSource asks for links in a fixed order of draws.
type visitSource struct {
	requests [][]byte
	next     int
}

func newVisitSource(links []client.Link, drawn []int) *visitSource {
	s := &visitSource{requests: make([][]byte, len(drawn))}
	for i, n := range drawn {
		s.requests[i] = fmt.Appendf(nil, "GET /%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", links[n].Code, links[n].Domain, nodeAgent)
	}
	return s
}

func (s *visitSource) request(dst []byte, _ int) []byte {
	if s.next++; s.next == len(s.requests) {
		s.next = 0
	}
	return append(dst, s.requests[s.next]...)
}

func (s *visitSource) answered(_, status int, _ []byte) (right, wrong int) {
	if status == http.StatusFound {
		return 1, 0
	}
	return 0, 1
}
