package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

func testClick(i int) *Click {
	return &Click{LinkID: uint64(i), Version: 1, TimeUS: int64(i), Status: 302, Namespace: "s.example", Code: []byte("abc"), UserAgent: []byte(redirectTestAgent)}
}

// bySource sorts what arrived into partitions and checks what every block must be: of one boot, consecutive.
func bySource(t *testing.T, blocks []*pb.ClickBlock) map[uint32][]*pb.Click {
	t.Helper()
	sources := map[uint32][]*pb.Click{}
	for _, block := range blocks {
		if !bytes.Equal(block.GetBoot(), blocks[0].GetBoot()) {
			t.Errorf("two boots")
		}
		for i, c := range block.GetClicks() {
			if c.GetSequence() != block.GetClicks()[0].GetSequence()+uint64(i) {
				t.Errorf("block with a hole at %d", c.GetSequence())
			}
		}
		sources[block.GetPartition()] = append(sources[block.GetPartition()], block.GetClicks()...)
	}
	return sources
}

// checkDense fails unless each source's sequences, with the sink's drop rule applied, are 1, 2, 3 … up to its end, but for
// the holes that are allowed. It returns how many clicks the sink would keep.
func checkDense(t *testing.T, blocks []*pb.ClickBlock, holes uint64) (kept uint64) {
	t.Helper()
	var missing uint64
	for partition, clicks := range bySource(t, blocks) {
		var last uint64
		for _, c := range clicks {
			if c.GetSequence() <= last {
				continue // a repeat
			}
			missing += c.GetSequence() - last - 1
			last = c.GetSequence()
			kept++
		}
		t.Logf("partition %d: %d arrived, last %d", partition, len(clicks), last)
	}
	if missing != holes {
		t.Errorf("%d sequences are missing, want %d", missing, holes)
	}
	return kept
}

func closeRecorder(t *testing.T, r *ClickRecorder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestClickRecorderBringsAll(t *testing.T) {
	appender := &clickTestAppender{keep: true}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 3, FlushEvery: time.Millisecond, BlockBytes: 2000})
	const writers, each = 4, 2000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r.Record(testClick(w*each + i))
				if i%500 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	closeRecorder(t, r)
	if kept := checkDense(t, appender.blocks, 0); kept != writers*each {
		t.Errorf("%d clicks arrived", kept)
	}
	ids := map[uint64]bool{}
	for _, c := range appender.clicks() {
		ids[c.GetLinkId()] = true
	}
	if len(ids) != writers*each {
		t.Errorf("%d different clicks", len(ids))
	}
	for partition, clicks := range bySource(t, appender.blocks) {
		if n := len(clicks); n < writers*each/3*8/10 {
			t.Errorf("partition %d has %d clicks: not spread", partition, n)
		}
	}
	s := r.Status()
	if s.Taken != writers*each || s.Sent != writers*each || s.Dropped+s.Waiting != 0 || s.WaitingBytes != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(s.Durability, "kill -9") {
		t.Errorf("%q", s.Durability)
	}
}

// Any mix of failures, with or without the record in the log, repeats blocks but loses and reorders none.
func TestClickRecorderSendsAgain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, lost := range []bool{false, true} {
		random := rand.New(rand.NewPCG(seed, 1))
		appender := &clickTestAppender{keep: true, lost: lost}
		streak := 0 // bounded, for the pauses between tries grow
		appender.fail = func(int32) error {
			if streak++; streak > 4 || random.IntN(3) > 0 {
				streak = 0
				return nil
			}
			return eventlog.ErrUnknownOutcome
		}
		r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 2, FlushEvery: time.Millisecond, BlockBytes: 4000})
		const clicks = 400
		for i := range clicks {
			r.Record(testClick(i))
		}
		closeRecorder(t, r)
		if kept := checkDense(t, appender.blocks, 0); kept != clicks {
			t.Errorf("lost %v: %d clicks arrived", lost, kept)
		}
		if s := r.Status(); s.Sent != clicks || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// The log is away: memory stays bounded, Record goes on, what was dropped is counted and seen as holes.
func TestClickRecorderDropsWhenFull(t *testing.T) {
	hold := make(chan struct{})
	appender := &clickTestAppender{keep: true, hold: hold}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 2, FlushEvery: time.Millisecond, BlockBytes: 10_000, MaxBytes: 100_000})
	const clicks = 5000
	for i := range clicks {
		r.Record(testClick(i))
	}
	s := r.Status()
	if s.Taken != clicks || s.Sent != 0 || s.Dropped == 0 || s.Dropped+s.Waiting != clicks || s.WaitingBytes > 100_000 {
		t.Errorf("while the log is away: %+v", s)
	}
	close(hold)
	for deadline := time.Now().Add(5 * time.Second); r.Status().Waiting > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for i := range 100 {
		r.Record(testClick(i))
	}
	closeRecorder(t, r)
	s = r.Status()
	kept := checkDense(t, appender.blocks, s.Dropped)
	if kept != s.Sent || kept+s.Dropped != clicks+100 {
		t.Errorf("%d arrived, %+v", kept, s)
	}
}

func TestClickRecorderFlushesInTime(t *testing.T) {
	appender := &clickTestAppender{keep: true}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 1})
	for round := range 3 {
		r.Record(testClick(round))
		began := time.Now()
		for len(appender.clicks()) <= round {
			if time.Since(began) > 5*time.Second {
				t.Fatal("never flushed")
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took < clickFlushEvery*4/10 {
			t.Errorf("round %d: flushed after %v: no company was waited for", round, took)
		}
	}
}

func TestClickRecorderStatusTellsErrors(t *testing.T) {
	appender := &clickTestAppender{keep: true, lost: true}
	var failing sync.Map
	failing.Store("now", true)
	appender.fail = func(int32) error {
		if _, now := failing.Load("now"); now {
			return errors.New("broker on holiday")
		}
		return nil
	}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 1, FlushEvery: time.Millisecond})
	r.Record(testClick(1))
	eventually(t, func() bool { return r.Status().LastError == "broker on holiday" })
	if s := r.Status(); s.Waiting != 1 || s.Sent != 0 {
		t.Errorf("%+v", s)
	}
	failing.Delete("now")
	eventually(t, func() bool { return r.Status().Sent == 1 })
	if s := r.Status(); s.LastError != "" || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

func eventually(t *testing.T, probe func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !probe(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never")
		}
	}
}

// A block that its topic does not take cannot stop the others.
func TestClickRecorderGivesUpOnTooLarge(t *testing.T) {
	appender := &clickTestAppender{keep: true, lost: true}
	first := true
	appender.fail = func(int32) error {
		defer func() { first = false }()
		if first {
			return fmt.Errorf("record: %w", eventlog.ErrTooLarge)
		}
		return nil
	}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 1, FlushEvery: time.Millisecond})
	r.Record(testClick(1))
	eventually(t, func() bool { return r.Status().Dropped == 1 })
	r.Record(testClick(2))
	closeRecorder(t, r)
	if s := r.Status(); s.Sent != 1 || s.Dropped != 1 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	checkDense(t, appender.blocks, 1)
}

func TestClickRecorderClose(t *testing.T) {
	appender := &clickTestAppender{keep: true, fail: func(int32) error { return eventlog.ErrUnknownOutcome }, lost: true}
	r := newClickTestRecorder(t, appender, ClickConfig{Partitions: 2})
	for i := range 10 {
		r.Record(testClick(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "10 not acknowledged") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	r.Record(testClick(11))
	if s := r.Status(); s.Dropped != 1 || s.Waiting != 10 {
		t.Errorf("%+v", s)
	}
	if _, err := NewClickRecorder(appender, ClickConfig{}, r.logger); err == nil {
		t.Error("no partitions")
	}
}

func TestClickRecordDoesNotAllocate(t *testing.T) {
	r := newClickTestRecorder(t, &clickTestAppender{}, ClickConfig{Partitions: 2})
	click := testClick(1)
	click.Referrer, click.Query = []byte("https://example.com/"), []byte("utm_source=x")
	for range 20_000 {
		r.Record(click) // lists grow
	}
	if n := testing.AllocsPerRun(50_000, func() { r.Record(click) }); n > 0.01 {
		t.Errorf("%.3f allocations per click", n)
	}
}
