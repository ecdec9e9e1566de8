package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// RedirectConfig is how many links are visited, and how.
type RedirectConfig struct {
	Setup
	Links       int
	HotMiB      int // of links that the node keeps in memory; 0: its default
	Connections int
	During      time.Duration // of each part of a round
	Rounds      int
	// Beside are further servers, already running on this machine, that are loaded in the same rounds.
	Beside []Peer
}

// RedirectResult is what a redirect costs, beside nginx when it is there.
type RedirectResult struct {
	Hoplog RedirectServer `json:"hoplog"`
	// Nginx has the machine for itself. NginxBusy shares it with a log and a click sink that take as many clicks as the redirect
	// node made.
	Nginx     *RedirectServer  `json:"nginx,omitempty"`
	NginxBusy *RedirectServer  `json:"nginx_busy,omitempty"`
	Beside    []RedirectServer `json:"beside,omitempty"`
	// Without says why there is no nginx.
	Without string         `json:"without_nginx,omitempty"`
	Ratios  RedirectRatios `json:"ratios"`

	Links        int     `json:"links"`
	MemoryMiB    float64 `json:"memory_mib,omitempty"` // of the redirect node after the load
	DiskBytes    float64 `json:"disk_bytes_per_link,omitempty"`
	ReadySeconds float64 `json:"ready_seconds,omitempty"`       // from the node's start on an empty disk to ready, all links followed
	AgainSeconds float64 `json:"ready_again_seconds,omitempty"` // from its start on the disk that it left
	CreatedPerS  float64 `json:"links_created_per_second"`      // while making the links, in batches
	Checked      int     `json:"links_checked"`                 // that their Location is what was created
	Floors       []Floor `json:"floors,omitempty"`
}

// RedirectRatios compare hoplog with nginx; 0: there is none.
type RedirectRatios struct {
	CPU            float64 `json:"cpu"`
	Throughput     float64 `json:"throughput"`
	ThroughputBusy float64 `json:"throughput_busy"`
	HalfP99        float64 `json:"half_load_p99"`
	HalfP99Busy    float64 `json:"half_load_p99_busy"`
}

// RedirectServer is one server's figures: medians, and the rounds that they are of.
type RedirectServer struct {
	Name      string          `json:"name"`
	PerSecond float64         `json:"requests_per_second"`
	CPU       float64         `json:"cpu_us_per_request"` // 0: not known
	P50MS     float64         `json:"p50_ms"`
	P99MS     float64         `json:"p99_ms"`
	Half      *RedirectHalf   `json:"half_load,omitempty"`
	Rounds    []RedirectRound `json:"rounds"`
	Halves    []RedirectRound `json:"half_load_rounds,omitempty"`
}

// RedirectHalf is a server that gets half of what hoplog can take, at a fixed rate: the medians of its rounds.
type RedirectHalf struct {
	PerSecond float64 `json:"requests_per_second"`
	CPU       float64 `json:"cpu_us_per_request"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
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
	node, err := cfg.startNodeTwice(ctx, t, links, result)
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

// startNodeTwice starts the redirect node that is measured, beside the process that holds the log: once on an empty disk,
// and once on what it left there. What was running before is measured where it is: then there is no node of ours.
func (cfg *RedirectConfig) startNodeTwice(ctx context.Context, t *target, links *linkSet, result *RedirectResult) (*process, error) {
	if t.own == nil {
		return nil, nil
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(t.dir, "node")
	args := []string{"serve", "--roles", "redirect", "--data", dir, "--kafka", t.kafka, "--redirect", ports[0], "--admin", ports[1]}
	if cfg.HotMiB > 0 {
		args = append(args, "--hot-links", fmt.Sprint(cfg.HotMiB))
	}
	cfg.Progress.tell("building the redirect node's store", 0, 0)
	began := time.Now()
	node, err := cfg.start(ctx, ports[1], nil, filepath.Join(t.dir, "node.log"), args...)
	if err != nil {
		return nil, err
	}
	result.ReadySeconds = time.Since(began).Seconds()
	t.redirect = ports[0]
	err = cfg.check(ctx, t, links, result)
	if err = errors.Join(err, node.stop()); err != nil {
		return nil, err
	}
	size, err := sizeOf(filepath.Join(dir, "redirects"))
	if err != nil {
		return nil, err
	}
	result.DiskBytes = per(float64(size), float64(cfg.Links))
	cfg.Progress.tell("starting the redirect node again", 0, 0)
	began = time.Now()
	if node, err = cfg.start(ctx, ports[1], nil, filepath.Join(t.dir, "node-again.log"), args...); err != nil {
		return nil, err
	}
	result.AgainSeconds = time.Since(began).Seconds()
	t.cpu = cpuOfPID(node.pid())
	return node, nil
}

// checkLinks is how many links are visited one by one before the load.
const checkLinks = 200

func (cfg *RedirectConfig) check(ctx context.Context, t *target, links *linkSet, result *RedirectResult) error {
	cfg.Progress.tell("checking links", 0, 0)
	step := max(1, cfg.Links/checkLinks)
	result.Checked = 0
	for i := cfg.Links - 1; i >= 0; i -= step { // the newest first: the node may still be following
		if err := t.visit(ctx, t.redirect, links.domain, links.codes[i], targetOf(i)); err != nil {
			return fmt.Errorf("%w: %w", ErrWrong, err)
		}
		result.Checked++
	}
	return nil
}
