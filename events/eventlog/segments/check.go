package segments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says what is checked, and against what.
type Config struct {
	Dir       string // the broker's files
	Aside     string // where copies of what is cut or replaced are kept
	ClusterID string // the broker's own
	// Prefix is that of the topics that are checked; others belong to somebody else.
	Prefix string
	// Settings are those that these topics must have for their records to be safe.
	Settings map[string]map[string]string
	// Forever are the topics that are never trimmed.
	Forever []string
	// Acknowledged is what the broker was last known to hold; nil: not recorded.
	Acknowledged Acknowledged
	// Progress, if not nil, hears how many bytes are read of how many. It is called by one goroutine at a time.
	Progress func(done, total int64)
	Logger   *slog.Logger
	Now      time.Time
}

// Report is what a check found.
type Report struct {
	Partitions []Found
	Bytes      int64 // read
}

// Found is a partition as the broker has to find it.
type Found struct {
	Topic     string
	Partition int32
	Span
}

// workers is how many partitions are read at a time.
const workers = 2

// Check reads all files, cuts torn tails and makes again what can be made again. Damage is an ErrDamaged, and then nothing
// has been changed.
func Check(ctx context.Context, cfg Config) (*Report, error) {
	partitions, damages, err := survey(&cfg)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	for _, p := range partitions {
		bytes, err := p.list()
		if err != nil {
			return nil, err
		}
		report.Bytes += bytes
	}
	found, err := readAll(ctx, partitions, newTeller(report.Bytes, cfg.Progress))
	if err != nil {
		return nil, err
	}
	if damages = append(damages, found...); len(damages) > 0 {
		return nil, refusal(cfg.Dir, damages)
	}
	if err := settle(&cfg, partitions); err != nil {
		return nil, err
	}
	for _, p := range partitions {
		report.Partitions = append(report.Partitions, Found{p.topic, p.number, Span{p.start(), p.end()}})
	}
	return report, nil
}

// readAll checks the partitions, a few at a time, and returns the first damage of each, sorted.
func readAll(ctx context.Context, partitions []*partition, t *teller) (damages []*Damage, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, p := range partitions {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d, err := p.check(t.add)
			if d != nil {
				mu.Lock()
				defer mu.Unlock()
				damages = append(damages, d)
			}
			return err
		})
	}
	err = group.Wait()
	slices.SortFunc(damages, func(a, b *Damage) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return damages, err
}

// settle makes the files such that the broker finds nothing to cut.
func settle(cfg *Config, partitions []*partition) error {
	k := &keeper{dir: cfg.Dir, aside: cfg.Aside, logger: cfg.Logger, now: cfg.Now}
	for _, name := range framedLogs {
		if err := k.framed(filepath.Join(cfg.Dir, name)); err != nil {
			return err
		}
	}
	for _, name := range sideFiles {
		if err := k.sideFile(filepath.Join(cfg.Dir, name)); err != nil {
			return err
		}
	}
	for _, p := range partitions {
		if err := errors.Join(k.cut(p), k.dropEmpty(p)); err != nil {
			return err
		}
		if err := k.derive(p); err != nil {
			return err
		}
	}
	return nil
}

func partitionDir(dir, topic string, number int32) string {
	return filepath.Join(dir, "partitions", fmt.Sprintf("%s-%d", url.PathEscape(topic), number))
}

// teller adds up progress.
type teller struct {
	mu          sync.Mutex
	done, total int64
	told        int64
	to          func(done, total int64)
}

func newTeller(total int64, to func(done, total int64)) *teller { return &teller{total: total, to: to} }

// tellEvery is how many bytes pass before somebody hears of them.
const tellEvery = 4 << 20

func (t *teller) add(bytes int64) {
	if t.to == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += bytes
	if t.done-t.told >= tellEvery || t.done == t.total {
		t.told = t.done
		t.to(t.done, t.total)
	}
}
