package links

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/projections/runner/runnertest"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Outcomes go once their keys do not count any more, however few rows a step looks at, and no sooner.
func TestSweepDropsWhatNoLongerCounts(t *testing.T) {
	log := runnertest.NewLog(eventlog.EventsLink, 4)
	add := func(key string, timeUS int64) {
		log.Append(&pb.Envelope{Bucket: 7, Request: &pb.RequestRef{Owner: "acme", Key: key}, Stamp: &pb.Stamp{TimeUs: timeUS}, Outcome: &pb.Outcome{Code: key}})
	}
	for i := range 25 {
		add(fmt.Sprint("old", i), 1000+int64(i))
		add(fmt.Sprint("young", i), 1000+int64(i)+commands.KeyTTL/2)
	}
	add("last", 1010+commands.KeyTTL)
	s, err := Open(Config{Dir: "links", Source: log, Pebble: runner.PebbleOptions{FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RunToEnd(context.Background()); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for next := []byte{requestPrefix}; steps == 0 || len(next) > 1; steps++ {
		if next, err = s.sweep(next, 10); err != nil {
			t.Fatal(err)
		}
	}
	if steps != 6 {
		t.Errorf("51 rows by tens took %d steps", steps)
	}
	for i := range 25 {
		for key, want := range map[string]int{"old": truth(i > 10), "young": 1} {
			if found, err := s.Request("acme", fmt.Sprint(key, i)); err != nil || len(found) != want {
				t.Errorf("%s%d: %d outcomes, want %d (%v)", key, i, len(found), want, err)
			}
		}
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
