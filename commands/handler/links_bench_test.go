package handler

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// What a writer does for a create beside the log: stamp, decide, seal, apply, merge and commit, in batches as a busy
// partition of four has them, on a state that grows with each. cpu-ns/op is of the whole process: flushes, compactions and
// garbage collection too.
func BenchmarkCreates(b *testing.B) {
	for name, custom := range map[string]bool{"generated": false, "custom": true} {
		b.Run(name, func(b *testing.B) {
			l := newBench(b).drawing()
			at := newPlace(eventlog.EventsLink, 0, 1)
			w := &writer{partition: &partition{stream: events.StreamLink, ledger: l.linkLedger, place: at, count: 1}}
			list := benchCommands(b, b.N, custom)
			b.ReportAllocs()
			b.ResetTimer()
			began := cpuTime(b)
			for len(list) > 0 {
				batch := list[:min(len(list), benchBatch)]
				list = list[len(batch):]
				o := w.ledger.begin()
				out, err := w.decideAll(b.Context(), o, batch)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.merge(o, out); err != nil {
					b.Fatal(err)
				}
				if e, err := events.DecodeEnvelope(out.records[0].Value); err != nil || len(e.GetEvents()) != 1 {
					b.Fatal(e.GetOutcome(), err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

const benchBatch = 500

func benchCommands(b *testing.B, n int, custom bool) (list []eventlog.Record) {
	for i := range n {
		code := ""
		if custom {
			code = fmt.Sprint("code", i)
		}
		c := create("ann", fmt.Sprint("key-", i), code)
		value, err := c.MarshalVT()
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, eventlog.Record{Key: events.BucketKey(commands.BucketFor(c)), Value: value, Offset: int64(i)})
	}
	return list
}

// cpuTime is what the process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
