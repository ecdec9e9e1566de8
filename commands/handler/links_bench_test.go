package handler

import (
	"fmt"
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// What a writer does for a create beside the log: stamp, decide, seal, apply and commit, in batches of 1000 commands on a
// state that grows with each.
func BenchmarkCreates(b *testing.B) {
	for name, custom := range map[string]bool{"generated": false, "custom": true} {
		b.Run(name, func(b *testing.B) {
			l := newBench(b).drawing()
			at := newPlace(eventlog.EventsLink, 0, 1)
			w := &writer{partition: &partition{stream: events.StreamLink, ledger: l.linkLedger, place: at, count: 1}}
			var batch []eventlog.Record
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				c := create("ann", fmt.Sprint("key-", n), "")
				if custom {
					c = create("ann", fmt.Sprint("key-", n), fmt.Sprint("code", n))
				}
				value, err := c.MarshalVT()
				if err != nil {
					b.Fatal(err)
				}
				batch = append(batch, eventlog.Record{Key: events.BucketKey(commands.BucketFor(c)), Value: value, Offset: int64(n)})
				n++
				if len(batch) < commandBatch {
					continue
				}
				o := w.ledger.begin()
				out, err := w.decideAll(b.Context(), o, batch)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.merge(o, out); err != nil {
					b.Fatal(err)
				}
				if e, err := events.DecodeEnvelope(out[0].Value); err != nil || len(e.GetEvents()) != 1 {
					b.Fatal(e.GetOutcome(), err)
				}
				batch = batch[:0]
			}
		})
	}
}
