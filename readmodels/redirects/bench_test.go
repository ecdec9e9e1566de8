package redirects_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/schemas/pb"
)

const benchPartitions = 4

func open(tb testing.TB, dir string, source runner.Source) *redirects.Store {
	tb.Helper()
	s, err := redirects.Open(redirects.Config{Dir: dir, Source: source, Pebble: runner.PebbleOptions{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func code(i int) string { return fmt.Sprintf("c%06x", uint32(i)*2654435761) }

// benchLog is creates with one update in ten.
func benchLog(links int) *runnertest.Log {
	log := runnertest.NewLog(eventlog.EventsLink, benchPartitions)
	for i := range links {
		content := &pb.LinkContent{Target: fmt.Sprintf("https://shop.example/articles/%d?utm_source=mail&utm_campaign=winter", i), Title: "An article"}
		log.Create("acme", "s.example", code(i), content)
		if i%10 == 9 {
			content = &pb.LinkContent{Target: content.GetTarget() + "&edited=1", Title: "An article"}
			log.Update("s.example", code(i-rand.IntN(min(i, 1000)+1)), content)
		}
	}
	return log
}

// BenchmarkReplay measures from log to Pebble: out of this process's memory, and from the embedded broker in it.
func BenchmarkReplay(b *testing.B) {
	const links = 500_000
	b.Run("memory", func(b *testing.B) { replay(b, benchLog(links)) })
	b.Run("broker", func(b *testing.B) {
		broker := runnertest.Broker(b, benchPartitions)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := benchLog(links).Ship(ctx, broker); err != nil {
			b.Fatal(err)
		}
		replay(b, runner.FromLog(broker))
	})
}

func replay(b *testing.B, source runner.Source) {
	b.ReportAllocs()
	var applied uint64
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		s := open(b, b.TempDir(), source)
		runtime.GC()
		began := cpuTime()
		b.StartTimer()
		if err := s.RunToEnd(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		cpu += cpuTime() - began
		applied += s.Status().Applied
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(applied)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(applied), "cpu-µs/event")
}

// cpuTime is what this process has used on all cores: a figure that other processes beside it do not disturb much.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchSizes are the numbers of links that look-ups are measured with; -timeout and patience permitting, ten million too.
func benchSizes() []int {
	if os.Getenv("HOPLOG_BENCH_LARGE") != "" {
		return []int{10_000, 1_000_000, 10_000_000}
	}
	return []int{10_000, 1_000_000}
}

// BenchmarkFind measures look-ups, Zipf 1.07, on two goroutines: with room for all links in memory and for one in twenty, where
// what is not in memory is loaded; of unknown codes; and of links that are never in memory.
func BenchmarkFind(b *testing.B) {
	for _, links := range benchSizes() {
		dir := b.TempDir()
		log := benchLog(links)
		s := open(b, dir, log)
		if err := s.RunToEnd(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		keys := make([][]byte, links)
		for i := range keys {
			keys[i] = []byte(events.RouteKey("s.example", code(i)))
		}
		b.Logf("%d links: %.1f bytes a link on disk", links, float64(bytesIn(b, dir))/float64(links))
		for _, memory := range []struct {
			name  string
			bytes int
		}{{"all", max(1<<20, links*200)}, {"5%", max(1<<20, links*8)}} {
			b.Run(fmt.Sprintf("%d/%s", links, memory.name), func(b *testing.B) { find(b, dir, log, memory.bytes, keys, memory.name == "all") })
		}
	}
}

func find(b *testing.B, dir string, log *runnertest.Log, memory int, keys [][]byte, fill bool) {
	before := heapBytes()
	began := time.Now()
	s, err := redirects.Open(redirects.Config{Dir: dir, Source: log, Memory: memory, Pebble: runner.PebbleOptions{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	opened := time.Since(began)
	for c := s.CacheStats(); c.FilterStripes < c.AllStripes; c = s.CacheStats() {
		time.Sleep(time.Millisecond)
	}
	b.Logf("opened in %v, all keys known after %v, %.2f bytes of filter a link", opened, time.Since(began), float64(s.CacheStats().FilterBytes)/float64(len(keys)))
	get := func(key []byte) {
		r, state := s.Find(key)
		if state == redirects.NeedsStore {
			r, _ = s.Load(key)
		}
		if r == nil {
			b.Error("not found")
		}
	}
	if fill {
		for i := range keys {
			get(keys[len(keys)-1-i])
		}
	}
	visits := make([][]byte, 1<<20)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.07, 1, uint64(len(keys)-1))
	for i := range visits {
		visits[i] = keys[zipf.Uint64()*7919%uint64(len(keys))]
		get(visits[i])
	}
	stats := s.CacheStats()
	b.Logf("%d links in memory, %d bytes each; %d bytes of heap per link in all", stats.Entries, stats.Bytes/max(1, stats.Entries), (heapBytes()-before)/uint64(len(keys)))
	b.Run("visits", func(b *testing.B) {
		was := s.CacheStats()
		perOp(b, func(i int) { get(visits[i&(1<<20-1)]) })
		is := s.CacheStats()
		b.ReportMetric(float64(is.Hits-was.Hits)/float64(is.Hits+is.Misses-was.Hits-was.Misses), "hits/op")
	})
	b.Run("unknown", func(b *testing.B) {
		unknown := make([][]byte, 1<<16)
		for i := range unknown {
			unknown[i] = fmt.Appendf(nil, "s.example\x00nobody%d", i)
		}
		perOp(b, func(i int) { _, _ = s.Find(unknown[i&(1<<16-1)]) })
	})
	if !fill {
		b.Run("miss", func(b *testing.B) { perOp(b, func(i int) { get(keys[i*7919%len(keys)]) }) })
	}
}

// perOp measures f on two goroutines, in time and in processor time.
func perOp(b *testing.B, f func(i int)) {
	b.ReportAllocs()
	began := cpuTime()
	b.ResetTimer()
	var all sync.WaitGroup
	for half := range 2 {
		all.Go(func() {
			for i := half; i < b.N; i += 2 {
				f(i)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func bytesIn(b *testing.B, dir string) (sum int64) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && !e.IsDir() {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}
