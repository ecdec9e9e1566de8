package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// CreateConfig is how much is created.
type CreateConfig struct {
	Setup
	During       time.Duration // of each phase
	Clients      int           // connections of single creates
	Rate         float64       // single creates per second in the phase with a fixed rate
	Batch        int           // links in one batch, 1000 at most
	BatchClients int           // connections of batches
}

// CreateResult is what creating links costs.
type CreateResult struct {
	Phases []CreatePhase `json:"phases"`
	Limits CreateLimits  `json:"limits"`
	Floors []Floor       `json:"floors"`
	Truth  CreateTruth   `json:"truth"`
}

// CreatePhase is one way of creating.
type CreatePhase struct {
	Name        string    `json:"name"`
	Connections int       `json:"connections"`
	Seconds     float64   `json:"seconds"`
	Links       int       `json:"links"`
	Errors      int       `json:"errors"`
	FirstError  string    `json:"first_error,omitempty"`
	PerSecond   float64   `json:"links_per_second"`
	P50MS       float64   `json:"p50_ms"` // of a request
	P99MS       float64   `json:"p99_ms"`
	MaxMS       float64   `json:"max_ms"`
	ServerCPU   float64   `json:"server_cpu_us_per_link"` // of the hoplog process, its broker included; 0: not known
	LoadCPU     float64   `json:"load_cpu_us_per_link"`
	LimitRatio  float64   `json:"share_of_two_hops"` // of what two hops alone allow with as many under way; 0: not compared
	Rates       []float64 `json:"links_per_second_over_time"`
	Latencies   []Bin     `json:"latencies"`
}

// CreateLimits are what the disk and the log alone allow, measured in the same run.
type CreateLimits struct {
	Fsync  Disk   `json:"fsync_4_kib"`
	Single Hops   `json:"two_hops_single"`
	Batch  Hops   `json:"two_hops_batch"`
	Where  string `json:"where"`
}

// Floor is a figure that the product shall not fall below (or, for a cost, rise above).
type Floor struct {
	Name     string  `json:"name"`
	Bound    float64 `json:"bound"`
	Measured float64 `json:"measured"`
	Kept     bool    `json:"kept"`
}

// Floors of two idle cores with the load beside it.
const (
	floorSingle   = 6_000
	floorBatch    = 30_000
	floorRedirect = 1.3 // times nginx
	floorReplay   = 400_000
	floorMemory   = 600  // MiB, of everything but ClickHouse in one process, with a million links
	floorBan      = 50   // ms
	floorTakeover = 3    // seconds, with a session of 1 s; one and a half sessions, if that is more
	floorReplayed = 0.01 // of the log, folded again at a start, also after a crash

	// Milliseconds, at the default rate: embedded, on one Kafka broker, on a cluster of three with a copy on each.
	floorLate        = 15
	floorLateKafka   = 30
	floorLateCluster = 60
)

func atLeast(name string, bound, measured float64) Floor {
	return Floor{name, bound, measured, measured >= bound}
}

func atMost(name string, bound, measured float64) Floor {
	return Floor{name, bound, measured, measured <= bound}
}

// createWarmUp is how long links are created before anything is measured.
const createWarmUp = time.Second

// Create measures creating links one by one, one by one at a fixed rate, and in batches. With ErrWrong there is a result.
func Create(ctx context.Context, cfg CreateConfig) (*CreateResult, error) {
	result := &CreateResult{}
	var err error
	if result.Limits, err = cfg.limits(ctx); err != nil {
		return nil, err
	}
	t, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	err = cfg.measure(ctx, t, result)
	return result, errors.Join(err, t.close())
}

// limits measures before anything of ours runs beside it.
func (cfg *CreateConfig) limits(ctx context.Context) (l CreateLimits, err error) {
	dir, err := cfg.tempDir()
	if err != nil {
		return l, err
	}
	defer removeAll(dir, &err)
	cfg.Progress.tell("limits: the disk alone, the log alone", 0, 0)
	l.Where = "an embedded broker in the load's process"
	if l.Fsync, err = measureDisk(dir); err != nil {
		return l, err
	}
	b, err := startBroker(ctx, filepath.Join(dir, "kafka"))
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if l.Single, err = b.measureHops(ctx, cfg.Clients); err != nil {
		return l, err
	}
	l.Batch, err = b.measureHops(ctx, cfg.BatchClients*cfg.Batch)
	return l, err
}

func (cfg *CreateConfig) measure(ctx context.Context, t *target, result *CreateResult) error {
	before, err := t.count(ctx)
	if err != nil {
		return err
	}
	links := newLinkSource(t, 1)
	batches := newLinkSource(t, cfg.Batch)
	phases := []struct {
		load
		limit float64
		name  string
	}{
		{load{connections: cfg.Clients, during: createWarmUp, source: links}, 0, "warm-up"},
		{load{connections: cfg.Clients, during: cfg.During, source: links}, result.Limits.Single.PerSecond, "single"},
		{load{connections: max(1, min(cfg.Clients, int(cfg.Rate))), during: cfg.During, source: links, rate: cfg.Rate}, 0, fmt.Sprintf("single, %s/s", thousands(cfg.Rate))},
		{load{connections: cfg.BatchClients, during: cfg.During, source: batches}, result.Limits.Batch.PerSecond, fmt.Sprintf("batches of %d", cfg.Batch)},
	}
	for i, p := range phases {
		phase, err := cfg.phase(ctx, t, p.load, p.name)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the warm-up counts for the truth only
		}
		phase.LimitRatio = per(phase.PerSecond, p.limit)
		result.Phases = append(result.Phases, phase)
	}
	result.Floors = cfg.floors(result.Phases)
	cfg.Progress.tell("verifying", 0, 0)
	result.Truth, err = t.verify(ctx, before, links, batches)
	if err != nil {
		return err
	}
	return result.judge()
}

// floors are those of the embedded broker; on a Kafka, which has two cores to share with, only the latency has one.
func (cfg *CreateConfig) floors(phases []CreatePhase) []Floor {
	single, steady, batch := phases[0], phases[1], phases[2]
	late := atMost("p99 in ms, "+steady.Name, cfg.floorLate(), steady.P99MS)
	if cfg.Kafka != "" {
		return []Floor{late}
	}
	return []Floor{atLeast("single creates/s", floorSingle, single.PerSecond), late, atLeast("links/s in batches", floorBatch, batch.PerSecond)}
}

func (cfg *CreateConfig) floorLate() float64 {
	switch {
	case cfg.Kafka == "":
		return floorLate
	case strings.Contains(cfg.Kafka, ","):
		return floorLateCluster
	}
	return floorLateKafka
}

func (cfg *CreateConfig) phase(ctx context.Context, t *target, l load, name string) (CreatePhase, error) {
	l.addr = t.api
	l.tell = func(since time.Duration) {
		cfg.Progress.tell("creating: "+name, int64(since.Seconds()), int64(l.during.Seconds()))
	}
	before, err := t.cpu(ctx)
	if err != nil {
		return CreatePhase{}, err
	}
	own := cpuOfSelf()
	done, err := l.run(ctx)
	if err != nil {
		return CreatePhase{}, fmt.Errorf("creating links, %s: %w", name, err)
	}
	own = cpuOfSelf() - own
	after, err := t.cpu(ctx)
	if err != nil {
		return CreatePhase{}, err
	}
	right := float64(done.right)
	return CreatePhase{Name: name, Connections: l.connections, Seconds: l.during.Seconds(), Links: done.right, Errors: done.wrong, FirstError: done.problem,
		PerSecond: done.perSecond(), P50MS: ms(done.latency.Quantile(0.5)), P99MS: ms(done.latency.Quantile(0.99)), MaxMS: ms(done.latency.Max()),
		ServerCPU: per(us(after-before), right), LoadCPU: per(us(own), right), Rates: done.rates, Latencies: done.latency.Bins()}, nil
}

// judge is the error for a load that was not answered right.
func (r *CreateResult) judge() error {
	for _, p := range r.Phases {
		if p.Errors > 0 {
			return fmt.Errorf("%w: %s: %d errors, the first: %s", ErrWrong, p.Name, p.Errors, p.FirstError)
		}
	}
	if len(r.Truth.Problems) > 0 {
		return fmt.Errorf("%w: %s", ErrWrong, r.Truth.Problems[0])
	}
	return nil
}
