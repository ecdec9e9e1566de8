package eventloop

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// While loops serve, GOMAXPROCS still follows the processors that the process may use.
func TestProcessorsFollowTheLimit(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("one processor: there is no limit below")
	}
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	var p extraProcessors
	p.add(3)
	if got, want := runtime.GOMAXPROCS(0), runtime.NumCPU()+3; got > want {
		t.Errorf("%d, want %d at most", got, want)
	}
	before := runtime.GOMAXPROCS(0)
	one := unix.CPUSet{}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil { // of this thread, on which the runtime is asked
		t.Fatal(err)
	}
	p.mu.Lock()
	p.set()
	p.mu.Unlock()
	limited := runtime.GOMAXPROCS(0)
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if limited != 1+3 {
		t.Errorf("%d with one processor, want 4; %d before", limited, before)
	}
	p.mu.Lock()
	p.set()
	p.mu.Unlock()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d when the limit is gone, want %d", got, before)
	}
	p.add(-3)
	if got := runtime.GOMAXPROCS(0); got != before-3 || p.stop != nil {
		t.Errorf("%d when nothing serves, want %d", got, before-3)
	}
}

// What the operator says holds.
func TestProcessorsAreFixed(t *testing.T) {
	t.Setenv("GOMAXPROCS", "5")
	was := runtime.GOMAXPROCS(5)
	defer runtime.GOMAXPROCS(was)
	var p extraProcessors
	p.add(2)
	if got := runtime.GOMAXPROCS(0); got != 7 || p.stop != nil {
		t.Errorf("%d, want 7", got)
	}
	p.add(-2)
	if got := runtime.GOMAXPROCS(0); got != 5 {
		t.Errorf("%d, want 5", got)
	}
}

// However many servers there are, each has by default half the processors that there are without them.
func TestLoopsByDefault(t *testing.T) {
	t.Setenv("GOMAXPROCS", "7")
	was := runtime.GOMAXPROCS(7)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) }) // after those of below
	for range 3 {
		s, err := New(Config{Handler: struct{ Handler }{}, Logger: slog.New(slog.DiscardHandler), Workers: 1, MaxConnections: 1,
			RequestTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if s.config.Loops != 3 {
			t.Errorf("%d loops, want 3", s.config.Loops)
		}
		processors.add(s.config.Loops) // as serving does
		t.Cleanup(func() { processors.add(-s.config.Loops) })
	}
}
