package bench

import (
	"context"
	"errors"
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
	// Visited is how many of the links are visited, scattered over all of them; 0: all.
	Visited int
	// Fill has the links written straight to the log, as a writer would, instead of made through the API.
	Fill bool
	// GrowthFrom, if above 0, is how many links a second node holds, with a log of its own, that is measured in the same rounds:
	// what a redirect costs there, and what it costs on the first when as many of its links are visited.
	GrowthFrom int
	// Beside are further servers, already running on this machine, that are loaded in the same rounds.
	Beside []Peer
}

// RedirectResult is what a redirect costs, beside nginx when it is there.
type RedirectResult struct {
	Hoplog RedirectServer `json:"hoplog"`
	// Nginx has the machine for itself. NginxBusy shares it with a log and a click sink that take as many clicks as the redirect
	// node made.
	Nginx     *RedirectServer `json:"nginx,omitempty"`
	NginxBusy *RedirectServer `json:"nginx_busy,omitempty"`
	// Few is the node when as many links are visited as Small holds, which is a second node.
	Few    *RedirectServer  `json:"hoplog_few_visited,omitempty"`
	Small  *RedirectServer  `json:"hoplog_small,omitempty"`
	Beside []RedirectServer `json:"beside,omitempty"`
	// Without says why there is no nginx.
	Without string         `json:"without_nginx,omitempty"`
	Ratios  RedirectRatios `json:"ratios"`

	Links        int        `json:"links"`
	Visited      int        `json:"links_visited"`
	SmallLinks   int        `json:"links_of_small_node,omitempty"`
	MadeBy       string     `json:"links_made_by"`            // api, or log: written straight to it
	Events       int        `json:"events"`                   // in the log, of links
	CreatedPerS  float64    `json:"links_created_per_second"` // while making the links
	Checked      int        `json:"links_checked"`            // that their Location is what was created
	MemoryMiB    float64    `json:"memory_mib,omitempty"`     // of the redirect node after the load
	DiskBytes    float64    `json:"disk_bytes_per_link,omitempty"`
	FilterBytes  float64    `json:"filter_bytes_per_link,omitempty"` // in memory
	HeapBytes    float64    `json:"heap_bytes_per_link,omitempty"`   // in memory before the load, the heap of a node without links and the cache of blocks taken off
	ReadySeconds float64    `json:"ready_seconds,omitempty"`         // from the node's start on an empty disk to ready, all links followed
	AgainSeconds float64    `json:"ready_again_seconds,omitempty"`   // from its start on the disk that it left
	Empty        NodeMemory `json:"memory_without_links"`
	Again        NodeMemory `json:"memory_started_again"`
	Floors       []Floor    `json:"floors,omitempty"`
}

// RedirectRatios compare hoplog with nginx; 0: there is none.
type RedirectRatios struct {
	CPU            float64 `json:"cpu"`
	Throughput     float64 `json:"throughput"`
	ThroughputBusy float64 `json:"throughput_busy"`
	HalfP99        float64 `json:"half_load_p99"`
	HalfP99Busy    float64 `json:"half_load_p99_busy"`
	// Growth is what a redirect costs on the node in units of the second, smaller node's, with as many links visited.
	Growth float64 `json:"growth_cpu,omitempty"`
}

// RedirectServer is one server's figures: medians, and the rounds that they are of.
type RedirectServer struct {
	Name      string          `json:"name"`
	PerSecond float64         `json:"requests_per_second"`
	CPU       float64         `json:"cpu_us_per_request"` // 0: not known
	P50MS     float64         `json:"p50_ms"`
	P99MS     float64         `json:"p99_ms"`
	Hits      float64         `json:"memory_hits,omitempty"` // share of look-ups that hoplog answered from memory
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
	Hits      float64 `json:"memory_hits,omitempty"`
	LoadCPU   float64 `json:"load_cpu_us_per_request"`
	Latencies []Bin   `json:"latencies"`
}

// What RedirectResult.MadeBy says.
const (
	madeByAPI  = "api"
	madeByFill = "log"
)

// checkLinks is how many links are visited one by one before the load.
const checkLinks = 200

// Redirect measures a redirect node that is a process of its own, while the log and the click sink work in another beside
// it. With ErrWrong there is a result.
func Redirect(ctx context.Context, cfg RedirectConfig) (_ *RedirectResult, err error) {
	if cfg.Visited <= 0 || cfg.Visited > cfg.Links {
		cfg.Visited = cfg.Links
	}
	result := &RedirectResult{Links: cfg.Links, Visited: cfg.Visited}
	s, err := cfg.build(ctx, result)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var small *scene
	if cfg.GrowthFrom > 0 {
		if small, err = cfg.buildSmall(ctx, result); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, small.stop()) }()
	}
	if err := cfg.rounds(ctx, s, small, result); err != nil {
		return result, err
	}
	if s.node != nil {
		result.MemoryMiB = memoryOf(s.node.pid())
	}
	return result, nil
}

// buildSmall makes the second node.
func (cfg *RedirectConfig) buildSmall(ctx context.Context, result *RedirectResult) (*scene, error) {
	small := *cfg
	small.Links, small.Fill = min(cfg.GrowthFrom, cfg.Links), true
	result.SmallLinks = small.Links
	made := &RedirectResult{}
	s, err := small.build(ctx, made)
	result.Checked += made.Checked
	return s, err
}
