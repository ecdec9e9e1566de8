package links_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

func benchCode(i int) string { return fmt.Sprintf("c%06x", uint32(i)*2654435761) }

// benchLog is links of one owner, created with the keys of a batch's rows.
func benchLog(n int) *runnertest.Log {
	log := newLog()
	for i := range n {
		log.Create("acme", host, benchCode(i), &pb.LinkContent{Target: fmt.Sprintf("https://shop.example/articles/%d?utm_source=mail&utm_campaign=winter", i), Title: "An article"})
	}
	return log
}

// smallBatches hands out a log as a reader gets it that keeps up: a few hundred records at a time.
type smallBatches struct{ runner.Source }

type smallTail struct{ runner.Tail }

func (s smallBatches) NewTail(topic string, from map[int32]int64) (runner.Tail, error) {
	t, err := s.Source.NewTail(topic, from)
	return smallTail{t}, err
}

const smallBatch = 400

func (t smallTail) Poll(ctx context.Context, most int) ([]eventlog.Batch, error) {
	return t.Tail.Poll(ctx, min(most, smallBatch))
}

func benchStore(b *testing.B, source runner.Source) *links.Store {
	b.Helper()
	s, err := links.Open(links.Config{Dir: b.TempDir(), Source: source, Pebble: runner.PebbleOptions{Logger: slog.New(slog.DiscardHandler)}})
	must(b, err)
	must(b, s.RunToEnd(context.Background()))
	return s
}

// BenchmarkFold measures what one created link costs the API: from log to store, flushes and compactions with it.
func BenchmarkFold(b *testing.B) {
	const n = 300_000
	source := smallBatches{benchLog(n)}
	var cpu time.Duration
	folds := 0
	for b.Loop() {
		runtime.GC()
		began := cpuTime()
		must(b, benchStore(b, source).Close())
		cpu += cpuTime() - began
		folds++
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(n*folds), "cpu-µs/link")
}

// cpuTime is what this process has used on all cores: a figure that other processes beside it do not disturb much.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScan measures a page that looks at as many rows as one may, of links in many layers, and finds nothing.
func BenchmarkScan(b *testing.B) {
	s := benchStore(b, smallBatches{benchLog(300_000)})
	defer s.Close()
	for _, q := range []links.Query{{Text: "zebra"}, {Domain: "elsewhere.example"}, {Status: "banned"}} {
		b.Run(q.Text+q.Domain+q.Status, func(b *testing.B) {
			q.Owner = "acme"
			for b.Loop() {
				if page, err := s.List(q, 1); err != nil || len(page.Links) > 0 || page.Next == "" {
					b.Fatal(page, err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	const n = 300_000
	log := benchLog(n)
	for i := 0; i < n; i += 10 {
		log.Update(host, benchCode(i), to("https://edited.example/"))
	}
	s := benchStore(b, smallBatches{log})
	defer s.Close()
	get := func(b *testing.B, code func(i int) string, want error) {
		i := 0
		for b.Loop() {
			if _, err := s.Get(host, code(i%n)); !errors.Is(err, want) {
				b.Fatal(err)
			}
			i += 7919
		}
	}
	b.Run("as created", func(b *testing.B) { get(b, func(i int) string { return benchCode(i/10*10 + 1) }, nil) })
	b.Run("changed", func(b *testing.B) { get(b, func(i int) string { return benchCode(i / 10 * 10) }, nil) })
	b.Run("unknown", func(b *testing.B) { get(b, func(i int) string { return benchCode(i) + "x" }, links.ErrNotFound) })
}
