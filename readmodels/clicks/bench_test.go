package clicks

import (
	"context"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
)

// backlog puts clicks into the log: 4 partitions, blocks of 1000, 500 links, half a day.
func backlog(b *testing.B, log *eventlog.Log, clicks int) {
	n := newNode(b, log, "n1")
	for i := 0; i < clicks; i += 1000 {
		p := int32(i / 1000 % 4)
		block := n.block(p, 1, every(noon.Add(time.Duration(i)*40*time.Millisecond), 40*time.Millisecond, 1000)...)
		for j, c := range block.Clicks {
			c.LinkId = uint64((i + j*j) % 500)
		}
		n.send(p, block)
	}
}

// BenchmarkSink measures the way from the log into all tables: the time of one million clicks per operation.
func BenchmarkSink(b *testing.B) {
	const clicks = 1_000_000
	for b.Loop() {
		b.StopTimer()
		log, store := newLog(b, 4), newStore(b)
		backlog(b, log, clicks)
		b.StartTimer()
		sink := runner.NewClickSink(runner.ClickSinkConfig{Log: all(log, 4), Store: store, Logger: quiet()})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = sink.Run(ctx) }()
		for store.tables(b) != same(clicks) {
			time.Sleep(50 * time.Millisecond)
		}
		b.StopTimer()
		cancel()
		<-done
		b.StartTimer()
	}
	b.ReportMetric(clicks*float64(b.N)/b.Elapsed().Seconds(), "clicks/s")
}

// BenchmarkQuestions measures what the API asks, on one million clicks of 500 links.
func BenchmarkQuestions(b *testing.B) {
	log, store := newLog(b, 4), newStore(b)
	backlog(b, log, 1_000_000)
	startSink(b, all(log, 4), store)
	awaitTables(b, store, 1_000_000)
	ctx := context.Background()
	q := Query{LinkID: 1, From: noon.AddDate(0, 0, -20), To: noon.AddDate(0, 0, 10), Interval: Day}
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Stats(ctx, q); err != nil {
				b.Fatal(err)
			}
		}
	})
	q.By = []string{"country", "browser", "referrer"}
	b.Run("stats by 3 dimensions", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Stats(ctx, q); err != nil {
				b.Fatal(err)
			}
		}
	})
	links := make([]uint64, 50)
	for i := range links {
		links[i] = uint64(i)
	}
	b.Run("totals of 50 links", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Totals(ctx, links); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reconcile", func(b *testing.B) {
		for b.Loop() {
			r, err := Reconcile(ctx, runner.ClickLogOf(log), store, Options{})
			if err != nil || !r.OK() || r.LogClicks != 1_000_000 {
				b.Fatalf("%+v %v", r, err)
			}
		}
	})
}

// BenchmarkRecount measures the independent count alone.
func BenchmarkRecount(b *testing.B) {
	n := newNode(b, nil, "n1")
	value := encode(b, n.block(0, 1, every(noon, time.Millisecond, 1000)...))
	from, to := forever()
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := newRecount(from, to).add(0, value); err != nil {
			b.Fatal(err)
		}
	}
}
