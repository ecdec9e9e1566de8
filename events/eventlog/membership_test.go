package eventlog_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// holder records what a member holds.
type holder struct {
	mu   sync.Mutex
	held map[int32]bool
	lost int
}

func (h *holder) assigned(_ string, partitions []int32) { h.change(partitions, true) }

func (h *holder) revoked(_ string, partitions []int32) { h.change(partitions, false) }

func (h *holder) change(partitions []int32, hold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = make(map[int32]bool)
	}
	for _, p := range partitions {
		if hold {
			h.held[p] = true
		} else {
			delete(h.held, p)
			h.lost++
		}
	}
}

func (h *holder) partitions() []int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.held))
}

func join(t testing.TB, l *eventlog.Log, group string, h *holder) *eventlog.Membership {
	t.Helper()
	m, err := l.Join(soon(t), group, []string{eventlog.CommandsLink}, h.assigned, h.revoked)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > patient {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func membership(t *testing.T, l *eventlog.Log) {
	// given one member, then it holds all
	var one, two holder
	m1 := join(t, l, "share", &one)
	took := eventually(t, "one holds all", func() bool { return len(one.partitions()) == 4 })
	// when a second joins, then each holds half, none is held by both, and only what moves is given up
	m2 := join(t, l, "share", &two)
	took2 := eventually(t, "two share", func() bool { return len(one.partitions()) == 2 && len(two.partitions()) == 2 })
	if all := append(one.partitions(), two.partitions()...); len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
		t.Errorf("held: %v and %v", one.partitions(), two.partitions())
	}
	if one.lost != 2 {
		t.Errorf("the first gave up %d partitions, want 2", one.lost)
	}
	// when the second leaves, then the first holds all again at once
	m2.Close()
	if len(two.partitions()) != 0 {
		t.Errorf("after its close the second still holds %v", two.partitions())
	}
	took3 := eventually(t, "one holds all again", func() bool { return len(one.partitions()) == 4 })
	m1.Close()
	if len(one.partitions()) != 0 {
		t.Errorf("after its close the first still holds %v", one.partitions())
	}
	t.Logf("first assignment after %v, shared after %v, taken over from a leaver after %v", took, took2, took3)
}

// playMember is a member in a process of its own; it prints when it holds all partitions.
func playMember(addr, group, want string) error {
	l, err := eventlog.Open(eventlog.Config{Brokers: []string{addr}}, quiet())
	if err != nil {
		return err
	}
	var h holder
	if _, err := l.Join(context.Background(), group, []string{eventlog.CommandsLink}, h.assigned, h.revoked); err != nil {
		return err
	}
	for fmt.Sprint(len(h.partitions())) != want {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("holds", want)
	return nil
}

func takeover(t *testing.T, l *eventlog.Log, addr string) {
	// given two members, one in another process
	var here holder
	join(t, l, "takeover", &here)
	eventually(t, "we hold all", func() bool { return len(here.partitions()) == 4 })
	other, line := spawn(t, "member "+addr+" takeover 2")
	defer killProcess(other)
	if line != "holds 2" {
		t.Fatal(line)
	}
	// when that process is killed, then its partitions are ours soon
	killProcess(other)
	took := eventually(t, "we hold all again", func() bool { return len(here.partitions()) == 4 })
	t.Logf("taken over from a killed member after %v", took)
	if took > 4*time.Second {
		t.Errorf("takeover took %v", took)
	}
	// when a lone member is killed and started again, then it does not wait long for its previous life
	first, _ := spawn(t, "member "+addr+" again 4")
	killProcess(first)
	began := time.Now()
	second, _ := spawn(t, "member "+addr+" again 4")
	defer killProcess(second)
	t.Logf("restarted after a kill, holding all after %v", time.Since(began))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the restarted member waited %v", took)
	}
}

// TestEmbeddedRestartAssigns: a process that is killed together with its embedded broker, the usual case on a single
// machine, holds its partitions again as soon as both are back.
func TestEmbeddedRestartAssigns(t *testing.T) {
	b := startEmbeddedProcess(t)
	open(t, b.Addr())
	member, _ := spawn(t, "member "+b.Addr()+" dev 4")
	killProcess(member)
	b.Kill()
	began := time.Now()
	b.Restart()
	up := time.Since(began)
	member, _ = spawn(t, "member "+b.Addr()+" dev 4")
	defer killProcess(member)
	t.Logf("broker up after %v, all partitions held after %v", up, time.Since(began))
	if took := time.Since(began) - up; took > time.Second {
		t.Errorf("assignment took %v", took)
	}
}
