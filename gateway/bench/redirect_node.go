package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scene is a redirect node under load, with the log and the click sink in a process beside it.
type scene struct {
	*target
	links *linkSet
	node  *process // nil: it was running before
	addr  string   // of the node's redirects
	admin string   // of the node; empty: not known
	cpu   cpuMeter
}

func (s *scene) stop() (err error) {
	if s.node != nil {
		err = s.node.stop()
	}
	return errors.Join(err, s.close())
}

// build makes the links and starts the redirect node that will be measured: once on an empty disk, and once on what it left
// there. What was running before is measured where it is: then there is no node of ours.
func (cfg *RedirectConfig) build(ctx context.Context, result *RedirectResult) (_ *scene, err error) {
	t, err := cfg.openFor(ctx)
	if err != nil {
		return nil, err
	}
	s := &scene{target: t, addr: t.redirect, admin: t.admin, cpu: t.cpu}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.addr == "" {
		return nil, errors.New("measuring redirects: name the redirect node's address")
	}
	if t.own != nil {
		if err := cfg.startEmpty(ctx, s, result); err != nil {
			return nil, err
		}
	}
	if s.links, err = cfg.makeOrFill(ctx, t, result); err != nil {
		return nil, err
	}
	if t.own != nil {
		if err := cfg.startTwice(ctx, s, result); err != nil {
			return nil, err
		}
	}
	return s, cfg.check(ctx, s, result)
}

// startNode starts the scene's redirect node on what is in its directory.
func (cfg *RedirectConfig) startNode(ctx context.Context, s *scene, step string) (took time.Duration, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return 0, err
	}
	args := []string{"serve", "--roles", "redirect", "--data", s.nodeDir(), "--kafka", s.kafka, "--redirect", ports[0], "--admin", ports[1]}
	if cfg.HotMiB > 0 {
		args = append(args, "--hot-links", fmt.Sprint(cfg.HotMiB))
	}
	cfg.Progress.tell(step, 0, 0)
	began := time.Now()
	s.node, err = cfg.startLong(ctx, ports[1], nil, filepath.Join(s.dir, "node.log"), func(ctx context.Context) int64 {
		folded, behind := appliedBy(ctx, ports[1])
		cfg.Progress.tell(step, folded, folded+behind)
		return folded
	}, args...)
	if err != nil {
		return 0, err
	}
	s.addr, s.admin, s.cpu = ports[0], ports[1], cpuOfPID(s.node.pid())
	return time.Since(began), nil
}

func (s *scene) nodeDir() string { return filepath.Join(s.dir, "node") }

func (s *scene) stopNode() error {
	node := s.node
	s.node = nil
	return node.stop()
}

// startEmpty notes what a node without links has in memory, and leaves nothing of it.
func (cfg *RedirectConfig) startEmpty(ctx context.Context, s *scene, result *RedirectResult) error {
	if _, err := cfg.startNode(ctx, s, "starting a redirect node without links"); err != nil {
		return err
	}
	var err error
	if result.Empty, err = s.memory(ctx, cfg.Progress); err != nil {
		return err
	}
	return errors.Join(s.stopNode(), os.RemoveAll(s.nodeDir()))
}

func (cfg *RedirectConfig) startTwice(ctx context.Context, s *scene, result *RedirectResult) error {
	took, err := cfg.startNode(ctx, s, "building the redirect node's store")
	if err != nil {
		return err
	}
	result.ReadySeconds = took.Seconds()
	if err := errors.Join(cfg.check(ctx, s, result), s.stopNode()); err != nil {
		return err
	}
	size, err := sizeOf(filepath.Join(s.nodeDir(), "redirects"))
	if err != nil {
		return err
	}
	result.DiskBytes = per(float64(size), float64(cfg.Links))
	if took, err = cfg.startNode(ctx, s, "starting the redirect node again"); err != nil {
		return err
	}
	result.AgainSeconds = took.Seconds()
	if result.Again, err = s.memory(ctx, cfg.Progress); err != nil {
		return err
	}
	result.FilterBytes = per(result.Again.FilterBytes, float64(cfg.Links))
	result.HeapBytes = per((result.Again.HeapMiB-result.Empty.HeapMiB)*(1<<20), float64(cfg.Links))
	return nil
}

// check follows some of the links, one by one.
func (cfg *RedirectConfig) check(ctx context.Context, s *scene, result *RedirectResult) error {
	cfg.Progress.tell("checking links", 0, 0)
	step := max(1, cfg.Links/checkLinks)
	result.Checked = 0
	for i := cfg.Links - 1; i >= 0; i -= step { // the newest first: the node may still be following
		if err := s.visit(ctx, s.addr, s.links.domain, string(s.links.code(nil, i)), s.links.target(i)); err != nil {
			return fmt.Errorf("%w: %w", ErrWrong, err)
		}
		result.Checked++
	}
	return nil
}

// NodeMemory is what a redirect node has in memory.
type NodeMemory struct {
	OwnMiB      float64 `json:"own_mib"`    // resident, no file's
	HeapMiB     float64 `json:"heap_mib"`   // in use after a collection, but for the blocks
	BlocksMiB   float64 `json:"blocks_mib"` // of its stores, at most --cache
	HotLinks    float64 `json:"hot_links"`
	HotMiB      float64 `json:"hot_mib"`
	FilterBytes float64 `json:"filter_bytes"` // of the filter over all codes
}

const (
	metricHotLinks   = `hoplog_redirect_memory_links`
	metricHotBytes   = `hoplog_redirect_memory_bytes{part="links"}`
	metricFilter     = `hoplog_redirect_memory_bytes{part="filter"}`
	metricBlocks     = `hoplog_redirect_memory_bytes{part="blocks"}`
	metricLearnt     = `hoplog_redirect_filter_known`
	metricHits       = `hoplog_redirect_cache_lookups_total{result="hit"}`
	metricMisses     = `hoplog_redirect_cache_lookups_total{result="miss"}`
	metricHeap       = `go_memstats_heap_alloc_bytes`
	learntWithin     = time.Minute
	collectedProfile = "/debug/pprof/heap?gc=1"
)

// memory waits until the node's filter is whole, has its garbage collected, and asks.
func (s *scene) memory(ctx context.Context, progress Progress) (m NodeMemory, err error) {
	var figures map[string]float64
	for began := time.Now(); ; {
		if figures, err = metricsOf(ctx, s.admin); err != nil {
			return m, err
		}
		if figures[metricLearnt] == 1 {
			break
		}
		if time.Since(began) > learntWithin {
			return m, fmt.Errorf("the redirect node has read %.0f %% of its codes for its filter after %v", 100*figures[metricLearnt], learntWithin)
		}
		progress.tell("waiting for the filter over all codes", int64(100*figures[metricLearnt]), 100)
		if err := pause(ctx, readyPoll); err != nil {
			return m, err
		}
	}
	if _, err := askAdmin(ctx, s.admin, collectedProfile); err != nil {
		return m, err
	}
	if figures, err = metricsOf(ctx, s.admin); err != nil {
		return m, err
	}
	return NodeMemory{OwnMiB: ownMemoryOf(s.node.pid()), HeapMiB: (figures[metricHeap] - figures[metricBlocks]) / (1 << 20),
		BlocksMiB: figures[metricBlocks] / (1 << 20), HotLinks: figures[metricHotLinks],
		HotMiB: figures[metricHotBytes] / (1 << 20), FilterBytes: figures[metricFilter]}, nil
}

// appliedBy asks a redirect node how many envelopes of links it has folded, and how many are left; 0 if it does not say.
func appliedBy(ctx context.Context, admin string) (folded, behind int64) {
	var status processStatus
	if statusOf(ctx, admin, &status) != nil {
		return 0, 0
	}
	for _, p := range status.Projections {
		if strings.HasPrefix(p.Projection, "redirects/") {
			folded, behind = p.Applied, sumOf(p.Lag)
		}
	}
	return folded, behind
}
