package eventlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// envelopeLike is about what an envelope of one created link takes: ids and hashes that do not compress, words and a
// target that do.
func envelopeLike(i int) []byte {
	out := fmt.Appendf(nil, "type.created domain=s.example code=%07d target=https://www.example.com/products/%d/details?utm_source=mail&utm_campaign=%d "+
		"owner=owner-%d title=Spring sale page %d tags=spring,sale actor=key-%d schema=1 outcome=ok", i, i%100000, i%7, i%50, i, i%50)
	noise := make([]byte, 32+32+16+16) // hashes and ids
	for j := range noise {
		noise[j] = byte(rand.Uint32())
	}
	out = append(out, noise...)
	return append(out, make([]byte, max(0, 400-len(out)))...)
}

func envelopes(n int) []eventlog.Record {
	out := make([]eventlog.Record, n)
	for i := range out {
		out[i] = eventlog.Record{Key: []byte{byte(i >> 8), byte(i)}, Value: envelopeLike(i)}
	}
	return out
}

// withHeaders adds what CloudEvents' binary mode asks for.
func withHeaders(recs []eventlog.Record) []eventlog.Record {
	for i := range recs {
		recs[i].Headers = []eventlog.Header{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("com.hoplog.link.envelope.v1")},
			{Key: "ce_source", Value: []byte("/hoplog/link/1731")}, {Key: "ce_id", Value: fmt.Appendf(nil, "link/1731/%d", i)},
			{Key: "ce_time", Value: []byte("2026-01-02T03:04:05.678Z")}, {Key: "content-type", Value: []byte("application/protobuf")},
		}
	}
	return recs
}

// benchLog is a fresh embedded broker in this process, as in `hoplog dev`.
func benchLog(b *testing.B, cfg eventlog.Config) *eventlog.Log {
	b.Helper()
	return benchLogIn(b, b.TempDir(), cfg)
}

func benchLogIn(b *testing.B, dir string, cfg eventlog.Config) *eventlog.Log {
	b.Helper()
	cfg.Brokers = []string{embeddedIn(b, dir).Addr()}
	l := openBare(b, cfg)
	if err := l.EnsureTopics(soon(b), eventlog.TopicPlan{Partitions: 4}); err != nil {
		b.Fatal(err)
	}
	return l
}

// cpuPer reports the processor time of broker and client together per record: on a shared machine it says more than the
// clock.
func cpuPer(b *testing.B, began time.Duration, records int) {
	b.Helper()
	b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/float64(records)/1000, "cpu-µs/record")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var codecs = []string{"none", "snappy", "lz4", "zstd"}

// BenchmarkAppend: one synchronous append with offset check, the writer's group commit, by batch size and codec.
func BenchmarkAppend(b *testing.B) {
	for _, codec := range codecs {
		for _, size := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/%d", codec, size), func(b *testing.B) {
				a := appender(b, benchLog(b, eventlog.Config{Compression: codec}), eventlog.EventsLink)
				recs := envelopes(size)
				var expect int64
				cpu := cpuTime(b)
				for b.Loop() {
					if err := a.Append(context.Background(), 0, recs, expect); err != nil {
						b.Fatal(err)
					}
					expect += int64(size)
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "records/s")
				cpuPer(b, cpu, b.N*size)
			})
		}
	}
}

// BenchmarkAppendAsync: as many as the buffer takes, over four partitions.
func BenchmarkAppendAsync(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec, func(b *testing.B) {
			a := appender(b, benchLog(b, eventlog.Config{Compression: codec}), eventlog.CommandsLink)
			recs := envelopes(1000)
			slots := make(chan struct{}, 10_000)
			cpu := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				slots <- struct{}{}
				a.AppendAsync(context.Background(), int32(i%4), recs[i%len(recs)], func(_ int64, err error) {
					if err != nil {
						b.Error(err)
					}
					<-slots
				})
			}
			if err := a.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			cpuPer(b, cpu, b.N)
		})
	}
}

// BenchmarkTail: replay from the start, over four partitions, broker and reader in one process.
func BenchmarkTail(b *testing.B) {
	const n = 200_000
	for _, codec := range codecs {
		b.Run(codec, func(b *testing.B) {
			dir := b.TempDir()
			l := benchLogIn(b, dir, eventlog.Config{Compression: codec})
			a := appender(b, l, eventlog.EventsLink)
			recs := withHeaders(envelopes(50)) // as a group commit at some thousand creates per second
			for i := range n / len(recs) {
				if err := a.Append(context.Background(), int32(i%4), recs, eventlog.AnyOffset); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			cpu := cpuTime(b)
			for b.Loop() {
				tl, err := l.NewTail(eventlog.EventsLink, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0})
				if err != nil {
					b.Fatal(err)
				}
				for got := 0; got < n; {
					batches, err := tl.Poll(context.Background(), 0)
					if err != nil {
						b.Fatal(err)
					}
					for _, batch := range batches {
						got += len(batch.Records)
					}
				}
				tl.Close()
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
			cpuPer(b, cpu, b.N*n)
			b.ReportMetric(float64(diskUse(b, dir))/n, "disk-B/record")
		})
	}
}

func diskUse(b *testing.B, dir string) (bytes int64) {
	b.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "log", "partitions", "*", "*.dat"))
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range segments {
		info, err := os.Stat(s)
		if err != nil {
			b.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// BenchmarkTwoHops is a write as a caller feels it: command appended, tailed by the writer, envelope appended with offset
// check (one produce per partition, group commit), tailed by the API. At a fixed rate over four partitions.
func BenchmarkTwoHops(b *testing.B) {
	for _, rate := range []int{100, 500, 2000, 5000, 10_000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			for b.Loop() {
				twoHops(b, benchLog(b, eventlog.Config{}), rate, 3*time.Second)
			}
		})
	}
}

func twoHops(b *testing.B, l *eventlog.Log, rate int, during time.Duration) {
	life, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	all := map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}
	commands, events := appender(b, l, eventlog.CommandsLink), make([]*eventlog.Appender, 4)
	work := make([]chan []eventlog.Record, 4)
	for p := range work {
		events[p], work[p] = appender(b, l, eventlog.EventsLink), make(chan []eventlog.Record, 1000)
		done.Go(func() { writer(life, b, events[p], int32(p), work[p]) })
	}
	writerTail, apiTail := tail(b, l, eventlog.CommandsLink, all), tail(b, l, eventlog.EventsLink, all)
	done.Go(func() {
		for {
			batches, err := writerTail.Poll(life, 0)
			if err != nil {
				return
			}
			for _, batch := range batches {
				work[batch.Partition] <- batch.Records
			}
		}
	})
	var mu sync.Mutex
	var took []time.Duration
	sent := sync.Map{}
	done.Go(func() {
		for {
			batches, err := apiTail.Poll(life, 0)
			if err != nil {
				return
			}
			now := time.Now()
			mu.Lock()
			for _, batch := range batches {
				for _, r := range batch.Records {
					if at, ok := sent.Load(string(r.Key)); ok {
						took = append(took, now.Sub(at.(time.Time)))
					}
				}
			}
			mu.Unlock()
		}
	})
	value := envelopeLike(1)
	begin := time.Now()
	n := int(during.Seconds() * float64(rate))
	for i := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		key := fmt.Sprint(i)
		sent.Store(key, time.Now())
		commands.AppendAsync(life, int32(i%4), eventlog.Record{Key: []byte(key), Value: value}, func(_ int64, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		mu.Lock()
		got := len(took)
		mu.Unlock()
		if got == n {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(took) != n {
		b.Fatalf("%d of %d answered", len(took), n)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[n/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[n*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[n-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(0, "ns/op")
}

// writer appends what has come meanwhile in one produce.
func writer(life context.Context, b *testing.B, a *eventlog.Appender, partition int32, work chan []eventlog.Record) {
	var expect int64
	for {
		var recs []eventlog.Record
		select {
		case <-life.Done():
			return
		case recs = <-work:
		}
	more:
		for {
			select {
			case next := <-work:
				recs = append(recs, next...)
			default:
				break more
			}
		}
		if err := a.Append(life, partition, recs, expect); err != nil {
			if life.Err() == nil {
				b.Error(err)
			}
			return
		}
		expect += int64(len(recs))
	}
}
