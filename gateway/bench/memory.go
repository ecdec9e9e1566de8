package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/gateway/client"
)

// MemoryConfig is how much is created.
type MemoryConfig struct {
	Setup
	Links int
	// Settle is how long the process is left alone before its memory counts, and how long it is loaded.
	Settle time.Duration
}

// MemoryResult is what a `hoplog dev` with many links needs, and what its starts cost.
type MemoryResult struct {
	Links       int           `json:"links"`
	CreatedPerS float64       `json:"links_created_per_second"`
	DataMiB     float64       `json:"data_mib"` // on disk
	Stages      []MemoryStage `json:"stages"`
	Floors      []Floor       `json:"floors"`
}

// MemoryStage is the process at one moment.
type MemoryStage struct {
	Name      string  `json:"name"`
	MiB       float64 `json:"mib"`     // resident
	OwnMiB    float64 `json:"own_mib"` // of that, no file's
	EngineMiB float64 `json:"engine_mib"`
	// Of a start: how long until the process was ready, and what each projection and each writer had folded by then and after
	// it was left alone.
	ReadyS float64          `json:"ready_seconds,omitempty"`
	Folded map[string]int64 `json:"envelopes_folded,omitempty"`
}

// Memory measures a `hoplog dev` that holds many links.
func Memory(ctx context.Context, cfg MemoryConfig) (*MemoryResult, error) {
	t, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	result := &MemoryResult{Links: cfg.Links}
	err = cfg.measure(ctx, t, result)
	return result, errors.Join(err, t.close())
}

func (cfg *MemoryConfig) measure(ctx context.Context, t *target, result *MemoryResult) error {
	if err := cfg.create(ctx, t, result); err != nil {
		return err
	}
	if err := cfg.stage(ctx, t, result, "created", 0); err != nil {
		return err
	}
	if err := cfg.again(ctx, t, result, "started again", t.own.stop); err != nil {
		return err
	}
	if err := cfg.load(ctx, t); err != nil {
		return err
	}
	if err := cfg.stage(ctx, t, result, "loaded", 0); err != nil {
		return err
	}
	if err := cfg.again(ctx, t, result, "started after kill -9", t.own.kill); err != nil {
		return err
	}
	bytes, err := sizeOf(t.dir)
	result.DataMiB = float64(bytes) / (1 << 20)
	result.Floors = result.floorsOf()
	return err
}

const (
	memoryBatch   = 1000
	memoryClients = 8
)

func (cfg *MemoryConfig) create(ctx context.Context, t *target, result *MemoryResult) error {
	began := time.Now()
	for done := 0; done < cfg.Links; {
		group, ctx := errgroup.WithContext(ctx)
		for range memoryClients {
			links := make([]client.Link, min(memoryBatch, cfg.Links-done))
			from := done
			done += len(links)
			if len(links) > 0 {
				group.Go(func() error { return patientBatch(ctx, t.client, from, links) })
			}
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("making links: %w", err)
		}
		cfg.Progress.tell("making links", int64(done), int64(cfg.Links))
	}
	result.CreatedPerS = per(float64(cfg.Links), time.Since(began).Seconds())
	return nil
}

// patientBatch repeats a batch that a busy server does not answer in time. With the same key it is created once.
func patientBatch(ctx context.Context, api *client.API, from int, links []client.Link) error {
	key := client.Options{Key: fmt.Sprintf("%s-%d", randomKey(), from)}
	for tries := 30; ; tries-- {
		err := makeBatch(ctx, api, from, links, key)
		if err == nil || tries == 0 || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

// stage lets the process settle and notes how it is.
func (cfg *MemoryConfig) stage(ctx context.Context, t *target, result *MemoryResult, name string, ready time.Duration) error {
	cfg.Progress.tell("settling: "+name, 0, 0)
	if err := pause(ctx, cfg.Settle); err != nil {
		return err
	}
	s := MemoryStage{Name: name, MiB: memoryOf(t.own.pid()), OwnMiB: ownMemoryOf(t.own.pid()), ReadyS: ready.Seconds()}
	if child := childOf(t.own.pid()); child != 0 {
		s.EngineMiB = memoryOf(child)
	}
	var err error
	if ready > 0 {
		s.Folded, err = t.folded(ctx)
	}
	result.Stages = append(result.Stages, s)
	return err
}

// again ends the process and starts it again in the same directory.
func (cfg *MemoryConfig) again(ctx context.Context, t *target, result *MemoryResult, name string, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	cfg.Progress.tell(name, 0, 0)
	began := time.Now()
	own, err := t.begin(ctx)
	if err != nil {
		return err
	}
	t.own = own
	return cfg.stage(ctx, t, result, name, time.Since(began))
}

// load creates single links and batches, and reads what it created.
func (cfg *MemoryConfig) load(ctx context.Context, t *target) error {
	for _, batch := range []int{1, memoryBatch / 5} {
		l := load{addr: t.api, connections: 2 * memoryClients, during: cfg.Settle / 2, source: newLinkSource(t, batch), tell: func(time.Duration) { cfg.Progress.tell("loading", 0, 0) }}
		done, err := l.run(ctx)
		if err != nil {
			return err
		}
		if done.wrong > 0 {
			return fmt.Errorf("%w: %d requests of the load failed, the first: %s", ErrWrong, done.wrong, done.problem)
		}
	}
	return nil
}

// folded asks how many envelopes each projection and each writer has folded since the process began.
func (t *target) folded(ctx context.Context) (map[string]int64, error) {
	var status struct {
		Projections []struct {
			Projection string `json:"projection"`
			Applied    int64  `json:"applied"`
		} `json:"projections"`
		Writers []struct {
			Stream string `json:"stream"`
			Folded int64  `json:"folded"`
		} `json:"writers"`
	}
	if err := statusOf(ctx, t.admin, &status); err != nil {
		return nil, err
	}
	folded := map[string]int64{}
	for _, p := range status.Projections {
		folded[p.Projection] = p.Applied
	}
	for _, w := range status.Writers {
		folded["writers of "+w.Stream] += w.Folded
	}
	return folded, nil
}

// ofLinks are the folds whose stores keep their positions. The control log is folded anew at every start.
var ofLinks = []string{"redirects/1", "links/2", "writers of link"}

func (r *MemoryResult) floorsOf() []Floor {
	most, again := 0.0, int64(0)
	for _, s := range r.Stages {
		most = max(most, s.MiB)
		for _, name := range ofLinks {
			again = max(again, s.Folded[name])
		}
	}
	return []Floor{atMost("MiB resident", floorMemory, most), atMost("envelopes of links folded at a start", floorReplayed*float64(r.Links), float64(again))}
}

func (r *MemoryResult) floors() []Floor { return r.Floors }

func (r *MemoryResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "\tresident\tno file's\tClickHouse beside it\tready after\tenvelopes of links folded")
	for _, s := range r.Stages {
		ready, folded := "-", "-"
		if s.ReadyS > 0 {
			ready, folded = fmt.Sprintf("%.1f s", s.ReadyS), ""
			for _, name := range ofLinks {
				folded += fmt.Sprintf("%s %d  ", name, s.Folded[name])
			}
		}
		fmt.Fprintf(t, "%s\t%.0f MiB\t%.0f MiB\t%.0f MiB\t%s\t%s\n", s.Name, s.MiB, s.OwnMiB, s.EngineMiB, ready, folded)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s links, created at %s/s in batches; %.0f MiB on disk at the end, ClickHouse's among them.\n\n",
		thousands(float64(r.Links)), thousands(r.CreatedPerS), r.DataMiB)
	return err
}
