package app

import (
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/gateway"
)

// Everything that an operator has to know of is called off, with what to do; a process that is well has nothing to say.
func TestStatusSaysWhatToLookAt(t *testing.T) {
	now := time.Now()
	old, fresh := now.Add(-time.Minute), now.Add(-time.Second)
	writer := func(change func(w *writerStatus)) statusReport {
		w := writerStatus{PartitionStatus: handler.PartitionStatus{Stream: "link", Partition: 2, Mode: handler.ModeWriting, Batches: 100, Decided: 1000,
			Mint: &mint.Stats{Spaces: []mint.SpaceStats{{Space: 7, Left: 50, Segment: 100}}}}}
		change(&w)
		return statusReport{Writers: []writerStatus{w}}
	}
	for name, c := range map[string]struct {
		status statusReport
		part   string
		off    string
	}{
		"a stopped projection": {statusReport{Projections: []projectionStatus{{Projection: "links/1", Error: "gap at 7"}}}, "projection links/1", "gap at 7"},
		"a stopped writer":     {writer(func(w *writerStatus) { w.Mode, w.Error = handler.ModeStopped, "gap at 7" }), "writer link/2", "gap at 7"},
		"waiting commands":     {writer(func(w *writerStatus) { w.Behind = 20_000 }), "writer link/2", "20000 commands wait"},
		"unconfirmed appends":  {writer(func(w *writerStatus) { w.Unconfirmed = 25 }), "writer link/2", "25 of 125 appends"},
		"few ids":              {writer(func(w *writerStatus) { w.Mint.Spaces[0].Left, w.Mint.Spaces[0].Failures = 19, 3 }), "writer link/2", "19 of 100 leased ids left"},
		"no ids ever":          {writer(func(w *writerStatus) { w.Mint.Spaces[0] = mint.SpaceStats{Space: 7, Failures: 3} }), "writer link/2", "0 of 0 leased ids left"},
		"stale reads":          {statusReport{AsOf: &old}, "read models", "1m0s ago"},
		"a late projection":    {statusReport{Projections: []projectionStatus{{Projection: "links/1", Lag: []int64{6000, 7000}}}}, "projection links/1", "13000 records behind"},
		"dropped clicks":       {statusReport{Clicks: &gateway.ClickStatus{Dropped: 3}}, "clicks of this node", "3 dropped"},
		"no spool":             {statusReport{Clicks: &gateway.ClickStatus{SpoolError: "no space"}}, "clicks of this node", "in memory: no space"},
		"a full spool":         {statusReport{Clicks: &gateway.ClickStatus{SpoolBytes: 100, WaitingBytes: 90}}, "clicks of this node", "90% full"},
		"a damaged spool":      {statusReport{Clicks: &gateway.ClickStatus{Damaged: 5}}, "clicks of this node", "5 were unreadable"},
		"a waiting sink":       {statusReport{Sink: []sinkStatus{{Partition: 1, Error: "refused"}}}, "sink 1", "refused"},
		"dead letters":         {statusReport{DeadLetters: 2}, "dead letters", "2 wait"},
		"a failing effect":     {statusReport{Effects: []effectStatus{{Handler: "purge", FailingSeconds: 60, Error: "refused"}}}, "effects purge", "60 s: refused"},
		"a late effect":        {statusReport{Effects: []effectStatus{{Handler: "purge", Lag: []int64{9000, 9000}}}}, "effects purge", "18000 records behind"},
		"a broken promise":     {statusReport{Propagation: []propagationStatus{{"redirect", 1000, 1800, 50, 3}}}, "changes to redirect", "3 of 50 measured in the last ten minutes were late, 1800 ms at worst"},
		"missing clicks":       {statusReport{Sink: []sinkStatus{{Partition: 1, Gaps: 4}}}, "sink 1", "4 clicks never arrived"},
	} {
		list := c.status.attention(now)
		if len(list) != 1 || list[0].Part != c.part || !strings.Contains(list[0].Off, c.off) || list[0].Do == "" {
			t.Errorf("%s: %+v", name, list)
		}
	}
	well := writer(func(w *writerStatus) { w.Unconfirmed, w.Behind, w.Voids = 2, 40, 3 })
	well.Effects, well.DeadLetters = []effectStatus{{Handler: "purge", FailingSeconds: 2, Error: "refused", Lag: []int64{40}}}, -1
	well.Propagation = []propagationStatus{{"redirect", 1000, 400, 50, 0}}
	well.AsOf, well.Projections = &fresh, []projectionStatus{{Projection: "links/1", Lag: []int64{3}, Voids: 3}}
	if list := well.attention(now); len(list) != 0 {
		t.Errorf("well: %+v", list)
	}
}
