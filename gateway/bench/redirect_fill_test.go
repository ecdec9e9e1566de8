package bench

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

func TestEveryFilledLinkLeadsWhereItsSetSays(t *testing.T) {
	ctx := context.Background()
	b, err := startBroker(ctx, filepath.Join(t.TempDir(), "kafka"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.close() })
	const links = 2001 // not the same number in each partition
	shares := []int{envelopesOf(shareOf(links, 2, 0)), envelopesOf(shareOf(links, 2, 1))}
	var told int64
	chains, err := fillTopic(ctx, b.log, shares, 300, func(done int64) { told = done })
	if err != nil {
		t.Fatal(err)
	}
	set := filledLinks(chains)
	if set.count != links || told != int64(shares[0]+shares[1]) {
		t.Fatalf("%d links, told of %d envelopes, want %d of %v", set.count, told, links, shares)
	}
	store, err := redirects.Open(redirects.Config{Dir: filepath.Join(t.TempDir(), "store"), Source: runner.FromLog(b.log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	ends, err := b.log.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.RunTo(ctx, ends, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if s := store.Status(); s.Voids != 0 || s.Applied != uint64(told) {
		t.Fatalf("%d applied, %d void of %d", s.Applied, s.Voids, told)
	}
	changed := 0
	for i := range links {
		link, err := store.Lookup([]byte(events.RouteKey(set.domain, string(set.code(nil, i)))))
		if err != nil || link.GetTarget() != set.target(i) {
			t.Fatalf("link %d: %v, %v, want %s", i, link, err, set.target(i))
		}
		if link.GetVersion() > 1 {
			changed++
		}
	}
	if changed == 0 {
		t.Error("no link was ever changed")
	}
}

func TestScatterReachesEachOnceAndEvenly(t *testing.T) {
	for _, count := range []int{2, 3, 10, 1000, 4096, 100_003} {
		place, seen := scatter(count), make([]bool, count)
		for i := range count {
			if seen[place(i)] {
				t.Fatalf("%d of %d comes twice", place(i), count)
			}
			seen[place(i)] = true
		}
	}
	const count, visited = 1_000_000, 1000
	place := scatter(count)
	var tenths [10]int
	odd := 0
	for i := range visited {
		tenths[place(i)*10/count]++
		odd += place(i) % 2
	}
	for i, n := range tenths {
		if n < visited/10-5 || n > visited/10+5 {
			t.Errorf("%d of %d in tenth %d", n, visited, i)
		}
	}
	if odd < visited/3 || odd > visited*2/3 {
		t.Errorf("%d of %d lie in the second partition", odd, visited)
	}
}

func TestWhatWaits(t *testing.T) {
	var s processStatus
	if s.waiting(nil) != 0 {
		t.Error("something waits in no process")
	}
	s.Projections = append(s.Projections, struct {
		Projection string  `json:"projection"`
		Applied    int64   `json:"applied"`
		Lag        []int64 `json:"lag"`
	}{Lag: []int64{1, 2}})
	s.Writers = append(s.Writers, struct {
		Behind int64 `json:"behind"`
	}{4})
	s.Sink = append(s.Sink, struct {
		Partition int    `json:"partition"`
		Next      int64  `json:"next"`
		Error     string `json:"error"`
	}{Partition: 1, Next: 10})
	if got := s.waiting([]int64{5, 18}); got != 1+2+4+8 {
		t.Errorf("%d records wait", got)
	}
}
