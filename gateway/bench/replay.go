package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// ReplayConfig is how much is replayed, how often.
type ReplayConfig struct {
	Setup
	Events int
	Rounds int
	// Profile, if not empty, is the file that a CPU profile of the last round's fold is written to.
	Profile string
}

// ReplayResult is what building the redirects from the log costs. Broker, reader and store share this process.
type ReplayResult struct {
	Events         int           `json:"events"`
	Links          int           `json:"links"`
	RecordBytes    float64       `json:"bytes_per_record"` // value and headers, before compression
	FilledPerS     float64       `json:"events_filled_per_second"`
	PerSecond      float64       `json:"events_per_second"` // medians of the rounds
	CPU            float64       `json:"cpu_us_per_event"`
	TailPerSecond  float64       `json:"records_tailed_per_second"` // the limit: the log read, nothing decoded or kept
	TailCPU        float64       `json:"tail_cpu_us_per_record"`
	ShareOfTail    float64       `json:"share_of_tail"`
	StoreBytes     float64       `json:"store_bytes_per_link"` // on disk
	Rounds         []ReplayRound `json:"rounds"`
	LinksLookedUp  int           `json:"links_looked_up"` // in the store that was built
	Floors         []Floor       `json:"floors"`
	EventsOverTime []float64     `json:"events_per_second_over_time"` // of the last round
}

// ReplayRound is one reading of the log, without and with the fold.
type ReplayRound struct {
	TailPerSecond float64 `json:"records_tailed_per_second"`
	TailCPU       float64 `json:"tail_cpu_us_per_record"`
	PerSecond     float64 `json:"events_per_second"`
	CPU           float64 `json:"cpu_us_per_event"`
}

// Replay measures the way from the log to Pebble: envelopes are checked, decoded and folded into a new store.
func Replay(ctx context.Context, cfg ReplayConfig) (_ *ReplayResult, err error) {
	dir, err := cfg.tempDir()
	if err != nil {
		return nil, err
	}
	defer removeAll(dir, &err)
	b, err := startBroker(ctx, filepath.Join(dir, "kafka"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	began := time.Now()
	chains, err := b.fill(ctx, cfg.Events, func(done int64) { cfg.Progress.tell("filling the log", done, int64(cfg.Events)) })
	if err != nil {
		return nil, err
	}
	result := &ReplayResult{Events: cfg.Events, FilledPerS: per(float64(cfg.Events), time.Since(began).Seconds())}
	for _, c := range chains {
		result.Links += len(c.links)
		result.RecordBytes += float64(c.bytes) / float64(cfg.Events)
	}
	for round := range cfg.Rounds {
		if err := cfg.round(ctx, b, filepath.Join(dir, fmt.Sprint("store", round)), round, chains, result); err != nil {
			return result, err
		}
	}
	result.PerSecond = medianOf(result.Rounds, func(r ReplayRound) float64 { return r.PerSecond })
	result.CPU = medianOf(result.Rounds, func(r ReplayRound) float64 { return r.CPU })
	result.TailPerSecond = medianOf(result.Rounds, func(r ReplayRound) float64 { return r.TailPerSecond })
	result.TailCPU = medianOf(result.Rounds, func(r ReplayRound) float64 { return r.TailCPU })
	result.ShareOfTail = per(result.PerSecond, result.TailPerSecond)
	result.Floors = []Floor{atLeast("replayed events/s", floorReplay, result.PerSecond)}
	return result, nil
}

// nodeCache is the block cache that a process gives its stores.
const nodeCache = 256 << 20

func (cfg *ReplayConfig) round(ctx context.Context, b *broker, dir string, round int, chains []*chain, result *ReplayResult) (err error) {
	step := fmt.Sprintf("round %d of %d: ", round+1, cfg.Rounds)
	var r ReplayRound
	own := cpuOfSelf()
	if r.TailPerSecond, err = b.tailAll(ctx, func(done int64) { cfg.Progress.tell(step+"tail alone", done, int64(cfg.Events)) }); err != nil {
		return err
	}
	r.TailCPU = per(us(cpuOfSelf()-own), float64(cfg.Events))
	cache := runner.NewCache(nodeCache)
	defer cache.Unref()
	store, err := redirects.Open(redirects.Config{Dir: dir, Source: runner.FromLog(b.log), Pebble: runner.PebbleOptions{Cache: cache, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open {
			err = errors.Join(err, store.Close())
		}
		removeAll(dir, &err)
	}()
	ends, err := b.log.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		return err
	}
	runtime.GC() // what was before is not this round's to clean up
	profiled, err := cfg.profile(round)
	if err != nil {
		return err
	}
	var rates pace
	own = cpuOfSelf()
	began := time.Now()
	rates.begin(began)
	err = store.RunTo(ctx, ends, func(done int64) {
		rates.note(time.Now(), done)
		cfg.Progress.tell(step+"replay", done, int64(cfg.Events))
	})
	took := time.Since(began)
	if err = errors.Join(err, profiled()); err != nil {
		return fmt.Errorf("replaying: %w", err)
	}
	r.PerSecond, r.CPU = per(float64(cfg.Events), took.Seconds()), per(us(cpuOfSelf()-own), float64(cfg.Events))
	result.Rounds, result.EventsOverTime = append(result.Rounds, r), rates.perSecond
	if result.LinksLookedUp, err = lookUp(store, chains, cfg.Events); err != nil {
		return err
	}
	open = false
	if err := store.Close(); err != nil {
		return err
	}
	bytes, err := sizeOf(dir)
	result.StoreBytes = per(float64(bytes), float64(result.Links))
	return err
}

// profile begins the CPU profile if one is wanted of this round; the returned function ends it.
func (cfg *ReplayConfig) profile(round int) (end func() error, err error) {
	if cfg.Profile == "" || round != cfg.Rounds-1 {
		return func() error { return nil }, nil
	}
	f, err := os.Create(cfg.Profile)
	if err != nil {
		return nil, fmt.Errorf("writing a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("writing a profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// lookUps is how many links are looked up in a store that was built.
const lookUps = 2000

func lookUp(store *redirects.Store, chains []*chain, want int) (looked int, err error) {
	if status := store.Status(); status.Applied != uint64(want) || status.Voids != 0 {
		return 0, fmt.Errorf("%w: %d of %d envelopes accepted, %d void", ErrWrong, status.Applied, want, status.Voids)
	}
	for _, c := range chains {
		for i := 0; i < len(c.links); i += max(1, len(c.links)*len(chains)/lookUps) {
			code := codeOf(c.links[i].number)
			link, err := store.Lookup([]byte(events.RouteKey(chainNamespace, code)))
			if err != nil {
				return looked, err
			}
			if target := c.target(i); link == nil || link.GetTarget() != target || link.GetVersion() != uint64(c.links[i].version) {
				return looked, fmt.Errorf("%w: link %s: %v, not %s at version %d", ErrWrong, code, link, target, c.links[i].version)
			}
			looked++
		}
	}
	return looked, nil
}

// tailAll reads the whole topic and keeps nothing.
func (b *broker) tailAll(ctx context.Context, progress func(int64)) (perSecond float64, err error) {
	ends, err := b.log.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		return 0, err
	}
	from, want := map[int32]int64{}, int64(0)
	for p, end := range ends {
		from[int32(p)], want = 0, want+end
	}
	began := time.Now()
	tail, err := b.log.NewTail(eventlog.EventsLink, from, eventlog.Bare())
	if err != nil {
		return 0, err
	}
	defer tail.Close()
	for got := int64(0); got < want; progress(got) {
		batches, err := tail.Poll(ctx, 0)
		if err != nil {
			return 0, fmt.Errorf("tailing: %w", err)
		}
		for _, batch := range batches {
			got += int64(len(batch.Records))
		}
	}
	return per(float64(want), time.Since(began).Seconds()), nil
}

// pace turns a growing count into a rate per slice of time.
type pace struct {
	perSecond []float64
	last      time.Time
	done      int64
}

const paceSlice = 100 * time.Millisecond

func (p *pace) begin(now time.Time) { p.last = now }

func (p *pace) note(now time.Time, done int64) {
	if since := now.Sub(p.last); since >= paceSlice {
		p.perSecond = append(p.perSecond, float64(done-p.done)/since.Seconds())
		p.last, p.done = now, done
	}
}

func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
