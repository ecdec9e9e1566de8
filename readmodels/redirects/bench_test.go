package redirects_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
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

func BenchmarkLookup(b *testing.B) {
	log := benchLog(100_000)
	s := open(b, b.TempDir(), log)
	defer s.Close()
	if err := s.RunToEnd(context.Background()); err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, 100_000)
	for i := range keys {
		keys[i] = []byte(events.RouteKey("s.example", code(i)))
	}
	lookup := func(b *testing.B, next func() []byte) {
		b.ReportAllocs()
		for b.Loop() {
			if e, err := s.Lookup(next()); err != nil || e == nil {
				b.Fatal(e, err)
			}
		}
	}
	b.Run("hit", func(b *testing.B) {
		i := 0
		lookup(b, func() []byte { i++; return keys[i%1000] })
	})
	b.Run("hit/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for i := 0; p.Next(); i++ {
				if e, err := s.Lookup(keys[i%1000]); err != nil || e == nil {
					b.Fatal(e, err)
				}
			}
		})
	})
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		key := []byte(events.RouteKey("s.example", "nobody"))
		for b.Loop() {
			if e, err := s.Lookup(key); err != nil || e != nil {
				b.Fatal(e, err)
			}
		}
	})
}
