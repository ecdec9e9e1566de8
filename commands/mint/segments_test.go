package mint

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// registry is what the control log promises of leases, and no more: ascending segments of each space that do not overlap.
type registry struct {
	mu   sync.Mutex
	next map[uint32]uint64
	asks int
	// fault, if set, may delay or refuse a lease.
	fault func(ctx context.Context, n int) error
}

func newRegistry() *registry { return &registry{next: map[uint32]uint64{}} }

func (r *registry) Lease(ctx context.Context, space uint32, size uint64) (Segment, error) {
	r.mu.Lock()
	r.asks++
	n, fault := r.asks, r.fault
	r.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, n); err != nil {
			return Segment{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.next[space]
	r.next[space] = from + size
	return Segment{space, from, from + size}, nil
}

func TestLeasesAreDoubleBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRegistry()
		var log bytes.Buffer
		m := open(t, Config{Leaser: shared, LeastLease: 100, MostLease: 100, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m.Warm()
		synctest.Wait()
		away := make(chan struct{})
		shared.fault = func(ctx context.Context, _ int) error {
			select {
			case <-away:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		began := time.Now()
		for i := range 99 { // the id 0 is not given out
			if _, err := m.DrawID(); err != nil {
				t.Fatalf("draw %d with ids left: %v", i, err)
			}
			synctest.Wait()
			if want := 2 + min(1, i/49); shared.asks != want {
				t.Fatalf("%d leases asked for after %d draws, want %d", shared.asks, i+1, want)
			}
			if low, told := 98-i < 20, strings.Count(log.String(), "run low"); m.Stats().Spaces[0].Low() != low || low != (told == 1) {
				t.Fatalf("with %d ids left: low %v, told %d times", 98-i, m.Stats().Spaces[0].Low(), told)
			}
		}
		if _, err := m.DrawID(); !errors.Is(err, ErrNoIDs) {
			t.Fatalf("without ids: %v", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the draws waited %v", took)
		}
		close(away)
		synctest.Wait()
		if id, err := m.DrawID(); err != nil || id != 100 {
			t.Errorf("after the lease came: %d, %v", id, err)
		}
	})
}

func TestFirstDrawWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRegistry()
		shared.fault = func(context.Context, int) error { time.Sleep(100 * time.Millisecond); return nil }
		m := open(t, Config{Leaser: shared})
		if id, err := m.DrawID(); err != nil || id != 1 {
			t.Errorf("first draw: %d, %v", id, err)
		}
		shared.fault = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		began := time.Now()
		for range 10 {
			if _, _, err := m.Draw("s.example", 7, 0); !errors.Is(err, ErrNoIDs) {
				t.Fatalf("draw without ids: %v", err)
			}
		}
		if took := time.Since(began); took != 250*time.Millisecond {
			t.Errorf("the draws waited %v in all", took)
		}
		time.Sleep(time.Second)
		if _, _, err := m.Draw("s.example", 7, 0); err != nil {
			t.Errorf("after the lease came: %v", err)
		}
	})
}

func TestFailedLeasesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRegistry()
		shared.fault = func(ctx context.Context, n int) error {
			switch n {
			case 1, 2:
				return errors.New("control partition is away")
			case 3: // the answer is lost
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		m := open(t, Config{Leaser: shared, FirstWait: -1})
		if _, err := m.DrawID(); !errors.Is(err, ErrNoIDs) {
			t.Fatalf("drew without a lease: %v", err)
		}
		time.Sleep(10 * time.Second)
		if id, err := m.DrawID(); err != nil || id == 0 {
			t.Errorf("after three failures: %d, %v", id, err)
		}
		if s := m.Stats(); len(s.Spaces) != 1 || s.Spaces[0].Failures != 3 || s.Spaces[0].Left != 1<<16-2 || s.Spaces[0].Segment != 1<<16-1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCloseEndsLeasesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRegistry()
		shared.fault = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		m := open(t, Config{Leaser: shared})
		m.Warm()
		m.Close()
		if m.Warm(); shared.asks > 2 {
			t.Errorf("%d leases asked for", shared.asks)
		}
	})
}

func TestSegmentsThatBreakThePromiseAreRefused(t *testing.T) {
	s := newSegments(5, &leasing{}, 100, 100)
	for _, bad := range []Segment{{5, 10, 10}, {5, 20, 10}, {5, 9, 20}, {0, 10, 20}, {6, 10, 20}, {5, powers[5], powers[5] + 10}} {
		if got, err := s.check(bad, 10); err == nil {
			t.Errorf("%v became %v", bad, got)
		}
	}
	if got, err := s.check(Segment{5, powers[5] - 10, powers[5] + 10}, 10); err != nil || got.To != powers[5] {
		t.Errorf("the last segment of a space: %v, %v", got, err)
	}
	plain := newSegments(plainSpace, &leasing{}, 100, 100)
	if got, err := plain.check(Segment{0, 0, 1}, 0); err == nil {
		t.Errorf("the segment of the id 0 alone became %v", got)
	}
}

func TestLeasesGrowWithUse(t *testing.T) {
	var sizes []uint64
	shared := newRegistry()
	m := open(t, Config{Leaser: leaserFunc(func(ctx context.Context, space uint32, size uint64) (Segment, error) {
		sizes = append(sizes, size)
		return shared.Lease(ctx, space, size)
	}), LeastLease: 4, MostLease: 16})
	for range 100 {
		if err := retry(func() error { _, err := m.DrawID(); return err }); err != nil {
			t.Fatal(err)
		}
	}
	m.Close()
	if len(sizes) < 5 || !slices.Equal(sizes[:5], []uint64{4, 8, 16, 16, 16}) {
		t.Errorf("sizes %v", sizes)
	}
}

type leaserFunc func(context.Context, uint32, uint64) (Segment, error)

func (f leaserFunc) Lease(ctx context.Context, space uint32, size uint64) (Segment, error) {
	return f(ctx, space, size)
}
