package shared_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/readmodels/redirects"
	"github.com/hoplog/hoplog/readmodels/redirects/shared"
	"github.com/hoplog/hoplog/readmodels/redirects/shared/redistest"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	benchLinks   = 50_000
	benchWorkers = 16 // as many as look up for a redirect node
)

// BenchmarkLookup measures what a miss of memory costs: in the store, whose blocks are in memory; at a Redis on the loopback;
// and from what client-side caching has.
func BenchmarkLookup(b *testing.B) {
	server := redistest.Start(b)
	log := runnertest.NewLog(eventlog.EventsLink, 4)
	keys := make([][]byte, benchLinks)
	for i := range keys {
		code := fmt.Sprintf("c%06x", uint32(i)*2654435761)
		keys[i] = keyOf(code)
		log.Create("acme", host, code, &pb.LinkContent{Target: targetOf(code, 1)})
	}
	store := open(b, redirects.Config{Source: log, Memory: 1})
	must(b, store.RunToEnd(context.Background()))
	writer := connect(b, server, shared.Config{})
	var all sync.WaitGroup
	for w := range benchWorkers {
		all.Go(func() {
			for i := w; i < benchLinks; i += benchWorkers {
				link, err := store.Lookup(keys[i])
				if err == nil {
					err = writer.Put(context.Background(), keys[i], link)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.Run("store", func(b *testing.B) {
		perOp(b, func(i int) bool { r, err := store.Load(keys[i*7919%benchLinks]); return r != nil && err == nil })
	})
	b.Run("redis", func(b *testing.B) {
		tier := connect(b, server, shared.Config{Memory: 1 << 20})
		perOp(b, func(i int) bool { return tier.Get(keys[i*7919%benchLinks]) != nil })
	})
	b.Run("tracked", func(b *testing.B) {
		tier := connect(b, server, shared.Config{})
		for i := range 1000 {
			tier.Get(keys[i])
		}
		perOp(b, func(i int) bool { return tier.Get(keys[i%1000]) != nil })
	})
}

// perOp measures f on all workers: the median and the 99th percentile of what one waits, and processor time of this process.
func perOp(b *testing.B, f func(i int) bool) {
	var all sync.WaitGroup
	var next atomic.Int64
	took := make([][]time.Duration, benchWorkers)
	cpu := cpuTime()
	b.ResetTimer()
	for w := range benchWorkers {
		all.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				began := time.Now()
				if !f(i) {
					b.Error("no answer")
				}
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	report(b, slices.Concat(took...))
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTrouble measures what look-ups of a store that is behind wait while its Redis is well, frozen, and killed: from the
// moment on when it happens, with the settings of a node.
func BenchmarkTrouble(b *testing.B) {
	for _, c := range []struct {
		name    string
		trouble func(s *redistest.Server)
	}{{"well", func(*redistest.Server) {}}, {"frozen", (*redistest.Server).Freeze}, {"killed", (*redistest.Server).Kill}} {
		b.Run(c.name, func(b *testing.B) {
			server := redistest.Start(b)
			log := runnertest.NewLog(eventlog.EventsLink, 4)
			for i := range 1000 {
				log.Create("acme", host, worldCode(i), &pb.LinkContent{Target: targetOf(worldCode(i), 1)})
			}
			tier := run(b, shared.Config{URL: "redis://" + server.Addr, Timeout: 50 * time.Millisecond})
			inUse(b, tier)
			store := open(b, redirects.Config{Source: log, Shared: tier, Memory: 1})
			must(b, store.RunToEnd(context.Background()))
			c.trouble(server)
			perOp(b, func(i int) bool {
				time.Sleep(time.Millisecond) // sixteen thousand visits a second
				r, err := store.Load(keyOf(worldCode(i % 1000)))
				return r != nil && err == nil
			})
			s := tier.Status()
			b.ReportMetric(float64(s.Failed), "failures")
		})
	}
}
