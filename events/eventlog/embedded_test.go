package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// TestEmbeddedLock: one broker per directory; the lock dies with its process, however that ends.
func TestEmbeddedLock(t *testing.T) {
	p := startEmbeddedProcess(t)
	cfg := eventlog.EmbeddedConfig{Dir: p.dir, Addr: "127.0.0.1:0"}
	_, err := eventlog.StartEmbedded(cfg, quiet())
	if !errors.Is(err, eventlog.ErrLocked) || !strings.Contains(err.Error(), p.dir) {
		t.Fatalf("second broker on one directory: %v", err)
	}
	p.Kill()
	e, err := eventlog.StartEmbedded(cfg, quiet())
	if err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err = eventlog.StartEmbedded(cfg, quiet()); err != nil {
		t.Fatalf("after a clean stop: %v", err)
	}
	e.Close()
}

// TestEmbeddedRefuses: addresses that others could reach, and a port that is taken (which must not keep the lock).
func TestEmbeddedRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "nonsense"} {
		if _, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: dir, Addr: addr}, quiet()); err == nil {
			t.Errorf("address %q was accepted", addr)
		}
	}
	other := embeddedHere(t)
	cfg := eventlog.EmbeddedConfig{Dir: dir, Addr: other.Addr()}
	if _, err := eventlog.StartEmbedded(cfg, quiet()); err == nil || !strings.Contains(err.Error(), other.Addr()) {
		t.Errorf("taken port: %v", err)
	}
	cfg.Addr = "127.0.0.1:0"
	e, err := eventlog.StartEmbedded(cfg, quiet())
	if err != nil {
		t.Fatalf("after a refused start: %v", err)
	}
	e.Close()
}

// TestTornTail: a write that a crash cut off is dropped, and the log goes on from the last whole batch.
func TestTornTail(t *testing.T) {
	p := startEmbeddedProcess(t)
	l := open(t, p.Addr())
	if err := appender(t, l, eventlog.EventsLink).Append(soon(t), 0, values("v", 3), 0); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	segment := filepath.Join(p.dir, "log", "partitions", eventlog.EventsLink+"-0", "0.dat")
	f, err := os.OpenFile(segment, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 70)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p.Restart()
	if got := end(t, l, eventlog.EventsLink, 0); got != 3 {
		t.Fatalf("log ends at %d, want 3", got)
	}
	if err := appender(t, l, eventlog.EventsLink).Append(soon(t), 0, values("w", 2), 3); err != nil {
		t.Fatal(err)
	}
	if got := read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{0: 0}), 0, 5); string(got[3].Value) != "w0" {
		t.Errorf("record 3 is %s", got[3].Value)
	}
}

// TestKillUnderLoad: a broker that is killed under load loses nothing that it acknowledged, doubles nothing that was
// confirmed at its offset, and leaves no gap.
func TestKillUnderLoad(t *testing.T) {
	const rounds = 3
	onBoth(t, func(t *testing.T, b broker) {
		l := open(t, b.Addr())
		var acked sync.Map // "partition/offset" → value
		for round := range rounds {
			if err := l.WaitReady(soon(t), 1); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for p := range int32(4) {
				writers.Go(func() { writeUntil(t, l, p, round, stop, &acked) })
			}
			time.Sleep(700 * time.Millisecond)
			b.Kill()
			close(stop)
			b.Restart()
			writers.Wait()
		}
		if err := l.WaitReady(soon(t), 1); err != nil {
			t.Fatal(err)
		}
		verify(t, l, &acked)
	})
}

// writeUntil appends batches as the single writer of a partition does: expected offset, new session after a failure.
func writeUntil(t *testing.T, l *eventlog.Log, partition int32, round int, stop chan struct{}, acked *sync.Map) {
	ctx := soon(t)
	a := appender(t, l, eventlog.EventsLink)
	ends, err := l.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		t.Error(err)
		return
	}
	expect := ends[partition]
	for n := 0; ; n++ {
		recs := values(fmt.Sprintf("r%d-p%d-n%d-", round, partition, n), 1+n%7)
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := a.Append(once, partition, recs, expect)
		cancel()
		if err != nil {
			return
		}
		for i, r := range recs {
			acked.Store(fmt.Sprintf("%d/%d", partition, expect+int64(i)), string(r.Value))
		}
		expect += int64(len(recs))
		select {
		case <-stop:
			return
		default:
		}
	}
}

func verify(t *testing.T, l *eventlog.Log, acked *sync.Map) {
	t.Helper()
	seen := make(map[string]int)
	at := make(map[string]string)
	var total int
	for p := range int32(4) {
		n := int(end(t, l, eventlog.EventsLink, p))
		for i, r := range read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{p: 0}), p, n) {
			if r.Offset != int64(i) {
				t.Fatalf("partition %d: record %d has offset %d", p, i, r.Offset)
			}
			seen[string(r.Value)]++
			at[fmt.Sprintf("%d/%d", p, r.Offset)] = string(r.Value)
		}
		total += n
	}
	confirmed := 0
	acked.Range(func(where, value any) bool {
		confirmed++
		if got := at[where.(string)]; got != value {
			t.Errorf("confirmed %v at %v, found %q", value, where, got)
		}
		if n := seen[value.(string)]; n != 1 {
			t.Errorf("confirmed %v is there %d times", value, n)
		}
		return true
	})
	t.Logf("%d records confirmed, %d in the log", confirmed, total)
	if confirmed == 0 {
		t.Error("nothing was confirmed")
	}
}
