package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway/client"
)

// TakeoverConfig is what is taken over, and how often.
type TakeoverConfig struct {
	Setup
	Links   int
	Rounds  int
	Session time.Duration // of the writers' group
}

// TakeoverResult is how long the partitions of a killed process had no writer.
type TakeoverResult struct {
	Links       int             `json:"links"`
	CreatedPerS float64         `json:"links_created_per_second"`
	SessionS    float64         `json:"session_seconds"`
	Rounds      []TakeoverRound `json:"rounds"`
	Floors      []Floor         `json:"floors"`
}

// TakeoverRound is one kill.
type TakeoverRound struct {
	// Seconds from the kill until a create was answered, for each of the killed process's partitions.
	Seconds map[int32]float64 `json:"seconds_by_partition"`
	// Folded is how many records the survivor read back meanwhile, of all partitions.
	Folded int64 `json:"records_folded"`
}

func (r TakeoverRound) longest() (most float64) {
	for _, s := range r.Seconds {
		most = max(most, s)
	}
	return most
}

// Takeover measures the time without a writer after a kill.
func Takeover(ctx context.Context, cfg TakeoverConfig) (_ *TakeoverResult, err error) {
	cfg.Arguments = append(cfg.Arguments, "--session-timeout", cfg.Session.String())
	t, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	result := &TakeoverResult{SessionS: cfg.Session.Seconds()}
	filler := MemoryConfig{Setup: cfg.Setup, Links: cfg.Links}
	var filled MemoryResult
	if err := filler.create(ctx, t, &filled); err != nil {
		return nil, err
	}
	result.Links, result.CreatedPerS = cfg.Links, filled.CreatedPerS
	for round := range cfg.Rounds {
		r, err := cfg.round(ctx, t, round)
		if err != nil {
			return result, err
		}
		result.Rounds = append(result.Rounds, r)
	}
	most := 0.0
	for _, r := range result.Rounds {
		most = max(most, r.longest())
	}
	bound := max(floorTakeover, 1.5*cfg.Session.Seconds())
	result.Floors = []Floor{atMost("seconds until all partitions are written again", bound, most)}
	return result, nil
}

// round starts a second writer, waits until it has its share, and kills it.
func (cfg *TakeoverConfig) round(ctx context.Context, t *target, round int) (r TakeoverRound, err error) {
	step := fmt.Sprintf("round %d of %d: ", round+1, cfg.Rounds)
	ports, err := freePorts(1)
	if err != nil {
		return r, err
	}
	cfg.Progress.tell(step+"a second writer reads the log", 0, 0)
	second, err := cfg.start(ctx, ports[0], nil, filepath.Join(t.dir, "second.log"), append([]string{"serve", "--roles", "commands", "--kafka", t.kafka, "--admin", ports[0],
		"--data", filepath.Join(t.dir, "second")}, cfg.Arguments...)...)
	if err != nil {
		return r, err
	}
	killed := false
	defer func() {
		if !killed {
			err = errors.Join(err, second.stop())
		}
	}()
	written, err := cfg.balanced(ctx, t.admin, ports[0])
	if err != nil {
		return r, err
	}
	before, err := writersOf(ctx, t.admin)
	if err != nil {
		return r, err
	}
	cfg.Progress.tell(step+"kill -9", 0, 0)
	killed = true
	began := time.Now()
	if err := second.kill(); err != nil {
		return r, err
	}
	if r.Seconds, err = cfg.writtenAgain(ctx, t, written, began); err != nil {
		return r, err
	}
	after, err := writersOf(ctx, t.admin)
	for i := range after {
		r.Folded += after[i].Folded - before[i].Folded
	}
	return r, err
}

// balanceWithin bounds how long the second writer reads the log and the group shares out.
const balanceWithin = 3 * time.Minute

// balanced waits until the two processes share the partitions of links, nothing waits for them, and it has been so for a
// while. It returns the second's.
func (cfg *TakeoverConfig) balanced(ctx context.Context, first, second string) (partitions []int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, balanceWithin)
	defer cancel()
	for steady := 0; steady < 10; {
		a, errA := writersOf(ctx, first)
		b, errB := writersOf(ctx, second)
		if err := errors.Join(errA, errB, ctx.Err()); err != nil {
			return nil, fmt.Errorf("waiting for two writers: %w", err)
		}
		partitions = partitions[:0]
		idle, all := true, 0
		for i := range min(len(a), len(b)) {
			idle = idle && a[i].Next == b[i].Next // the standby has folded what the writer has
			if a[i].Stream != events.StreamLink {
				continue
			}
			if a[i].writing() != b[i].writing() {
				all++
			}
			if b[i].writing() {
				partitions = append(partitions, b[i].Partition)
			}
		}
		if steady++; !idle || len(partitions) == 0 || all < linkWriters(a) {
			steady = 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return partitions, nil
}

func linkWriters(list []writer) (n int) {
	for _, w := range list {
		if w.Stream == events.StreamLink {
			n++
		}
	}
	return n
}

// writtenAgain asks for links of each partition until one is created there.
func (cfg *TakeoverConfig) writtenAgain(ctx context.Context, t *target, partitions []int32, began time.Time) (map[int32]float64, error) {
	seconds := make([]float64, len(partitions))
	status, err := writersOf(ctx, t.admin)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, partition := range partitions {
		group.Go(func() error {
			for try := 0; ; try++ {
				key := keyOf(partition, linkWriters(status), try)
				// An answer that it is not known yet comes after two seconds; then the next is asked.
				if _, err := t.client.Create(ctx, client.LinkCreate{Target: targetOf(try)}, client.Options{Key: key}); err == nil {
					seconds[i] = time.Since(began).Seconds()
					return nil
				}
				if time.Since(began) > time.Minute {
					return fmt.Errorf("%w: partition %d has no writer a minute after the kill", ErrWrong, partition)
				}
			}
		})
	}
	err = group.Wait()
	out := map[int32]float64{}
	for i, partition := range partitions {
		out[partition] = seconds[i]
	}
	return out, err
}

// keyOf makes an idempotency key whose create goes to a partition.
func keyOf(partition int32, partitions, try int) string {
	for n := 0; ; n++ {
		key := fmt.Sprintf("%s-%d-%d", randomKey(), try, n)
		if events.PartitionOf(events.BucketOf(chainOwner, key), partitions) == partition {
			return key
		}
	}
}

// writer is what a process says of one partition's writer.
type writer struct {
	Stream    string `json:"stream"`
	Partition int32  `json:"partition"`
	Mode      string `json:"mode"`
	Next      int64  `json:"next"`
	Folded    int64  `json:"folded"`
}

func (w writer) writing() bool { return w.Mode == "writing" }

func writersOf(ctx context.Context, admin string) ([]writer, error) {
	var status struct {
		Writers []writer `json:"writers"`
	}
	return status.Writers, statusOf(ctx, admin, &status)
}

func (r *TakeoverResult) floors() []Floor { return r.Floors }

func (r *TakeoverResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "kill\tpartitions\tall written again after\trecords read back by the survivor")
	for i, round := range r.Rounds {
		fmt.Fprintf(t, "%d\t%d\t%.2f s\t%s\n", i+1, len(round.Seconds), round.longest(), thousands(float64(round.Folded)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s links; the session of a silent process is %.1f s; until the first create of every partition was answered.\n\n",
		thousands(float64(r.Links)), r.SessionS)
	return err
}
