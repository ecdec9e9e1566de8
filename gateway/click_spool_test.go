package gateway

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// abandonRecorder ends a recorder as if the log had been away to the last: what waits stays in its file.
func abandonRecorder(t *testing.T, r *ClickRecorder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// keptOf folds blocks as the click sink does, in the order in which they arrived.
func keptOf(t *testing.T, blocks []*pb.ClickBlock) (clicks []*pb.Click, repeats, gaps uint64) {
	t.Helper()
	folds := map[uint32]*projections.Clicks{}
	offsets := map[uint32]int64{}
	for _, block := range blocks {
		p := block.GetPartition()
		if folds[p] == nil {
			folds[p] = projections.NewClicks(int32(p))
		}
		value, err := block.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		batch := folds[p].Begin(offsets[p])
		if err := folds[p].Add(batch, offsets[p], value); err != nil {
			t.Fatal(err)
		}
		offsets[p]++
		for _, row := range batch.Rows {
			clicks = append(clicks, row.Click)
		}
		repeats, gaps = repeats+batch.Repeats, gaps+batch.Gaps
	}
	return clicks, repeats, gaps
}

// Lives follow each other on one file while the log takes what it is given and says so only sometimes: each click counts once.
func TestClickSpoolOverLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clicks", "spool")
	appender := &clickTestAppender{keep: true}
	var mood atomic.Int64 // 0 well, 1 away, 2 takes and does not say so
	appender.fail = func(int32) error {
		if mood.Load() == 0 {
			return nil
		}
		return eventlog.ErrUnknownOutcome
	}
	const lives, each = 6, 300
	recorded := 0
	boots := map[string]bool{}
	for life := range lives {
		appender.mu.Lock()
		appender.lost = life%3 == 1
		appender.mu.Unlock()
		mood.Store(int64(life % 3))
		r := newClickTestRecorder(t, appender, ClickConfig{Node: "n", Partitions: 3, FlushEvery: time.Millisecond, BlockBytes: 2000, MaxBytes: 4 << 20, Spool: path})
		for range each {
			recorded++
			r.Record(testClick(recorded))
			if recorded%50 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		s := r.Status()
		if s.Taken != each || s.Dropped != 0 || s.Sent+s.Waiting != s.Taken+s.Left || s.SpoolError != "" || !strings.Contains(s.Durability, "kill -9 of this node loses none") {
			t.Errorf("life %d: %+v", life, s)
		}
		abandonRecorder(t, r)
	}
	mood.Store(0)
	last := newClickTestRecorder(t, appender, ClickConfig{Node: "n", Partitions: 3, FlushEvery: time.Millisecond, BlockBytes: 2000, MaxBytes: 4 << 20, Spool: path})
	eventually(t, func() bool { return last.Status().Waiting == 0 })
	if s := last.Status(); s.WaitingBytes != 0 || s.Sent != s.Left || s.Left == 0 {
		t.Errorf("%+v", s)
	}
	clicks, repeats, gaps := keptOf(t, appender.blocks)
	t.Logf("%d clicks, %d repeats", len(clicks), repeats)
	ids := map[uint64]bool{}
	for _, c := range clicks {
		ids[c.GetLinkId()] = true
	}
	for _, block := range appender.blocks {
		boots[string(block.GetBoot())] = true
	}
	if len(clicks) != recorded || len(ids) != recorded || gaps != 0 || repeats == 0 || len(boots) < 3 {
		t.Errorf("%d clicks of %d count, %d different, %d gaps, %d repeats, %d boots", len(clicks), recorded, len(ids), gaps, repeats, len(boots))
	}
}

// A process sends what an earlier one left before anything of its own.
func TestClickSpoolSendsTheOldFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	hold := make(chan struct{})
	appender := &clickTestAppender{keep: true, hold: hold}
	config := ClickConfig{Node: "n", Partitions: 1, FlushEvery: time.Millisecond, BlockBytes: 2000, Spool: path}
	away := &clickTestAppender{fail: func(int32) error { return eventlog.ErrNotSent }}
	first := newClickTestRecorder(t, away, config)
	for i := range 500 {
		first.Record(testClick(i))
	}
	abandonRecorder(t, first)
	second := newClickTestRecorder(t, appender, config)
	for i := range 500 {
		second.Record(testClick(500 + i))
	}
	close(hold)
	closeRecorder(t, second)
	for i, c := range appender.clicks() {
		if c.GetLinkId() != uint64(i) {
			t.Fatalf("click %d comes as number %d", c.GetLinkId(), i)
		}
	}
	if n := len(appender.clicks()); n != 1000 {
		t.Errorf("%d clicks", n)
	}
}

// What is older than the log remembers is dropped, and counted.
func TestClickSpoolDropsTheTooOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	config := ClickConfig{Node: "n", Partitions: 1, FlushEvery: time.Millisecond, Spool: path}
	first := newClickTestRecorder(t, &clickTestAppender{fail: func(int32) error { return eventlog.ErrNotSent }}, config)
	first.Record(testClick(1))
	abandonRecorder(t, first)
	config.MaxAge = time.Nanosecond
	second := newClickTestRecorder(t, &clickTestAppender{}, config)
	eventually(t, func() bool { return second.Status().Dropped == 1 })
	if s := second.Status(); s.Waiting != 0 || s.Left != 1 || !strings.Contains(s.LastError, "older") {
		t.Errorf("%+v", s)
	}
}

// A file that cannot be used does not stop the node, and shows.
func TestClickSpoolFallsBackToMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	if err := os.WriteFile(path, []byte(strings.Repeat("something else ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := NewClickRecorder(&clickTestAppender{}, ClickConfig{Partitions: 2, Spool: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.Record(testClick(1))
	if s := r.Status(); !strings.Contains(s.SpoolError, "not a click spool") || !strings.Contains(s.Durability, "memory") || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	closeRecorder(t, r)
	if kept, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(kept), "something else") {
		t.Errorf("the foreign file was changed: %v", err)
	}
}

// The spool holds nothing that must not be kept of a visitor.
func TestClickSpoolKeepsNoSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	r := newClickTestRecorder(t, &clickTestAppender{fail: func(int32) error { return eventlog.ErrNotSent }}, ClickConfig{Partitions: 1, Spool: path})
	click := benchClick
	click.Referrer, click.Query = []byte("https://news.example/private/path"), []byte("utm_source=kept&token=secret")
	r.Record(&click)
	abandonRecorder(t, r)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	address := click.Address.As4()
	for _, secret := range []string{"private", "secret", "AppleWebKit", "Mozilla", string(address[:]), "192.0.2.7"} {
		if strings.Contains(text, secret) {
			t.Errorf("the file holds %q", secret)
		}
	}
	if !slices.ContainsFunc([]string{"kept"}, func(s string) bool { return strings.Contains(text, s) }) {
		t.Error("the click is not in the file")
	}
}
